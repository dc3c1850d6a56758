#include "gpu/several/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "model/pass.h"

struct ek_front {
    ek_model *m;
    int end;
    ek_kv_memory kv;
    size_t kv_bytes[EK_PAGE_KINDS];
    ek_scratch *scratch;
};

static ek_err open_pages(ek_front *f, const ek_executor_sizes *z)
{
    const double have = ek_memory_available();
    double need = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) need += (double)f->kv.stride[k] * z->n_pages[k];
    if (have > 0 && need > have)
        return ek_fail(EK_ENOMEM, "keys and values of the CPU's layers need %.2f GB, %.2f GB of memory are available",
                       need / 1e9, have / 1e9);
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        f->kv_bytes[k] = f->kv.stride[k] * (size_t)z->n_pages[k];
        if (f->kv_bytes[k] == 0) continue;
        f->kv.base[k] = ek_alloc_big(f->kv_bytes[k]);
        if (!f->kv.base[k]) return ek_fail_in(EK_ENOMEM, "%d pages of %zu bytes", z->n_pages[k], f->kv.stride[k]);
    }
    return EK_OK;
}

ek_err ek_front_open(ek_front **out, ek_model *m, int end, const size_t page_bytes[EK_PAGE_KINDS],
                     const ek_executor_sizes *z)
{
    ek_front *f = ek_alloc(sizeof *f);
    *f = (ek_front){.m = m, .end = end};
    memcpy(f->kv.stride, page_bytes, sizeof f->kv.stride);
    ek_err err = open_pages(f, z);
    if (!err) err = ek_scratch_open(&f->scratch, m, z->max_rows, z->max_logits, z->max_ctx);
    if (err) ek_front_close(f);
    else *out = f;
    return err;
}

void ek_front_close(ek_front *f)
{
    if (!f) return;
    for (int k = 0; k < EK_PAGE_KINDS; k++) ek_free_big(f->kv.base[k], f->kv_bytes[k]);
    ek_scratch_close(f->scratch);
    free(f);
}

ek_err ek_front_step(ek_front *f, const ek_step *s, float *h)
{
    return ek_model_forward_front(f->m, f->scratch, &f->kv, s->row, s->n_rows, s->seq, s->n_seqs, f->end, h,
                                  f->m->config.hidden_size);
}

uint8_t *ek_front_page(const ek_front *f, ek_layer_kind kind, int32_t page)
{
    EK_ASSERT(page >= 0 && f->kv.stride[kind] * (size_t)page < f->kv_bytes[kind]);
    return f->kv.base[kind] ? f->kv.base[kind] + f->kv.stride[kind] * (size_t)page : NULL;
}
