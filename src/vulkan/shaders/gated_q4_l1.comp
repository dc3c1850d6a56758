// With a gate: codes of 4 bits, one limb of an activation.
#version 460
#include "math.glsl"
#define BITS  4
#define LIMBS 1
#define GATED
#include "product_q.glsl"
