// Writes keys (z = 0) and values (z = 1) of a token and KV head into pages (ops/kv/kv.h). If there is a norm, they are
// normed and rotated first. grid (n_kv_heads, rows, 2)
#version 460
#include "math.glsl"
#include "memory.glsl"
const int THREADS = 128;
#include "kv.glsl"
#include "head.glsl"
#include "rotate.glsl"
#include "store_codes.glsl"
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
