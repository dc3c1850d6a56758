/* Keys and values in pages of 64 tokens, addressed by absolute position.
 *
 * A page belongs to one kind of layer (full or sliding) and holds, for 64 consecutive
 * positions starting at a multiple of 64, the keys and values of every owning layer of that
 * kind. Within a page a layer is a block; within a block each KV head has
 *     K  [head_dim][64]   element (d, slot): a score is a lane per key, d ascending
 *     V  [64][head_dim]   element (slot, d): an output is a lane per d, keys ascending
 * in the layer's formats; where 8 and 4 bits keep their scales: ops/kv_layout.h. A token is written
 * once, alone: no scale is shared with another token, no byte with another slot. Slots that were
 * never written hold anything; no kernel lets them reach an addition. The cache hands out page
 * numbers, the executor owns the memory behind them, the model reads through a view. */
#ifndef EK_OPS_KV_H
#define EK_OPS_KV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { EK_PAGE_TOKENS = 64, EK_SEGMENT = 256, EK_MAX_HEAD_DIM = 512, EK_NO_PAGE = -1 };

typedef enum ek_kv_format {
    EK_KV_F32,
    EK_KV_F16,
    EK_KV_BF16,
    EK_KV_I16,
    EK_KV_Q8,
    EK_KV_Q4,
    EK_KV_FORMAT_COUNT
} ek_kv_format;
typedef enum ek_layer_kind { EK_SLIDING, EK_FULL, EK_KIND_COUNT } ek_layer_kind;

const char *ek_kv_format_name(ek_kv_format f);
/* "16", "f16", "bf16", "f32", "8", "4" or "K:V"; EINVAL lists what there is. */
ek_err ek_kv_format_parse(const char *s, ek_kv_format *k, ek_kv_format *v);

/* Bytes of one layer's block in a page; 0 if the format is not available for head_dim. */
size_t ek_kv_block_bytes(ek_kv_format k, ek_kv_format v, int n_kv_heads, int head_dim);

/* The two parts of one KV head's share of a block, K first; multiples of 64 for head_dim % 4 == 0. */
size_t ek_kv_k_bytes(ek_kv_format k, int head_dim);
size_t ek_kv_v_bytes(ek_kv_format v, int head_dim);

/* One layer of one request. page[i] is the number of the page that holds positions [64 i, 64 i + 64),
 * or EK_NO_PAGE (not yet taken, or given back by a sliding layer). Numbers, not addresses: cache and
 * plan need not know whose memory it is, and a device reads the same table. It costs attention one
 * multiplication per page of a segment. */
typedef struct ek_kv_view {
    uint8_t *base; /* the layer's block in page 0 */
    size_t stride; /* bytes from a page to the next */
    const int32_t *page;
} ek_kv_view;

/* The layer's block for positions [64 i, 64 i + 64); NULL without a page. */
static inline uint8_t *ek_kv_block(const ek_kv_view *view, int i)
{
    return view->page[i] == EK_NO_PAGE ? NULL : view->base + view->stride * (size_t)view->page[i];
}

/* The memory of all pages: page n of a kind begins at base[kind] + n * stride[kind], 64-byte aligned. */
typedef struct ek_kv_memory {
    uint8_t *base[EK_KIND_COUNT];
    size_t stride[EK_KIND_COUNT];
} ek_kv_memory;

/* What the cache must know of a model: filled by the model, read by cache and engine. */
typedef struct ek_kv_layout {
    size_t page_bytes[EK_KIND_COUNT]; /* a multiple of 64; 0: no layer of that kind owns keys */
    int sliding_window;
} ek_kv_layout;

#endif
