// Codes of 8 bits in groups of 16, one limb of an activation, many rows.
#version 460
#include "math.glsl"
#define BITS  8
#define LIMBS 1
#define GROUP_16
#include "product_many.glsl"
