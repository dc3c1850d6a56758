/* Models whose weights are read after opening, a share of the layers at a time. */
#include <math.h>

#include "model/pass.h"

ek_err ek_model_check_keys(const ek_model *m, int first, int end)
{
    for (int i = first; i < end && m->k_format == EK_KV_F16; i++) {
        const ek_layer_config *l = &m->config.layer[i];
        float max = 0;
        for (int d = 0; d < l->head_dim && l->owns_kv; d++) max = fmaxf(max, fabsf(m->w.layer[i].k_norm[d]));
        float bound = max * sqrtf((float)l->head_dim);
        if (!(bound < 65504.0f))
            return ek_fail(EK_EUNSUPPORTED,
                           "layer %d: self_attn.k_norm.weight allows keys up to %.3g, f16 holds 65504; use "
                           "--kv bf16",
                           i, (double)bound);
    }
    return EK_OK;
}

void ek_model_defer(ek_model *m, ek_items *list, const ek_pack_opts *o)
{
    m->deferred = ek_alloc(sizeof *m->deferred);
    *m->deferred = *list, *list = (ek_items){0};
    m->pack = *o;
    m->pack.packed_dir = m->packed_dir = o->packed_dir ? ek_strdup(o->packed_dir) : NULL;
}

ek_err ek_model_pack(ek_model *m, const ek_model_share *share)
{
    EK_ASSERT(m->deferred);
    m->some = true, m->pack.quiet = share->quiet;
    EK_TRY(ek_items_pack_layers(m->deferred, &m->w, &m->pack, share->first, share->end, share->embed, share->rows));
    m->some = share->first > 0 || share->end < m->config.n_layers || !share->embed || share->rows;
    if (m->w.source) ek_source_drop_pages(m->w.source);
    return ek_model_check_keys(m, share->first, share->end);
}

ek_err ek_model_pack_all(ek_model *m)
{
    if (!m->deferred || ek_model_is_packed(m)) return EK_OK;
    return ek_model_pack(m, &(ek_model_share){.end = m->config.n_layers, .embed = true});
}

bool ek_model_is_deferred(const ek_model *m)
{
    return m->deferred;
}

bool ek_model_is_packed(const ek_model *m)
{
    return m->w.block && !m->some;
}

bool ek_model_keeps_packed(const ek_model *m)
{
    return m->packed_dir;
}

void ek_model_release_weights(ek_model *m)
{
    ek_weights_release(&m->w);
}
