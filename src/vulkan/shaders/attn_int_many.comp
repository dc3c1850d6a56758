// Attention in integers for tiles of many queries.
#version 460
#include "math.glsl"
#include "attn_int_many.glsl"
