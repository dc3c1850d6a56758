// With a gate: codes of 8 bits, two limbs of an activation.
#version 460
#include "math.glsl"
#define BITS  8
#define LIMBS 2
#define GATED
#include "product_q.glsl"
