// Of experts: weights of f32.
#version 460
#include "math.glsl"
#define FLOAT_BITS 32
#define EXPERTS
#include "product_f.glsl"
