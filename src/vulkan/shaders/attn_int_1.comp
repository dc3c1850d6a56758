// Tiles of one query.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "math.glsl"
#include "memory.glsl"
#define TILE 1
#include "attn_int.glsl"
