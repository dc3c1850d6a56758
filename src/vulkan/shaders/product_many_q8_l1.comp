// Codes of 8 bits, one limb of an activation, many rows.
#version 460
#include "math.glsl"
#define BITS  8
#define LIMBS 1
#include "product_many.glsl"
