// Codes of 4 bits, two limbs of an activation, many rows, by cooperative matrices.
#version 460
#include "math.glsl"
#define BITS  4
#define LIMBS 2
#define COOPERATIVE
#define SUBGROUPS_DOWN 2
#define DOWN 2
#define ACROSS 2
#include "product_many.glsl"
