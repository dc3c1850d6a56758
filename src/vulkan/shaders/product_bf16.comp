// Weights of bf16.
#version 460
#include "math.glsl"
#define FLOAT_BITS 0
#include "product_f.glsl"
