// Of experts: weights of bf16.
#version 460
#include "math.glsl"
#define FLOAT_BITS 0
#define EXPERTS
#include "product_f.glsl"
