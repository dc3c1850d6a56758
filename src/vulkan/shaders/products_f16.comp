// Of experts: weights of f16.
#version 460
#include "math.glsl"
#define FLOAT_BITS 16
#define EXPERTS
#include "product_f.glsl"
