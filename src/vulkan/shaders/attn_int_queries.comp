// Codes of the queries of tiles of many (attn_int_many.glsl), once for all segments: eight queries per workgroup. a.k has
// for each tile the high limbs of a.tile queries (code >> 7), the low limbs (7 bits), then the factors of the sums; four
// dims are in the order 0, 2, 1, 3, as in keys. grid (tiles, tile / 8)
#version 460
#include "math.glsl"
#include "memory.glsl"
#include "attn.glsl"
layout(local_size_x = 256) in;

const int EIGHT = 8, LANES = 32, MAX_DIM = 512;
const float QUERY_CODE = 2047.0;
shared float query[EIGHT * MAX_DIM];
shared uint query_top[EIGHT];

void main()
{
    const int n = int(gl_LocalInvocationID.x) / LANES, lane = int(gl_LocalInvocationID.x) % LANES;
    const int of_tile = int(gl_WorkGroupID.y) * EIGHT + n, dim = a.kv.head_dim, block = dim & -dim;
    const tile_of_queries t = Tiles(a.tiles).at[gl_WorkGroupID.x];
    if (lane == 0) query_top[n] = 0u;
    for (int d = lane; d < dim; d += LANES) {
        float x = 0.0;
        if (of_tile < t.n_q) x = held(Floats(query_at(t, of_tile, dim)).at[d], f_(0xef800000u), f_(0x6f800000u)); // 2^96
        query[n * MAX_DIM + d] = x;
    }
    barrier();
    for (int h = 1; h < block; h *= 2) {
        for (int i = lane; i < dim / 2; i += LANES) {
            const int at = n * MAX_DIM + i / h * 2 * h + i % h;
            const float x = query[at], y = query[at + h];
            query[at] = add_(x, y), query[at + h] = sub_(x, y);
        }
        barrier();
    }
    uint top = 0u;
    for (int d = lane; d < dim; d += LANES) top = max(top, u_(query[n * MAX_DIM + d]) & 0x7fffffffu);
    atomicMax(query_top[n], top);
    barrier();
    top = query_top[n];
    const bool none = top < 0x0d800000u; // 2^-100
    const float factor = none ? 0.0 : div_(QUERY_CODE, f_(top));
    const uint64_t to = a.k + uint64_t(gl_WorkGroupID.x) * uint64_t(a.tile * (2 * dim + 4));
    Words high = Words(to + uint64_t(of_tile * dim)), low = Words(to + uint64_t((a.tile + of_tile) * dim));
    for (int d = lane * 4; d < dim; d += LANES * 4) {
        uint h = 0u, l = 0u;
        [[unroll]] for (int i = 0; i < 4; i++) {
            const int code = int(roundEven(held(mul_(query[n * MAX_DIM + d + i], factor), -QUERY_CODE, QUERY_CODE)));
            const int shift = (i % 2 * 2 + i / 2) * 8;
            h |= uint(code >> 7 & 255) << shift, l |= uint(code & 127) << shift;
        }
        high.at[d / 4] = h, low.at[d / 4] = l;
    }
    if (lane == 0)
        Floats(to + uint64_t(2 * a.tile * dim)).at[of_tile] = div_(none ? 0.0 : div_(f_(top), QUERY_CODE), float(block));
}
