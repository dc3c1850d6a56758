/* Attention in integers: what the formats of the rule EK_KV_ROTATED define (docs/numerics/attention.md). Keys in such a
 * format make the scores integer sums, values in one the weighted sums; either side of a pair K:V alone does it.
 *
 * Rotation. R is the Walsh-Hadamard transform of each block of n = dim & -dim dims (the whole head for a power of two),
 * without its factor: for h = 1, 2, 4, … below n, elements i and i + h of each run of 2h become x + y and x - y, in
 * f32. R R = n, so q k = (R q)(R k) / n, and a sum of R v is turned back by R / n. It spreads an outlier channel over
 * its block: the codes then lose the same for every distribution of channels. n is a power of two, and dividing by it
 * is exact.
 *
 * Codes of x, dim elements, of at most C: y = R x with each element held at ±2^96 first (NaN: -2^96), t = max |y|.
 * t < 2^-100: all codes and the scale are 0. Else the scale is t / C and a code is rne(y (C / t)) held at ±C. A
 * token's keys and values, and a query, are coded alone: a code depends on its own token and head only.
 *   keys and values of i12   C = 2047, two bytes each
 *   keys and values of i8    C = 127
 *   queries                  C = 2047, beside keys of either
 *
 * Scores: S = sum over the head's dims of (code of q)(code of k), an integer; s = (f32(S) * scale of k) * (scale of q /
 * n). |S| <= 2047 2047 512 = 2,145,387,008 < 2^31: 32 bits hold it, and any partial sum.
 *
 * Weights: e_j and m as ever (ops/attn/attn.h). l = 2^-21 f32(sum of rne(2^21 e_j)): e_j < 1.4143, so that 256 terms
 * stay below 2^30; the order is free.
 *
 * Values: w_j = e_j * scale of v_j, W = the largest of the segment's visible keys. W < 2^-100: o = +0. Else 2^E <= W <
 * 2^(E+1), c_j = rne(w_j 2^(13-E)) held at 16,383, A[d] = sum of c_j (code of v_j[d]), an integer below 2^34, and
 * o[d] = f32(A[d]) 2^(E-13): one rounding, from the exact sum. Per page of 64 keys 16383 2047 64 = 2,146,304,064, and
 * 65,535 more, are below 2^31: kernels of 32 bits carry A >> 16 out after each page and keep the low 16 bits;
 * fma(f32(H), 65536, f32(L)) of A = 65536 H + L, |H| and |L| up to 2^24, is f32(A).
 *
 * Only codes of at most C and finite scales of at least 0 are ever written. For other bytes too the result is defined,
 * and the same on every instruction set and device:
 *   any scale of a key         s is the product, whatever it is; a NaN counts as in ek_exp_split (ops/math.h)
 *   a scale of a value         w_j NaN: it does not enter W, and c_j = 16,383; W infinite: E = 128
 *   a code -128 of i8          is read as it is: all sums above stay below 2^31
 * but not for these, which only a part of the kernels reads alike:
 *   a scale of a value below 0 w_j counts as 0, on every CPU; CUDA kernels take 14 bits of another code
 *   a code of i12 beyond 2047  in kernels of 16-bit products S is modulo 2^32, and a page's products are added modulo
 *                              2^32 to the low 16 bits that the one before it left; kernels of limbs (AMX, CUDA) read
 *                              14 or 15 bits, and halved products (Zen 4) add within 16
 *
 * T joins segments as ever. With values in such a format the result is R((o + 0) / l) / n.
 * A hidden key has the code 0, whatever its slot holds: its product is 0 in every kernel. Codes of 12 and 14 bits are
 * what three products of 8-bit limbs multiply exactly (docs/numerics/attention.md), and one instruction of 16 bits. */
#ifndef EK_OPS_ATTN_INT_H
#define EK_OPS_ATTN_INT_H

#include "ops/attn/attn_kernels.h"
#include "ops/kv/kv_codec.h"

enum {
    EK_QUERY_CODE = 2047, /* the largest code of a query */
    EK_WEIGHT_CODE = 16383,
    EK_WEIGHT_BITS = 14,
    EK_SUM_BITS = 21, /* of e_j in the sum l */
};

/* Codes of the weights of query i, for its visible keys, and l; returns 2^(E-13), 0 if there are none. */
float ek_attn_int_weigh(ek_kv_format f, ek_attn_segment *segment, int i, int *code);

#endif
