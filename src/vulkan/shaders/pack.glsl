// Weights from the CPU's panels to a device's layout (cuda/product/layout.h). grid (units, panels)
#version 460
#include "math.glsl"
#include "memory.glsl"
layout(local_size_x = 32) in;

#if defined PACK_Q

// Matrices of Form Q (ops/linear/linear_layout.h).
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t from, codes, scales;
    int64_t panel_bytes, group_bytes;
    int first, k, units, group, a_group, bits, scale_bytes, biased;
};
layout(push_constant, scalar) uniform Push { Args a; };

// Byte e of word i of step j.
uint code(uint64_t from, int unit, int j, int i, int e)
{
    const int lane = int(gl_LocalInvocationID.x), t = lane / 8, o = lane % 8 + 8 * (i & 1);
    const int k = unit * 64 + (a.a_group == 64 ? 16 * t + 8 * j : 32 * j + 8 * t) + 4 * (i >> 1) + e;
    if (k >= a.k) return 0u;
    const int quad = k % a.group / 4, at = o * 4 + k % 4;
    Bytes group = Bytes(from + uint64_t(int64_t(k / a.group) * a.group_bytes));
    if (a.bits == 8) return uint(group.at[quad * 64 + at]) - 128u & 255u;
    return (uint(group.at[quad / 2 * 64 + at]) >> (quad & 1) * 4 & 15u) - 8u & 15u;
}

void pack_scales(uint64_t from, int64_t panel, int unit, int lane)
{
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

#elif defined PACK_PLANES

// Weights with their file's own scales (ops/linear/planes.h).
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args {
    uint64_t from, codes, scales;
    int64_t panel_bytes, block_bytes;
    int codes_at, first, k, units, block, group, from_bits, bits, zero, biased, rule, has_book;
    int8_t book[16];
};
layout(push_constant, scalar) uniform Push { Args a; };

const int PLAIN = 0, E8M0 = 1, I8 = 2, U8 = 3, U4 = 4, E4M3 = 5;

// Bits of a plane for input i of 32.
uint part(uint64_t plane, int width, int i)
{
    const int per = 8 / width, quad = i / 4;
    return uint(Bytes(plane).at[quad / per * 64 + i % 4]) >> quad % per * width & (1u << width) - 1u;
}

// Byte e of word i of step j.
uint code(uint64_t from, int unit, int j, int i, int e)
{
    const int lane = int(gl_LocalInvocationID.x), t = lane / 8, o = lane % 8 + 8 * (i & 1);
    const int k = unit * 64 + 32 * j + (a.group == 32 ? 8 * t + 4 * (i >> 1) : 16 * (i >> 1) + 4 * t) + e;
    const int low = a.from_bits == 8 ? 8 : a.from_bits >= 4 ? 4 : 2, high = a.from_bits - low;
    if (k >= a.k) return 0u;
    const uint64_t at = from + uint64_t(int64_t(k / a.block) * a.block_bytes +
                                        int64_t(a.codes_at + k % a.block / 32 * (a.from_bits * 64) + 4 * o));
    uint u = part(at, low, k % 32);
    if (high != 0) u |= part(at + uint64_t(low * 64), high, k % 32) << low;
    return uint(a.has_book != 0 ? int(a.book[u]) : int(u) - a.zero) & (a.bits == 8 ? 255u : 15u);
}

float half_at(uint64_t p, int i)
{
    return half_to_float(uint(Halves(p).at[i]));
}

// The scale, or with `bias` the bias, of output o of group g of a block, if the rule makes floats.
float scale_of(uint64_t from, uint64_t block, int g, int o, int bias, int parts)
{
    if (a.rule == E4M3) { // the panel's last 64 bytes times E4M3 / 256, which is a binary16
        const uint byte = uint(Bytes(block).at[16 * g + o]);
        const float d = Floats(from + uint64_t(a.panel_bytes - 64l)).at[o];
        return mul_(d, half_to_float((byte & 0x80u) << 8 | (byte & 0x7fu) << 7));
    }
    Bytes subs = Bytes(block + uint64_t(32 * parts));
    const float d = half_at(block, bias * 16 + o);
    if (a.rule == I8) return mul_(d, float(int(uint(subs.at[16 * g + o]) << 24) >> 24));
    const uint sub = a.rule == U8 ? uint(subs.at[16 * (2 * g + bias) + o]) : uint(subs.at[16 * g + o]) >> 4 * bias & 15u;
    const float x = mul_(d, float(int(sub)));
    return bias != 0 ? negated(x) : x;
}

void pack_scales(uint64_t from, int64_t panel, int unit, int lane)
{
    const int parts = a.biased != 0 ? 2 : 1;
    for (int k = unit * 64; k < unit * 64 + 64 && k < a.k; k += a.group) {
        const uint64_t block = from + uint64_t(int64_t(k / a.block) * a.block_bytes);
        const int64_t first = (panel * int64_t(a.k / a.group) + int64_t(k / a.group)) * int64_t(16 * parts);
        for (int i = lane; i < 16 * parts; i += 32) {
            const int o = i / (2 * parts) + i / parts % 2 * 8, bias = i % parts;
            const uint64_t pair = a.scales + uint64_t((first + int64_t(i)) * 2l);
            if (a.rule == PLAIN) {
                Halves(pair).at[0] = Halves(block).at[bias * 16 + o];
            } else if (a.rule == E8M0) {
                const uint e = uint(Bytes(block).at[o]);
                Halves(pair).at[0] = uint16_t((e < 2u ? 0x00200000u << e : e - 1u << 23) >> 16);
            } else {
                Floats(a.scales + uint64_t((first + int64_t(i)) * 4l)).at[0] =
                    scale_of(from, block, k % a.block / a.group, o, bias, parts);
            }
        }
    }
}

#endif

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
    pack_scales(from, panel, unit, lane);
}
