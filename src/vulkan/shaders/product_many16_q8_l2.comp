// Codes of 8 bits in groups of 16, two limbs of an activation, many rows.
#version 460
#include "math.glsl"
#define BITS  8
#define LIMBS 2
#define GROUP_16
#include "product_many.glsl"
