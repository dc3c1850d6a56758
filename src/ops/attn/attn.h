/* Attention of a batch of rows over paged keys and values.
 *
 * Row r has n_heads queries of head_dim elements. The visible keys are those of the row's view at absolute
 * positions [lo, end), lo < end. The caller chooses the range (all keys before the row, a window, a block whose
 * rows are visible to each other); the row's own position does not matter.
 * Query head h reads KV head h / (n_heads / n_kv_heads). Scale 1.
 *
 * Contract (docs/NUMERICS.md 5): segments of 256 keys aligned to position 0; score by one fma
 * chain per 256 dims in ascending d from +0, chains added in ascending order; exp(s) split
 * into 2^n * p by ek_exp_split, a function of s alone; m = max n over the segment's visible
 * keys; e_j = p * 2^(n-m), +0 when n - m < -125; l = sum of e_j in 16 lanes, lane = j mod 16,
 * ascending j, lanes added 8, 4, 2, 1 apart; o[d] = fma(e_j, v_j[d], o[d]) over ascending j
 * from +0. Segments are leaves of T in ascending order, combined by the larger m with
 * power-of-two factors (0 below 2^-125). Result (o + 0) / l: the zero turns -0 into +0. Keys and values
 * are decoded element by element before the fma, except 16-bit codes: chains run over the codes, the
 * sum of a score's chains is multiplied by the key's scale, and e_j by the value's (e_j s_j enters the
 * fma, e_j enters l). Keys outside [lo, end) and unwritten slots enter no addition.
 * Tiles over rows, heads and segments, threads and ISA never change a bit.
 * Formula: transformers, modeling_gemma4.py, eager attention, scaling 1. Formats in integers: ops/attn/attn_int.h. */
#ifndef EK_OPS_ATTN_H
#define EK_OPS_ATTN_H

#include "base/machine/pool.h"
#include "ops/kv/kv.h"

typedef struct ek_attn_shape {
    ek_layer_kind kind; /* for messages */
    ek_kv_format k_format, v_format;
    int n_heads, n_kv_heads, head_dim;
    int n_start; /* positions [0, n_start) are in ek_kv_start_format of the two; a multiple of EK_SEGMENT */
} ek_attn_shape;

typedef struct ek_attn ek_attn; /* kernels of one (shape, ISA), chosen at load */

/* Plans attention for shape; the caller frees *out. EINVAL if n_heads is not a multiple of n_kv_heads, or n_start not a
 * multiple of EK_SEGMENT. EUNSUPPORTED names kind, format and head_dim if there is no kernel, because there is no
 * fallback. */
ek_err ek_attn_plan(ek_attn **out, unsigned cpu, const ek_attn_shape *shape);
void ek_attn_free(ek_attn *a);

/* Bytes of scratch for at most max_rows rows on n_threads threads, with visible keys below position max_keys. */
size_t ek_attn_scratch_bytes(const ek_attn *a, int max_rows, int max_keys, int n_threads);

/* Stores one token's keys and values (n_kv_heads x head_dim each, f32) at pos.
 * The position must have a page. bf16: round to nearest even. 8 bits: per group of dims, symmetric,
 * s = max |x| / 127 rounded up to f16, c = rne(x / s). Fewer bits: per group, MLX's affine rule,
 * scale and bias rounded to f16 before the codes are taken. Any thread may store any token. */
void ek_attn_store(const ek_attn *a, const ek_kv_view *view, int pos, const float *k, const float *v);

typedef struct ek_attn_row {
    int view;    /* index into views */
    int lo, end; /* visible positions: [lo, end), all written */
} ek_attn_row;

/* o[r] (n_heads x head_dim) for every row; q likewise. Rows of one view should be adjacent and in
 * order of their visible ranges (speed only). scratch is 64-byte aligned. */
void ek_attn_run(const ek_attn *a, ek_pool *pool, const ek_kv_view *views, const ek_attn_row *rows, int n_rows,
                 const float *q, ptrdiff_t ldq, float *o, ptrdiff_t ldo, void *scratch);

#endif
