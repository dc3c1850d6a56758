// A row of up to MAX_ROW elements by a workgroup of 512 to 1,024 threads (ops/rows/rows.h; both specialised by
// vulkan/kernels.def): a thread has four neighbours of each part of as many elements. A workgroup alone on its
// multiprocessor waits for every line of instructions, so the code that runs is short and lies together: rows with
// anything unusual, such as numbers whose squares may be denormal, are begun again by code behind it (`care`). Each
// thread computes the numbers that all need.
layout(constant_id = 1) const int MAX_ROW = 8192;
layout(local_size_x_id = 0) in;
const int ROW_BLOCKS = 32; // the most there are
const int PART = 4 * int(gl_WorkGroupSize.x), PARTS = (MAX_ROW + PART - 1) / PART;
// Parts that shared memory holds beside each other, all or one.
const int HELD = MAX_ROW <= 5632 ? PARTS : 1;
// F for each part of a row of n elements. Parts are no array: one that a driver indexes by a variable lies in memory.
#define EACH_PART(F)                          \
    F(0)                                      \
    if (PARTS > 1 && PART < n) { F(1) }       \
    if (PARTS > 2 && 2 * PART < n) { F(2) }   \
    if (PARTS > 3 && 3 * PART < n) { F(3) }
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Fours { vec4 at[]; };
shared vec4 part_at[HELD * int(gl_WorkGroupSize.x)];
shared vec4 lane_sum[ROW_BLOCKS * 4], block_sum[ROW_BLOCKS / 4];
shared uint row_is_small; // 1: a square may be denormal

struct row_parts {
    vec4 p0, p1, p2, p3;
};

// The thread's first element in a part.
int first_of(int part)
{
    return part * PART + int(gl_LocalInvocationIndex) * 4;
}

// Whether rows are whole fours at addresses for them, with n elements each.
bool are_fours(uint64_t addresses, int64_t ld, int n)
{
    return ((uint(addresses) | uint(ld) << 2 | uint(n) << 2) & 15u) == 0u;
}

vec4 four_at(uint64_t base, int at, int n, bool care)
{
    vec4 x = vec4(0.0);
    if (!care) {
        if (at < n) x = Fours(base).at[at / 4];
        return x;
    }
    if (at < n) x.x = Floats(base).at[at];
    if (at + 1 < n) x.y = Floats(base).at[at + 1];
    if (at + 2 < n) x.z = Floats(base).at[at + 2];
    if (at + 3 < n) x.w = Floats(base).at[at + 3];
    return x;
}

void put_four(uint64_t base, int at, int n, vec4 x, bool care)
{
    if (!care) {
        if (at < n) Fours(base).at[at / 4] = x;
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

row_parts load_row(uint64_t base, int n, bool care)
{
    row_parts r;
#define LOAD_PART(k) r.p##k = four_at(base, first_of(k), n, care);
    EACH_PART(LOAD_PART)
    return r;
}

void store_row(uint64_t base, int n, row_parts r, bool care)
{
#define STORE_PART(k) put_four(base, first_of(k), n, r.p##k, care);
    EACH_PART(STORE_PART)
}

// w (x f)
row_parts normed(row_parts x, float f, row_parts w, int n)
{
#define NORM_PART(k) x.p##k = mul4(mul4(x.p##k, vec4(f)), w.p##k);
    EACH_PART(NORM_PART)
    return x;
}

row_parts scaled(row_parts x, float f, int n)
{
#define SCALE_PART(k) x.p##k = mul4(x.p##k, vec4(f));
    EACH_PART(SCALE_PART)
    return x;
}

row_parts sum_of_rows(row_parts a, row_parts b, int n)
{
#define SUM_PART(k) a.p##k = add4(a.p##k, b.p##k);
    EACH_PART(SUM_PART)
    return a;
}

// Below 0x3fffffff: one of them is not 0 and below 2^-63, so that its square, and the sum of what came so far, may be
// denormal.
uint smallest(vec4 x)
{
    const uint a = (u_(x.x) << 1) - 1u, b = (u_(x.y) << 1) - 1u, c = (u_(x.z) << 1) - 1u, d = (u_(x.w) << 1) - 1u;
    return min(min(a, b), min(c, d));
}

// The chain of squares of lane `lane` of what part_at holds: 16 elements, 16 apart; 0 where there is none changes nothing.
float squares_of(int lane, bool care)
{
    const int from = lane / 16 * 64 + lane % 16 / 4, i = lane % 4;
    float sum = 0.0, x;
#if !EK_SOFT
#define SQUARE(k) x = part_at[from + 4 * k][i], sum = normal_fma(x, x, sum);
    if (!care) {
        SQUARE(0) SQUARE(1) SQUARE(2) SQUARE(3) SQUARE(4) SQUARE(5) SQUARE(6) SQUARE(7)
        SQUARE(8) SQUARE(9) SQUARE(10) SQUARE(11) SQUARE(12) SQUARE(13) SQUARE(14) SQUARE(15)
        return sum;
    }
#endif
    for (int k = 0; k < 16; k++) x = part_at[from + 4 * k][i], sum = fma_(x, x, sum);
    return sum;
}

// Keeps a part, of which the thread has `mine`; elements after the row do not count.
void keep_part(int part, vec4 mine, int n, bool care)
{
    const int at = first_of(part);
    if (care) mine = vec4(at < n ? mine.x : 0.0, at + 1 < n ? mine.y : 0.0, at + 2 < n ? mine.z : 0.0,
                          at + 3 < n ? mine.w : 0.0);
    else if (smallest(mine) < 0x3fffffffu) row_is_small = 1u;
    part_at[part % HELD * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationIndex)] = mine;
}

// Sums of lanes of kept parts from number `part` on.
void add_lanes(int part, int n, bool care)
{
    const int thread = int(gl_LocalInvocationIndex), lane = part * (PART / 16) + thread;
    barrier();
    if (thread < HELD * PART / 16 && lane / 16 * 256 < n) lane_sum[lane / 4][lane % 4] = squares_of(thread, care);
    barrier();
}

// T over eight blocks from number `at` on. Behind the last block lie zeros, which change no sum of squares.
float sum_of_blocks(int at)
{
    const vec4 a = block_sum[at / 4], b = block_sum[at / 4 + 1];
    return add_(add_(add_(a.x, a.y), add_(a.z, a.w)), add_(add_(b.x, b.y), add_(b.z, b.w)));
}

// 1 / root mean square; `usual` becomes false where only care finds it. A barrier lies between the last reads and what
// the next call writes.
float factor_of(row_parts v, int n, float eps, bool care, inout bool usual)
{
    const int thread = int(gl_LocalInvocationIndex), blocks = (n + 255) / 256;
#define KEEP_PART(k) keep_part(k, v.p##k, n, care);
#define ADD_PART(k) KEEP_PART(k) add_lanes(k, n, care);
    if (HELD == PARTS) {
        EACH_PART(KEEP_PART)
        add_lanes(0, n, care);
    } else {
        EACH_PART(ADD_PART)
    }
    if (thread < ROW_BLOCKS) { // 16 lanes, 8, 4, 2 and 1 apart
        const vec4 of_4 = add4(add4(lane_sum[thread * 4], lane_sum[thread * 4 + 2]),
                               add4(lane_sum[thread * 4 + 1], lane_sum[thread * 4 + 3]));
        block_sum[thread / 4][thread % 4] = thread < blocks ? add_(add_(of_4.x, of_4.z), add_(of_4.y, of_4.w)) : 0.0;
    }
    barrier();
    float sum = sum_of_blocks(0);
    if (MAX_ROW > 2048) sum = add_(sum, sum_of_blocks(8));
    if (MAX_ROW > 4096) sum = add_(sum, add_(sum_of_blocks(16), sum_of_blocks(24)));
    if (care) return div_(1.0, sqrt_(add_(div_(sum, float(n)), eps)));
    const bool near = u_(sum) - 0x2b800000u < 0x2d000000u && u_(eps) < 0x58800000u; // 2^-40 to 2^50
    usual = usual && near && row_is_small == 0u;
    return near_quotient(1.0, near_root(add_(near_quotient(sum, float(n)), eps)));
}

// In front of the first factor_of, with a barrier behind.
void begin_row()
{
    if (gl_LocalInvocationIndex == 0u) row_is_small = 0u;
}
