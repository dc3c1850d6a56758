// Of experts: codes of 8 bits, one limb of an activation.
#version 460
#include "math.glsl"
#define BITS  8
#define LIMBS 1
#define EXPERTS
#include "product_q.glsl"
