#include "device_cut.h"

ek_err device_cut(ek_cuda_attn_work *w, const ek_attn_row *rows, int n_rows, int n_heads, int n_kv_heads, int tile)
{
    w->n_tiles = w->n_items = w->max_segments = 0;
    EK_TRY(ek_cuda_attn_add(w, rows, 0, n_rows, n_heads, n_kv_heads, tile));
    for (int i = 0, j = w->n_tiles - 1; !w->items && i < j; i++, j--) {
        ek_cuda_attn_tile t = w->tiles[i];
        w->tiles[i] = w->tiles[j], w->tiles[j] = t;
    }
    return EK_OK;
}
