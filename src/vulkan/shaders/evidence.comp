// Results of fma, division, square root, product and sum on this device, each by the function that every shader here
// uses: five results for each triple of floats. grid (ceil(n / 256)).
#version 460
#include "math.glsl"
layout(local_size_x = 256) in;

layout(buffer_reference, scalar) buffer Floats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t x, y;
    int n;
};
layout(push_constant, scalar) uniform Push { Args args; };

void main()
{
    const int i = int(gl_GlobalInvocationID.x);
    if (i >= args.n) return;
    Floats x = Floats(args.x), y = Floats(args.y);
    const float a = x.at[3 * i], b = x.at[3 * i + 1], c = x.at[3 * i + 2];
    y.at[5 * i] = fma_(a, b, c);
    y.at[5 * i + 1] = div_(a, b);
    y.at[5 * i + 2] = sqrt_(a);
    y.at[5 * i + 3] = mul_(a, b);
    y.at[5 * i + 4] = add_(a, c);
}
