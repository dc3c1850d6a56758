// A row of up to 2,048 PARTS elements by a workgroup of 512 threads (ops/rows/rows.h): a thread has four neighbours of
// each part of 2,048 elements. A workgroup alone on its multiprocessor waits for every line of instructions, so the code
// is short: shaders of one part have no loops over parts, and each thread computes the numbers that all need.
const int ROW_THREADS = 512, PART = 2048, ROW_BLOCKS = 32;
#ifndef PARTS
#define PARTS 4
#endif
#if PARTS == 1
#define EACH_PART [[unroll]] for (int k = 0; k < 1; k++)
#else
#define EACH_PART [[dont_unroll]] for (int k = 0; k * PART < n; k++)
#endif
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Fours { vec4 at[]; };
shared float part_at[PART];
shared vec4 lane_sum[ROW_BLOCKS * 4], block_sum[ROW_BLOCKS / 4];

struct row_parts {
    vec4 p[PARTS];
};

// The thread's first element in a part.
int first_of(int part)
{
    return part * PART + int(gl_LocalInvocationIndex) * 4;
}

vec4 four_at(uint64_t base, int at, int n)
{
    if (at + 4 <= n && (uint(base) & 15u) == 0u) return Fours(base).at[at / 4];
    vec4 x = vec4(0.0);
    if (at < n) x.x = Floats(base).at[at];
    if (at + 1 < n) x.y = Floats(base).at[at + 1];
    if (at + 2 < n) x.z = Floats(base).at[at + 2];
    if (at + 3 < n) x.w = Floats(base).at[at + 3];
    return x;
}

void put_four(uint64_t base, int at, int n, vec4 x)
{
    if (at + 4 <= n && (uint(base) & 15u) == 0u) {
        Fours(base).at[at / 4] = x;
        return;
    }
    if (at < n) Floats(base).at[at] = x.x;
    if (at + 1 < n) Floats(base).at[at + 1] = x.y;
    if (at + 2 < n) Floats(base).at[at + 2] = x.z;
    if (at + 3 < n) Floats(base).at[at + 3] = x.w;
}

vec4 add4(vec4 a, vec4 b)
{
    return vec4(add_(a.x, b.x), add_(a.y, b.y), add_(a.z, b.z), add_(a.w, b.w));
}

vec4 mul4(vec4 a, vec4 b)
{
    return vec4(mul_(a.x, b.x), mul_(a.y, b.y), mul_(a.z, b.z), mul_(a.w, b.w));
}

row_parts load_row(uint64_t base, int n)
{
    row_parts r;
    EACH_PART r.p[k] = four_at(base, first_of(k), n);
    return r;
}

void store_row(uint64_t base, int n, row_parts r)
{
    EACH_PART put_four(base, first_of(k), n, r.p[k]);
}

// w (x f)
row_parts normed(row_parts x, float f, row_parts w, int n)
{
    EACH_PART x.p[k] = mul4(mul4(x.p[k], vec4(f)), w.p[k]);
    return x;
}

row_parts scaled(row_parts x, float f, int n)
{
    EACH_PART x.p[k] = mul4(x.p[k], vec4(f));
    return x;
}

row_parts sum_of_rows(row_parts a, row_parts b, int n)
{
    EACH_PART a.p[k] = add4(a.p[k], b.p[k]);
    return a;
}

// fma(w, x, sum)
row_parts weighted(float w, row_parts x, row_parts sum, int n)
{
    EACH_PART
        for (int i = 0; i < 4; i++) sum.p[k][i] = fma_(w, x.p[k][i], sum.p[k][i]);
    return sum;
}

#define SQUARES_OF part_at
#include "squares.glsl"

// Adds lanes' sums of a part, of which the thread has `mine`; elements after the row do not count.
void add_part(int part, vec4 mine, int n)
{
    const int thread = int(gl_LocalInvocationIndex), at = first_of(part), lane = part * (PART / 16) + thread;
    part_at[thread * 4] = at < n ? mine.x : 0.0, part_at[thread * 4 + 1] = at + 1 < n ? mine.y : 0.0;
    part_at[thread * 4 + 2] = at + 2 < n ? mine.z : 0.0, part_at[thread * 4 + 3] = at + 3 < n ? mine.w : 0.0;
    barrier();
    if (thread < PART / 16 && lane / 16 * 256 < n)
        lane_sum[lane / 4][lane % 4] = squares_from(thread / 16 * 256 + thread % 16);
    barrier();
}

// T over eight blocks from number `at` on. Behind the last block lie zeros, which change no sum of squares.
float sum_of_blocks(int at)
{
    const vec4 a = block_sum[at / 4], b = block_sum[at / 4 + 1];
    return add_(add_(add_(a.x, a.y), add_(a.z, a.w)), add_(add_(b.x, b.y), add_(b.z, b.w)));
}

// 1 / root mean square. A barrier lies between the last reads and what the next call writes.
float factor_of(row_parts v, int n, float eps)
{
    const int thread = int(gl_LocalInvocationIndex), blocks = (n + 255) / 256;
    EACH_PART add_part(k, v.p[k], n);
    if (thread < ROW_BLOCKS) { // 16 lanes, 8, 4, 2 and 1 apart
        const vec4 of_4 = add4(add4(lane_sum[thread * 4], lane_sum[thread * 4 + 2]),
                               add4(lane_sum[thread * 4 + 1], lane_sum[thread * 4 + 3]));
        block_sum[thread / 4][thread % 4] = thread < blocks ? add_(add_(of_4.x, of_4.z), add_(of_4.y, of_4.w)) : 0.0;
    }
    barrier();
    float sum = sum_of_blocks(0);
#if PARTS > 1
    if (blocks > 8) sum = add_(sum, sum_of_blocks(8));
    if (blocks > 16) sum = add_(sum, add_(sum_of_blocks(16), sum_of_blocks(24)));
#endif
    return div_(1.0, sqrt_(add_(div_(sum, float(n)), eps)));
}
