// Tiles of up to 2 queries.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "math.glsl"
#include "memory.glsl"
#define TILE 2
#include "attn_int.glsl"
