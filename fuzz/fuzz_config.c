/* config.json from bytes. Property: an accepted configuration keeps every promise that the
 * memory of a model is computed from, and is accepted again, the same, as text_config. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "model/config/config.h"
#include "model/source/module.h"

static void check_layer(const ek_config *c, int i)
{
    const ek_layer_config *l = &c->layer[i], *d = &c->layer[l->donor];
    bool drafter = c->backbone_hidden_size > 0; /* its donors are its target's */
    if (drafter && (l->owns_kv || l->donor != i)) __builtin_trap();
    if (!drafter && (l->donor < 0 || l->donor > i || (l->donor != i) == l->owns_kv)) __builtin_trap();
    if (!drafter && (!d->owns_kv || d->kind != l->kind)) __builtin_trap();
    if (d->head_dim != l->head_dim || d->n_kv_heads != l->n_kv_heads) __builtin_trap();
    if (l->head_dim < 2 || l->head_dim % 2 || l->n_kv_heads < 1 || c->n_heads % l->n_kv_heads) __builtin_trap();
    if ((long)c->n_heads * l->head_dim > 1 << 20 || l->intermediate_size < 1) __builtin_trap();
    if (l->kind == EK_SLIDING && c->sliding_window < 1) __builtin_trap();
}

static void check_all(const ek_config *c)
{
    if (c->n_layers < 1 || c->n_layers > EK_MAX_LAYERS || c->vocab_size < 1 || c->hidden_size < 1) __builtin_trap();
    if (c->first_shared < !c->backbone_hidden_size || c->first_shared + c->n_kv_shared_layers != c->n_layers)
        __builtin_trap();
    if ((long)c->per_layer_size * c->n_layers > 1 << 20) __builtin_trap();
    if (c->n_experts && (c->top_k_experts < 1 || c->top_k_experts > c->n_experts)) __builtin_trap();
    if (c->n_centroids &&
        (c->vocab_size % c->n_centroids || c->top_k_centroids < 1 || c->top_k_centroids > c->n_centroids))
        __builtin_trap();
    if (c->n_stop < 0 || c->n_stop > EK_MAX_STOP || c->n_suppress > EK_MAX_STOP) __builtin_trap();
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] < 0 || c->stop[i] >= c->vocab_size) __builtin_trap();
    for (int i = 0; i < c->n_layers; i++) check_layer(c, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static ek_config one, two;
    char *text = ek_alloc(n + 1);
    ek_quant q;
    memcpy(text, data, n);
    if (ek_config_parse(&one, text, NULL) == EK_OK) {
        ek_buf nested = {0};
        check_all(&one);
        ek_buf_fmt(&nested, "{\"text_config\":%s}", text);
        /* not where it holds one itself, nor near the parser's limit of depth */
        if (!strstr(text, "text_config") && strlen(text) == n && n < 2000) {
            if (ek_config_parse(&two, nested.data, NULL) != EK_OK) __builtin_trap();
            if (memcmp(&one, &two, sizeof one) != 0) __builtin_trap();
        }
        ek_buf_fini(&nested);
    }
    if (ek_config_parse(&one, "{}", text) == EK_OK) __builtin_trap();
    if (ek_quant_parse(&q, text) == EK_OK) {
        int bits, group;
        for (int i = 0; i < q.n_own; i++) {
            ek_quant_find(&q, q.own[i].path, &bits, &group);
            if (bits < 0 || bits > 8 || group < 0 || group > 128) __builtin_trap();
        }
        ek_quant_fini(&q);
    }
    free(text);
    return 0;
}
