/* A part of a panel for the kernels of linear_q_256.h, and its decoded codes. WIDE_Q8 is defined before. */
#ifndef EK_OPS_X86_LINEAR_Q_256_UNIT_H
#define EK_OPS_X86_LINEAR_Q_256_UNIT_H

#include <string.h>

#include "ops/x86/vec_avx2.h"
#include "ops/linear/x86/linear_tile.h"
#include "ops/x86/tree_vec.h"

enum {
    HALF = 8,                         /* outputs of a vector */
    TILES = 8,                        /* tiles of rows that share a panel's bytes in the first-level cache */
    DECODE_TILES = 3,                 /* number of tiles from which on the codes are decoded once for all */
    UNIT = 512,                       /* inputs decoded at a time */
    UNIT_GROUPS = UNIT / 16,          /* maximum */
    UNIT_CODES = UNIT * EK_PANEL * 2, /* bytes of codes with two bytes per code */
    AHEAD = 8192,  /* prefetch distance of a tile of packed codes into the second-level cache, in bytes */
    AHEAD_1 = 4096 /* prefetch distance of one row into the first-level cache */
};

/* Decoded codes: bytes c + 8, c + 16 or c + 32; CODES_8 in the order of products(). For packed codes: Q4 is CODES_4, Q8
 * CODES_8. */
enum { CODES_4, CODES_8, CODES_5, CODES_6 };

/* Inputs [k, k + n) of a panel, within one K-block. */
typedef struct unit {
    const uint8_t *panel, *packed; /* the panel; its first group, or block */
    int k, n;
    const uint8_t *fetch;      /* the next needed bytes, `lines` of them per group of this unit */
    ptrdiff_t lines, from, to; /* the part of these lines that a tile fetches: [from, to) */
    const uint8_t *codes;      /* decoded, with scale and b' (centre) of group g at [g * EK_PANEL] */
    const float *scale, *centre;
} unit;

/* The place from which products() reads an A-group. */
typedef struct source {
    const uint8_t *codes; /* its first code, packed or decoded */
    ptrdiff_t k, low;     /* its h in a record; its l are `low` bytes later */
    ptrdiff_t one, of;    /* its ek_act_group in a record: for one limb, and for the matrix */
    ptrdiff_t in_unit;    /* inputs of the unit before it */
} source;

INLINE __m256i quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

INLINE const ek_act_group *group_at(const int8_t *row, ptrdiff_t at)
{
    return (const ek_act_group *)(const void *)(row + at);
}

/* Bytes of the codes of n inputs. */
INLINE ptrdiff_t code_stride(ptrdiff_t n, const int kind, const bool decoded)
{
    if (decoded) return n * EK_PANEL * (kind == CODES_8 && WIDE_Q8 ? 2 : 1);
    return n * EK_PANEL / (kind == CODES_8 ? 1 : 2);
}

/* Codes c + 8 of half a vector of Q4: of quad 0 or 1. */
INLINE __m256i nibbles(const uint8_t *both, const int second)
{
    __m256i codes = _mm256_load_si256((const __m256i *)(const void *)both);
    return _mm256_and_si256(second ? _mm256_srli_epi16(codes, 4) : codes, _mm256_set1_epi8(15));
}

#endif
