// Writes keys (z = 0) and values (z = 1) of a token and KV head into pages (ops/kv/kv.h). If there is a norm, they are
// normed and rotated first. grid (n_kv_heads, rows, 2)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int THREADS = 128;
#include "kv.glsl"
#include "head.glsl"
#include "rotate.glsl"
// Codes in groups with binary16 scales, and biases (ops/kv/kv_store.c): a thread per group. The dims of a group have
// four classes, by their number mod 4. If the first dim of a class is NaN, the whole class does not count.

float half_held(float x)
{
    return held(x, -65504.0, 65504.0);
}

// The smallest binary16 >= x >= 0.
uint half_up(float x)
{
    const uint h = float_to_half(held(x, 0.0, 65504.0));
    return less_(half_to_float(h), x) && h < 0x7bffu ? h + 1u : h;
}

shared uint8_t head_code[MAX_HEAD + 8]; // zeros after the head's dims

int whole_code(float x, float least, float most)
{
    return int(roundEven(held(x, least, most)));
}

void symmetric_group(int first, int n, out uint scale)
{
    float top = 0.0;
    for (int d = first; d < first + n; d++)
        if (less_(top, magnitude(head_at[d]))) top = magnitude(head_at[d]);
    scale = half_up(div_(top, 127.0));
    const float s = half_to_float(scale);
    for (int d = first; d < first + n; d++)
        head_code[d] = uint8_t((less_(0.0, s) ? whole_code(div_(head_at[d], s), -127.0, 127.0) : 0) & 255);
}

void affine_group(int first, int n, int bits, out uint scale, out uint bias)
{
    float least, most;
    for (int l = 0; l < 4; l++) {
        float low = head_at[first + l], high = low;
        for (int d = first + 4 + l; d < first + n; d += 4) {
            const float x = head_at[d];
            low = less_(x, low) ? x : low, high = less_(high, x) ? x : high;
        }
        least = l == 0 || less_(low, least) ? low : least;
        most = l == 0 || less_(most, high) ? high : most;
    }
    const bool below = less_(magnitude(most), magnitude(least));
    const float codes = float((1 << bits) - 1), edge = below ? least : most;
    float s = div_(sub_(most, least), codes);
    s = s > 1e-7 ? s : 1e-7;
    s = below ? s : negated(s);
    const float steps = roundEven(div_(edge, s));
    scale = float_to_half(half_held(steps != 0.0 ? div_(edge, steps) : s));
    bias = float_to_half(half_held(steps != 0.0 ? edge : 0.0));
    const float sf = half_to_float(scale), bf = half_to_float(bias);
    for (int d = first; d < first + n; d++)
        head_code[d] = uint8_t(whole_code(div_(sub_(head_at[d], bf), sf), 0.0, codes));
}

// Bits [from, from + plane) of the codes, in their plane at `to`.
void put_plane(uint64_t to, int plane, int from, int dim, int slot, bool keys)
{
    const int bytes = keys ? (dim * plane + 7) / 8 : v_plane_row(plane, dim), mask = (1 << plane) - 1;
    const bool halves = plane == 4 && !keys; // the low nibbles hold the first 16 of 32 dims
    for (int b = int(gl_LocalInvocationID.x); b < bytes; b += THREADS) {
        const int d = halves ? b / 16 * 32 + b % 16 : b * 8 / plane;
        int byte = 0;
        for (int i = 0; i < 8 / plane; i++) {
            const int at = d + i * (halves ? 16 : 1);
            byte |= ((at < dim ? int(head_code[at]) : 0) >> from & mask) << i * plane;
        }
        Bytes(to).at[keys ? b * PAGE + slot : slot * bytes + b] = uint8_t(byte);
    }
}

// Stores one token's part at `at`, in a format of groups.
void store_groups(uint64_t at, int format, int bits, int shift, int dim, int slot, bool keys)
{
    const int thread = int(gl_LocalInvocationID.x), groups = groups_of(dim, shift);
    const uint64_t scales = at + uint64_t(keys ? k_code_bytes(bits, dim) : v_code_bytes(bits, dim));
    for (int g = thread; g < groups; g += THREADS) {
        const int first = g << shift, n = min(dim - first, 1 << shift);
        const int place = keys ? g * PAGE + slot : slot * groups + g;
        uint scale, bias = 0u;
        if (format == Q8) symmetric_group(first, n, scale);
        else affine_group(first, n, bits, scale, bias);
        Halves(scales).at[place] = uint16_t(scale);
        if (format != Q8) Halves(scales).at[groups * PAGE + place] = uint16_t(bias);
    }
    barrier();
    if (format == Q8) {
        for (int d = thread; d < dim; d += THREADS) Bytes(at).at[keys ? d * PAGE + slot : slot * dim + d] = head_code[d];
        return;
    }
    const int low = bits >= 4 ? 4 : 2;
    put_plane(at, low, 0, dim, slot, keys);
    if (bits > low)
        put_plane(at + uint64_t(keys ? k_plane(low, dim) : PAGE * v_plane_row(low, dim)), bits - low, low, dim, slot, keys);
}
layout(local_size_x = 128) in;

layout(set = 0, binding = 0, scalar) uniform Args {
    kv_pages kv, start;
    int64_t n_start;
    uint64_t place;
    uint64_t k, v;
    int64_t ldk, ldv;
    head_rule head;
    int rows;
} a;

void store_rotated(uint64_t at, int bits, int dim, int slot, bool keys)
{
    const int thread = int(gl_LocalInvocationID.x);
    const float most = bits == 16 ? 2047.0 : 127.0;
    encode_head(dim);
    const float factor = code_factor(most);
    for (int d = thread; d < dim; d += THREADS) {
        const int code = code_of(head_at[d], factor, most);
        const int place = keys ? rotated_place(bits, d, PAGE, slot) : rotated_place(bits, slot, dim, d);
        if (bits == 16) Halves(at).at[place] = uint16_t(code & 0xffff);
        else Bytes(at).at[place] = uint8_t(code & 255);
    }
    if (thread == 0) Floats(at + uint64_t(bits / 8 * dim * PAGE)).at[slot] = code_scale(most);
}

void store_tokens_codes(uint64_t at, int dim, int slot, bool keys)
{
    const int thread = int(gl_LocalInvocationID.x);
    if (thread == 0) head_top = 0u;
    barrier();
    for (int d = thread; d < dim; d += THREADS)
        if (!is_nan(head_at[d])) atomicMax(head_top, u_(head_at[d]) & 0x7fffffffu);
    barrier();
    const float s = div_(f_(head_top), 32767.0);
    if (thread == 0) Floats(at + uint64_t(2 * dim * PAGE)).at[slot] = s;
    for (int d = thread; d < dim; d += THREADS) {
        const int code = less_(0.0, s) ? whole_code(div_(head_at[d], s), -32767.0, 32767.0) : 0;
        Halves(at).at[keys ? d * PAGE + slot : slot * dim + d] = uint16_t(code & 0xffff);
    }
}

void store_floats(uint64_t at, int format, int dim, int slot, bool keys)
{
    for (int d = int(gl_LocalInvocationID.x); d < dim; d += THREADS) {
        const int place = keys ? d * PAGE + slot : slot * dim + d;
        const float x = head_at[d];
        if (format == F32) Words(at).at[place] = u_(x);
        else Halves(at).at[place] = uint16_t((format == F16 ? float_to_half(half_held(x)) : float_to_bf16(x)) & 0xffffu);
    }
}

void main()
{
    const int64_t row = int64_t(gl_WorkGroupID.y);
    Ints place = Ints(a.place + uint64_t(row * 8l)); // ek_cuda_place
    const int view = place.at[0], pos = place.at[1], slot = pos % PAGE, number = int(gl_WorkGroupID.x);
    kv_pages kv = a.kv;
    if (int64_t(pos / PAGE) < a.n_start) kv = a.start;
    const bool keys = gl_WorkGroupID.z == 0u;
    const int dim = kv.head_dim, format = keys ? kv.k_format : kv.v_format, bits = keys ? kv.k_bits : kv.v_bits;
    const uint64_t at = page_block(kv, view, pos / PAGE) + uint64_t(int64_t(number) * (kv.k_bytes + kv.v_bytes)) +
                        uint64_t(keys ? 0l : kv.k_bytes);
    Floats from = Floats((keys ? a.k + uint64_t(row * a.ldk * 4l) : a.v + uint64_t(row * a.ldv * 4l)) +
                         uint64_t(number * dim * 4));
    load_head(from, dim);
    barrier();
    if (a.head.norm != 0ul) {
        head_rule rule = a.head;
        if (!keys) rule.norm = rule.cos = 0ul;
        finish_head(rule, row, dim);
    }
    if (format == ROTATED) store_rotated(at, bits, dim, slot, keys);
    else if (format == I16) store_tokens_codes(at, dim, slot, keys);
    else if (format >= Q8) store_groups(at, format, bits, keys ? kv.k_shift : kv.v_shift, dim, slot, keys);
    else store_floats(at, format, dim, slot, keys);
}
