// Codes of 4 bits, one limb of an activation, many rows, by cooperative matrices.
#version 460
#include "math.glsl"
#define BITS  4
#define LIMBS 1
#define COOPERATIVE
#define SUBGROUPS_DOWN 2
#define DOWN 4
#define ACROSS 2
#include "product_many.glsl"
