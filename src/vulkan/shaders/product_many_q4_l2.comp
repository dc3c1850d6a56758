// Codes of 4 bits, two limbs of an activation, many rows.
#version 460
#include "math.glsl"
#define BITS  4
#define LIMBS 2
#include "product_many.glsl"
