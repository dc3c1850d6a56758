// Products of a step of attn_int_many.glsl, whose constants and shared memory it uses: sums of limbs, high by high, high by
// low, low by low; of bytes high by them, none, low by them.
#ifdef COOPERATIVE
#include "matrices.glsl"
#if EK_SOFT
uvec4 left_quad(int i)
{
    return memory[i];
}

uvec4 right_quad(int i)
{
    return memory[i];
}
#else
#define STEP_BARRIER subgroupBarrier()
#endif

// A subgroup has 16 columns, which it multiplies with two blocks of 16 rows.
#define EACH_BLOCK(F)      F(0) F(1)
#define EACH_ELEMENT(F, i) F(i, 0) F(i, 1) F(i, 2) F(i, 3) F(i, 4) F(i, 5) F(i, 6) F(i, 7)
#define DECLARE(i)         SUMS high##i, middle##i, low##i;
EACH_BLOCK(DECLARE)
uvec2 numbers; // of the thread's elements of a matrix: 16 row + column, a byte each

// A barrier lies between these two.
void write_numbers()
{
    const uint at = gl_LocalInvocationIndex;
    if (at < 64u) memory[at] = 4u * at + uvec4(0u, 1u, 2u, 3u);
}

void find_elements()
{
    SUMS number;
    NUMBERS(number, memory, 4);
    numbers = uvec2(number[0] | number[1] << 8 | number[2] << 16 | number[3] << 24,
                    number[4] | number[5] << 8 | number[6] << 16 | number[7] << 24);
}

int number_at(int c)
{
    return int(numbers[c / 4] >> c % 4 * 8 & 255u);
}

void begin_sums()
{
#define BEGIN(i) high##i = ZERO_SUMS, middle##i = ZERO_SUMS, low##i = ZERO_SUMS;
    EACH_BLOCK(BEGIN)
}

void multiply(int step, bool limbs)
{
    const int column = SUBGROUP * 16 * PITCH, left = LEFT_AT + step * STEP_QUADS;
    LEFT h0, h1, l0, l1;
    RIGHT r, s;
    LOAD_LEFT(h0, memory, left, ROW);
    LOAD_LEFT(h1, memory, left + 16 * ROW, ROW);
    LOAD_LEFT(l0, memory, left + LOW_LEFT, ROW);
    LOAD_LEFT(l1, memory, left + LOW_LEFT + 16 * ROW, ROW);
    LOAD_RIGHT(r, memory, column, PITCH);
#define ADD_LIMBS(i)                           \
    high##i = ADD_PRODUCT(h##i, r, high##i);     \
    middle##i = ADD_PRODUCT(l##i, r, middle##i); \
    middle##i = ADD_PRODUCT(h##i, s, middle##i); \
    low##i = ADD_PRODUCT(l##i, s, low##i);
#define ADD_BYTES(i)                         \
    high##i = ADD_PRODUCT(h##i, r, high##i); \
    low##i = ADD_PRODUCT(l##i, r, low##i);
    if (limbs) {
        LOAD_RIGHT(s, memory, column + LOW, PITCH);
        EACH_BLOCK(ADD_LIMBS)
    } else {
        EACH_BLOCK(ADD_BYTES)
    }
}

void put_scores(bool limbs)
{
#define SCORE_OF_LIMBS(i, c) sum[c] = sum_of_limbs(high##i[c], middle##i[c], low##i[c]);
#define SCORE_OF_BYTES(i, c) sum[c] = sum_of_bytes(high##i[c], low##i[c]);
#define PUT_SCORES(i)                   \
    if (limbs) {                        \
        EACH_ELEMENT(SCORE_OF_LIMBS, i) \
    } else {                            \
        EACH_ELEMENT(SCORE_OF_BYTES, i) \
    }                                   \
    STORE_SUMS(sum, memory, i * 16 * SCORES + SUBGROUP * 4, SCORES);
    SUMS sum;
    EACH_BLOCK(PUT_SCORES)
}

// Dims [d0, d0 + 256) of the leaves.
void put_values(Floats leaf, int d0, int dim, bool limbs)
{
#define PUT_VALUE(i, c, value)         \
    row = i * 16 + number_at(c) / 16; \
    leaf.at[row * dim + d + number_at(c) % 16] = mul_(value, unit[row]);
#define VALUE_OF_LIMBS(i, c) PUT_VALUE(i, c, value_of_limbs(high##i[c], middle##i[c], low##i[c]))
#define VALUE_OF_BYTES(i, c) PUT_VALUE(i, c, float(sum_of_bytes(high##i[c], low##i[c])))
    const int d = d0 + SUBGROUP * 16;
    int row;
    if (d >= dim) return;
#define PUT_VALUES(i)                   \
    if (limbs) {                        \
        EACH_ELEMENT(VALUE_OF_LIMBS, i) \
    } else {                            \
        EACH_ELEMENT(VALUE_OF_BYTES, i) \
    }
    EACH_BLOCK(PUT_VALUES)
}
#else
#define EACH_ROW(F) F(0) F(1) F(2) F(3)
#define DECLARE(i)  ivec4 high##i, middle##i, low##i; // of columns 64 apart
EACH_ROW(DECLARE)

void write_numbers()
{
}

void find_elements()
{
}

void begin_sums()
{
#define BEGIN(i) high##i = middle##i = low##i = ivec4(0);
    EACH_ROW(BEGIN)
}

int first_row()
{
    return int(gl_LocalInvocationIndex) / 64 * 4;
}

int first_column()
{
    return int(gl_LocalInvocationIndex) % 64;
}

int dot16(uvec4 x, uvec4 y)
{
    return dot4(x.x, y.x) + dot4(x.y, y.y) + dot4(x.z, y.z) + dot4(x.w, y.w);
}

ivec4 dots(uvec4 x, uvec4 a, uvec4 b, uvec4 c, uvec4 d)
{
    return ivec4(dot16(x, a), dot16(x, b), dot16(x, c), dot16(x, d));
}

void multiply(int step, bool limbs)
{
    const int left = LEFT_AT + first_row() * ROW + step * STEP_QUADS;
    for (int quad = 0; quad < STEP_QUADS; quad++) {
        const int at = first_column() * PITCH + quad, apart = 64 * PITCH;
        const uvec4 r0 = memory[at], r1 = memory[at + apart], r2 = memory[at + 2 * apart], r3 = memory[at + 3 * apart];
        uvec4 s0, s1, s2, s3, h, l;
        if (limbs) {
            s0 = memory[at + LOW], s1 = memory[at + LOW + apart];
            s2 = memory[at + LOW + 2 * apart], s3 = memory[at + LOW + 3 * apart];
        }
#define ADD_PRODUCTS(i)                                                                      \
    h = memory[left + i * ROW + quad], l = memory[left + i * ROW + quad + LOW_LEFT];         \
    high##i += dots(h, r0, r1, r2, r3);                                                      \
    if (limbs) middle##i += dots(l, r0, r1, r2, r3) + dots(h, s0, s1, s2, s3), low##i += dots(l, s0, s1, s2, s3); \
    else low##i += dots(l, r0, r1, r2, r3);
        EACH_ROW(ADD_PRODUCTS)
    }
}

#define EACH_ELEMENT(F, i) F(i, x, 0) F(i, y, 64) F(i, z, 128) F(i, w, 192)

void put_scores(bool limbs)
{
    const int column = first_column(), to = first_row() * SCORES;
#define PUT_SCORE(i, c, apart)                                                                         \
    memory[to + i * SCORES + (column + apart) / 4][column % 4] =                                       \
        uint(limbs ? sum_of_limbs(high##i.c, middle##i.c, low##i.c) : sum_of_bytes(high##i.c, low##i.c));
#define PUT_SCORES(i) EACH_ELEMENT(PUT_SCORE, i)
    EACH_ROW(PUT_SCORES)
}

void put_values(Floats leaf, int d0, int dim, bool limbs)
{
    const int d = d0 + first_column(), row = first_row();
#define PUT_VALUE(i, c, apart)                                                                          \
    if (d + apart < dim)                                                                                \
        leaf.at[(row + i) * dim + d + apart] =                                                          \
            mul_(limbs ? value_of_limbs(high##i.c, middle##i.c, low##i.c) : float(sum_of_bytes(high##i.c, low##i.c)), \
                 unit[row + i]);
#define PUT_VALUES(i) EACH_ELEMENT(PUT_VALUE, i)
    EACH_ROW(PUT_VALUES)
}
#endif

#ifndef STEP_BARRIER
#define STEP_BARRIER barrier()
#endif
