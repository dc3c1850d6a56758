/* Attention over tensors: queries, keys, values and results in memory by strides, without pages. For towers of
 * images and audio, and for the operator library.
 *
 *   q, y  [entries][heads][rows][dim]
 *   k, v  [entries][kv_heads][keys][dim]
 *
 * Query head h reads KV head h / (heads / kv_heads). Row i of entry b sees the keys j in [0, keys) that fulfil
 * each given condition; without conditions it sees all keys:
 *
 *   causal     j <= i + keys - rows
 *   window     j > i + keys - rows - window
 *   key_start  key_start[b] + j >= 0
 *   mask       below
 *
 * Contract: Form A or, with `pairs`, Form B of ops/attn/attn_rows.h (docs/NUMERICS.md 5). Key j of entry b stands at
 * position key_start[b] + j: segments of 256 keys are aligned to position 0 and are the leaves of T. A sink is a leaf
 * before all segments: a weight without a value. A row without a visible key is zeros. Hidden keys enter no
 * addition. Neighbours in the batch, rows, heads, threads and ISA never change a bit of a row.
 * Formula: softmax(scale q k^T + mask) v (torch.nn.functional.scaled_dot_product_attention).
 * Cannot fail: the caller has checked shapes and types. */
#ifndef EK_OPS_ATTN_TENSORS_H
#define EK_OPS_ATTN_TENSORS_H

#include "ops/attn/attn_rows.h"
#include "ops/attn/attn_sched.h"
#include "ops/convert.h"

/* Element d of row i of head h of entry b is at data + b entry + h head + i row + d element, strides in bytes. */
typedef struct ek_attn_tensor {
    uint8_t *data; /* read-only, except in y */
    ek_dtype type; /* F32, F16, BF16 */
    ptrdiff_t entry, head, row, element;
} ek_attn_tensor;

/* Keys or values. */
typedef struct ek_attn_operand {
    ek_attn_tensor at;
    /* For operands that are not floats in memory: writes row j of a KV head of entry b as dim floats. Called on any
     * thread. NULL: floats at `at`. */
    void (*read)(const void *self, int64_t b, int64_t kv_head, int64_t j, float *to);
    const void *self;
    /* Keys in F32 in the order of the kernels, 16 by 16: element d of key j lies at data + b entry + h head + 4 (j / 16
     * 16 dim + 16 d + j % 16). Key starts are multiples of 16, and the last block is readable as a whole. */
    bool turned;
} ek_attn_operand;

/* Broadcasts to [entries][heads][rows][keys]; a stride of 0 repeats. */
typedef struct ek_attn_mask {
    const uint8_t *data; /* NULL: no mask */
    bool bytes; /* true: bytes, of which 0 hides the key; false: floats, which are added to the score and hide the key
                   at -1e30 or less */
    ek_dtype type; /* of the floats */
    ptrdiff_t entry, head, row, key;
} ek_attn_mask;

typedef struct ek_attn_tensors {
    const ek_attn_rows_ops *attn;
    const ek_convert_ops *convert;
    ek_attn_tensor q, y;
    ek_attn_operand k, v;
    int64_t entries, heads, kv_heads, rows, keys;
    int dim; /* 1 to EK_MAX_HEAD_DIM */
    float scale;
    bool pairs; /* Form B: q, k and v are BF16 and have no `read` */
    bool causal;
    int64_t window; /* 0: none */
    ek_attn_mask mask;
    const int64_t *key_start; /* entries, of magnitude below 2^40; NULL: zeros */
    const float *sinks;       /* heads; NULL: none */
} ek_attn_tensors;

/* Bytes of memory for a call on n_workers workers; 64-byte aligned. */
size_t ek_attn_tensors_bytes(const ek_attn_tensors *s, int n_workers);
/* Computes y, which must not overlap any input. */
void ek_attn_tensors_run(const ek_attn_tensors *s, const ek_attn_workers *workers, void *memory);

/* Whether key j is visible in a row of the mask; *add receives the term it adds to the score. */
bool ek_attn_mask_at(const ek_attn_mask *m, const uint8_t *row, int64_t j, float *add);
static inline const uint8_t *ek_attn_mask_row(const ek_attn_mask *m, int64_t b, int64_t head, int64_t row)
{
    return m->data + b * m->entry + head * m->head + row * m->row;
}

#endif
