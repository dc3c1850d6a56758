/* A planned attention (ops/attn/attn.h) and its source of work over pages. For attn.c and attn_pages.c. */
#ifndef EK_OPS_ATTN_PAGES_H
#define EK_OPS_ATTN_PAGES_H

#include "ops/attn/attn_sched.h"

/* The layout of keys and values in a page, and the kernels that read it. */
typedef struct ek_attn_codec {
    ek_kv_format k_format, v_format;
    ek_attn_fn *scores, *values;
    size_t k_bytes, v_bytes; /* of one KV head in a block */
} ek_attn_codec;

struct ek_attn {
    ek_attn_shape shape;
    ek_attn_codec start, rest; /* of positions [0, shape.n_start), and of later positions */
    ek_attn_fn *weights;
    ek_attn_combine_fn *combine;
    ek_attn_encode_fn *encode;
    ek_attn_rotate_fn *rotate_back;
    size_t limb_bytes; /* of ek_attn_segment.limbs */
    int ratio;         /* query heads per KV head */
    ptrdiff_t ldo;     /* head_dim rounded up to 16 */
};

static inline const ek_attn_codec *ek_attn_codec_at(const ek_attn *a, int64_t pos)
{
    return pos < a->shape.n_start ? &a->start : &a->rest;
}

/* A tile: queries [first, first + n) of the rows from `row` on, row by row, head by head of a KV head's group. */
typedef struct ek_attn_place {
    int row, kv_head, first, n;
} ek_attn_place;

typedef struct ek_attn_pages {
    const ek_attn *a;
    const ek_kv_view *views;
    const ek_attn_row *rows;
    const float *q;
    ptrdiff_t ldq;
    float *out;
    ptrdiff_t ldout;
    ek_attn_place *place; /* [n_tiles] */
} ek_attn_pages;

/* The maximum number of tiles of n_rows rows. */
int64_t ek_attn_max_tiles(const ek_attn *a, int n_rows);
/* Divides rows into tiles, written to p->place; returns their number. */
int64_t ek_attn_place_tiles(ek_attn_pages *p, int n_rows);
/* The source of n_tiles tiles of p; p NULL: only the fields that ek_attn_schedule_bytes reads. */
ek_attn_source ek_attn_source_of(const ek_attn *a, const ek_attn_pages *p, int64_t n_tiles);

#endif
