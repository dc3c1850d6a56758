// Codes of 8 bits, two limbs of an activation, many rows.
#version 460
#include "math.glsl"
#define BITS  8
#define LIMBS 2
#include "product_many.glsl"
