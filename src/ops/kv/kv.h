/* Keys and values in pages of 64 tokens, addressed by absolute position.
 *
 * A page belongs to one kind of layer (full or sliding) and holds, for 64 consecutive
 * positions starting at a multiple of 64, the keys and values of every owning layer of that
 * kind. Within a page a layer is a block; within a block each KV head has
 *     K  [head_dim][64]   element (d, slot): scores use one lane per key, d ascending
 *     V  [64][head_dim]   element (slot, d): outputs use one lane per d, keys ascending
 * (the formats of attention in integers: in pairs or fours, ops/kv/kv_codec.h)
 * in the layer's formats. The layout of codes and scales: ops/kv/kv_codec.h. A token is written
 * once, alone: no scale is shared with another token, no byte with another slot. Slots that were
 * never written may hold anything; no kernel lets them enter an addition. The cache hands out page
 * numbers, the executor owns the memory behind them, the model reads through a view. */
#ifndef EK_OPS_KV_H
#define EK_OPS_KV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { EK_PAGE_TOKENS = 64, EK_SEGMENT = 256, EK_MAX_HEAD_DIM = 512, EK_NO_PAGE = -1 };

/* The formats, one row each. How a rule stores and reads an element: ops/kv/kv_codec.h.
 *
 * X(id, name, rule, bits, group)
 *   name   what `--kv` takes
 *   rule   EK_KV_FLOAT      the element itself, in 32 bits
 *          EK_KV_HALF       binary16, to nearest even, held at 65504
 *          EK_KV_BFLOAT     bf16, to nearest even
 *          EK_KV_TOKEN      signed codes c, one f32 scale s per token and head: s * c
 *          EK_KV_SYMMETRIC  signed codes, one f16 scale per group: s * c
 *          EK_KV_AFFINE     unsigned codes, f16 scale and bias per group: fma(s, c, b)
 *          EK_KV_ROTATED    signed codes c of the token's rotated elements, one f32 scale per token and head: attention
 *                           in integers (ops/attn/attn_int.h)
 *   bits   of an element or of its code, as stored
 *   group  neighbouring dims that share a scale; 0: no groups
 * A row is a format everywhere: names, sizes, storing, the definition of attention, kernels, tests. An instruction
 * set that cannot load it has no kernel, and ek_attn_plan refuses the format by name (CONTRIBUTING.md). GPU kernels
 * take a row's rule, bits and group (cuda/attn_work.h, ek_cuda_kv_formats). */
#define EK_KV_FORMATS(X)                        \
    X(F32, "f32", EK_KV_FLOAT, 32, 0)           \
    X(F16, "f16", EK_KV_HALF, 16, 0)            \
    X(BF16, "bf16", EK_KV_BFLOAT, 16, 0)        \
    X(I16, "16", EK_KV_TOKEN, 16, 0)            \
    X(Q8, "8", EK_KV_SYMMETRIC, 8, 32)          \
    X(Q4, "4", EK_KV_AFFINE, 4, 32)             \
    X(Q8_64, "8.64", EK_KV_SYMMETRIC, 8, 64)    \
    X(Q8_128, "8.128", EK_KV_SYMMETRIC, 8, 128) \
    X(Q6, "6", EK_KV_AFFINE, 6, 32)             \
    X(Q6_64, "6.64", EK_KV_AFFINE, 6, 64)       \
    X(Q6_128, "6.128", EK_KV_AFFINE, 6, 128)    \
    X(Q5, "5", EK_KV_AFFINE, 5, 32)             \
    X(Q5_64, "5.64", EK_KV_AFFINE, 5, 64)       \
    X(Q5_128, "5.128", EK_KV_AFFINE, 5, 128)    \
    X(Q4_64, "4.64", EK_KV_AFFINE, 4, 64)       \
    X(Q4_128, "4.128", EK_KV_AFFINE, 4, 128)    \
    X(Q3, "3", EK_KV_AFFINE, 3, 32)             \
    X(Q3_64, "3.64", EK_KV_AFFINE, 3, 64)       \
    X(Q3_128, "3.128", EK_KV_AFFINE, 3, 128)    \
    X(Q2, "2", EK_KV_AFFINE, 2, 32)             \
    X(Q2_64, "2.64", EK_KV_AFFINE, 2, 64)       \
    X(Q2_128, "2.128", EK_KV_AFFINE, 2, 128)    \
    X(I12, "i12", EK_KV_ROTATED, 16, 0)         \
    X(I8, "i8", EK_KV_ROTATED, 8, 0)

#define EK_KV_ID(id, name, rule, bits, group) EK_KV_##id,
typedef enum ek_kv_format { EK_KV_FORMATS(EK_KV_ID) EK_KV_FORMAT_COUNT } ek_kv_format;
#undef EK_KV_ID

/* Kinds of layers, and of pages: the first positions of a sequence may be stored in other formats (`--kv-start`), in
 * pages of another size, so that each kind of layers has two kinds of pages. */
typedef enum ek_layer_kind {
    EK_SLIDING,
    EK_FULL,
    EK_KIND_COUNT, /* of layers */
    EK_SLIDING_START = EK_KIND_COUNT,
    EK_FULL_START,
    EK_PAGE_KINDS
} ek_layer_kind;

const char *ek_kv_format_name(ek_kv_format f);
/* The format of the first positions, for a format of the later ones: bf16, or f itself if it has 16 bits or more; i12
 * for i8, because a sum of values is rotated in all its segments or in none. */
ek_kv_format ek_kv_start_format(ek_kv_format f);
/* Parses the name of a format, or two names as "K:V". "8.32" is another name of "8", and so for every width. EINVAL
 * lists the formats. */
ek_err ek_kv_format_parse(const char *s, ek_kv_format *k, ek_kv_format *v);

/* Bytes of one layer's block in a page; 0 if the format is not available for head_dim. */
size_t ek_kv_block_bytes(ek_kv_format k, ek_kv_format v, int n_kv_heads, int head_dim);

/* The two parts of one KV head's share of a block, K first; multiples of 64 for head_dim % 4 == 0. */
size_t ek_kv_k_bytes(ek_kv_format k, int head_dim);
size_t ek_kv_v_bytes(ek_kv_format v, int head_dim);

/* One layer of one request. page[i] is the number of the page that holds positions [64 i, 64 i + 64),
 * or EK_NO_PAGE (not yet taken, or given back by a sliding layer). The table holds numbers, not addresses:
 * cache and plan do not depend on whose memory it is, and a device reads the same table. The cost in attention is
 * one multiplication per page of a segment. */
typedef struct ek_kv_view {
    uint8_t *base; /* the layer's block in page 0 */
    size_t stride; /* bytes from a page to the next */
    const int32_t *page;
    uint8_t *start_base; /* the same for entries [0, n_start) of page, which belong to the start kind */
    size_t start_stride;
    int n_start;
} ek_kv_view;

/* The layer's block for positions [64 i, 64 i + 64); NULL: no page. */
static inline uint8_t *ek_kv_block(const ek_kv_view *view, int i)
{
    if (view->page[i] == EK_NO_PAGE) return NULL;
    return i < view->n_start ? view->start_base + view->start_stride * (size_t)view->page[i]
                             : view->base + view->stride * (size_t)view->page[i];
}

/* The memory of all pages: page n of a kind begins at base[kind] + n * stride[kind], 64-byte aligned. */
typedef struct ek_kv_memory {
    uint8_t *base[EK_PAGE_KINDS];
    size_t stride[EK_PAGE_KINDS];
} ek_kv_memory;

/* A model's page layout: filled by the model, read by cache and engine. */
typedef struct ek_kv_layout {
    size_t page_bytes[EK_PAGE_KINDS]; /* a multiple of 64; 0: no layer of that kind owns keys */
    int sliding_window;
    int n_start; /* entries [0, n_start) of a page table are pages of the start kinds */
} ek_kv_layout;

static inline ek_layer_kind ek_kv_start_kind(ek_layer_kind kind)
{
    return (ek_layer_kind)(kind + EK_KIND_COUNT);
}

/* The kind of page in entry i of a layer kind's table. */
static inline ek_layer_kind ek_kv_page_kind(const ek_kv_layout *l, ek_layer_kind kind, int i)
{
    return i < l->n_start ? ek_kv_start_kind(kind) : kind;
}

/* Its bytes, and the maximum over all entries of a layer kind's table. */
static inline size_t ek_kv_page_bytes(const ek_kv_layout *l, ek_layer_kind kind, int i)
{
    return l->page_bytes[ek_kv_page_kind(l, kind, i)];
}

static inline size_t ek_kv_page_bytes_max(const ek_kv_layout *l, ek_layer_kind kind)
{
    size_t rest = l->page_bytes[kind], start = l->page_bytes[ek_kv_start_kind(kind)];
    return start > rest ? start : rest;
}

#endif
