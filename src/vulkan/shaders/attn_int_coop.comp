// Attention in integers for tiles of many queries, by cooperative matrices.
#version 460
#include "math.glsl"
#define COOPERATIVE
#include "attn_int_many.glsl"
