// Rows of up to 8,192 elements.
#version 460
#include "math.glsl"
#include "stage.glsl"
