// Tiles of up to 8 queries.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "math.glsl"
#include "memory.glsl"
#define TILE 8
#include "attn_int.glsl"
