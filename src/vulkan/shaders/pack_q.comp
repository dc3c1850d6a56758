// Matrices of Form Q from the CPU's panels (ops/linear/linear_layout.h) to a device's layout (cuda/product/layout.h). grid
// (units, panels)
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 32) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t from, codes, scales;
    int64_t panel_bytes, group_bytes;
    int first, k, units, group, a_group, bits, scale_bytes, biased;
};
layout(push_constant, scalar) uniform Push { Args a; };

// Byte e of word i of step j.
uint code(uint64_t from, int unit, int j, int i, int e)
{
    const int lane = int(gl_LocalInvocationID.x), t = lane % 4, o = lane / 4 + 8 * (i & 1);
    const int k = unit * 64 + (a.a_group == 64 ? 16 * t + 8 * j : 32 * j + 8 * t) + 4 * (i >> 1) + e;
    if (k >= a.k) return 0u;
    const int quad = k % a.group / 4, at = o * 4 + k % 4;
    Bytes group = Bytes(from + uint64_t(int64_t(k / a.group) * a.group_bytes));
    if (a.bits == 8) return uint(group.at[quad * 64 + at]) - 128u & 255u;
    return (uint(group.at[quad / 2 * 64 + at]) >> (quad & 1) * 4 & 15u) - 8u & 15u;
}

void main()
{
    const int unit = int(gl_WorkGroupID.x), lane = int(gl_LocalInvocationID.x);
    const int64_t panel = int64_t(a.first) + int64_t(gl_WorkGroupID.y);
    const uint64_t from = a.from + uint64_t(int64_t(gl_WorkGroupID.y) * a.panel_bytes);
    Words to = Words(a.codes + uint64_t((panel * int64_t(a.units) + int64_t(unit)) * int64_t(a.bits) * 128l));
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < (a.bits == 8 ? 4 : 2); i++) {
            uint word = 0u;
            for (int e = 0; e < 4; e++) {
                const uint low = code(from, unit, j, i, e);
                word |= (a.bits == 8 ? low : low | code(from, unit, j, i + 2, e) << 4) << 8 * e;
            }
            to.at[a.bits == 8 ? j * 128 + lane * 4 + i : lane * 4 + j * 2 + i] = word;
        }
    const int per_unit = a.group < 64 ? 64 / a.group : 1, parts = a.biased != 0 ? 2 : 1;
    for (int s = 0; s < per_unit; s++) {
        const int k = unit * 64 + s * a.group, g = k / a.group;
        if (k >= a.k || k % a.group != 0) continue; // the group began with another unit
        const uint64_t src = from + uint64_t(int64_t(g) * a.group_bytes + int64_t(a.group * (a.bits == 8 ? 16 : 8)));
        const uint64_t dst = a.scales +
            uint64_t((panel * int64_t(a.k / a.group) + int64_t(g)) * int64_t(16 * parts * a.scale_bytes));
        for (int i = lane; i < 16 * parts; i += 32) {
            const int at = i % parts * 16 + i / (2 * parts) + 8 * (i / parts % 2);
            if (a.scale_bytes == 4) Words(dst).at[i] = Words(src).at[at];
            else Halves(dst).at[i] = Halves(src).at[at];
        }
    }
}
