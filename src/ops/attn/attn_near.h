/* Near attention: a query sees its own key and the few before it, and each distance has a vector that enters the score.
 * Audio towers use it.
 *
 * For a query at position i of a clip, and each head: keys j = max(0, i - span + 1) .. i.
 *     s_j = q k_j + q rel[i - j]: 16 lanes; lane l takes elements l, l + 16, … by fma from +0, of k_j in ascending
 *           order, then of rel likewise; lanes are added 8, 4, 2, 1 apart; an absent element changes nothing
 *     s_j = cap tanh(s_j / cap), by ek_tanh and a true division
 *     e_j = exp(s_j - max s), by ek_exp; total = sum of e_j in ascending j from +0; w_j = e_j / total
 *     o[d] = sum of w_j v_j[d] by fma in ascending j from +0
 *
 * The result depends only on the rows of the clip up to i. Queries are independent of one another, so any order and any
 * division of them gives the same result. Formula: transformers, Gemma4AudioAttention; its blocks, padding and shifts
 * give exactly this. */
#ifndef EK_OPS_ATTN_NEAR_H
#define EK_OPS_ATTN_NEAR_H

#include <stddef.h>

enum { EK_NEAR_MAX_SPAN = 256 };

typedef struct ek_near {
    int heads, head_dim;
    int span; /* keys that a query sees, itself included: 1 to EK_NEAR_MAX_SPAN */
    float cap;
    const float *rel; /* span rows of heads x head_dim: row 0 for the query's own key */
} ek_near;

/* o, q: heads x head_dim floats, of position pos. k, v: row j of the clip at k + j ld, written for every j that the
 * query sees. o overlaps none of them. */
typedef void ek_near_fn(const ek_near *a, float *o, const float *q, const float *k, const float *v, ptrdiff_t ld,
                        int pos);

ek_near_fn ek_near_avx2, ek_near_avx512;  /* x86-64 */
ek_near_fn *ek_near_choose(unsigned cpu); /* EK_CPU_*; the bits are the same for all */

#endif
