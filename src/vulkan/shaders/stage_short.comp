// Rows of up to 2,048 elements.
#version 460
#include "math.glsl"
#define PARTS 1
#include "stage.glsl"
