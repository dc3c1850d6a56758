#include "gpu/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "cuda/model_args.h"
#include "gpu/fit/fit.h"
#include "gpu/weights/weights.h"
#include "ops/kv/kv_codec.h"
#include "vulkan/vulkan.h"

ek_err ek_gpu_driver_load(ek_gpu_driver *out)
{
    *out = (ek_gpu_driver){.modules = ek_cuda_modules, .built_with = ek_cuda_built_with};
    return ek_cuda_load(&out->api, "libcuda.so.1");
}

ek_err ek_gpu_driver_load_vulkan(ek_gpu_driver *out)
{
    *out = (ek_gpu_driver){.modules = ek_vulkan_modules, .built_with = EK_VULKAN_VERSION};
    return ek_vulkan_load(&out->api);
}

/* Checks the limits of the kernels' sizes. */
static ek_err check(const ek_model *m)
{
    enum { MAX_VOCAB = 327680 }; /* blocks of ek_sample_choose */
    const ek_config *c = &m->config;
    if (c->vocab_size > MAX_VOCAB)
        return ek_fail(EK_EUNSUPPORTED, "a vocabulary of %d, the CUDA kernels take up to %d", c->vocab_size, MAX_VOCAB);
    if (c->hidden_size > EK_CUDA_STAGE_WIDTH)
        return ek_fail(EK_EUNSUPPORTED, "hidden_size is %d; the CUDA kernels take up to %d", c->hidden_size,
                       EK_CUDA_STAGE_WIDTH);
    if (c->n_experts > EK_CUDA_MAX_EXPERTS || c->top_k_experts > EK_CUDA_MAX_TOP_K)
        return ek_fail(EK_EUNSUPPORTED, "%d of %d experts, the CUDA kernels take up to %d of %d", c->top_k_experts,
                       c->n_experts, EK_CUDA_MAX_TOP_K, EK_CUDA_MAX_EXPERTS);
    if (ek_kv_rotated(m->k_format) != ek_kv_rotated(m->v_format))
        return ek_fail(EK_EUNSUPPORTED,
                       "keys in %s, values in %s: the CUDA kernels take both in integers (i12, i8) or neither",
                       ek_kv_format_name(m->k_format), ek_kv_format_name(m->v_format));
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].head_dim % 4 != 0)
            return ek_fail(EK_EUNSUPPORTED, "head_dim %d, the CUDA kernels need a multiple of 4", c->layer[i].head_dim);
    return EK_OK;
}

ek_err ek_gpu_load(ek_gpu *g, ek_model *m, const ek_model_share *share, ek_gpu_shard shard)
{
    g->m = m;
    ek_gpu_set_share(g, share, shard);
    EK_TRY(check(m));
    EK_TRY(ek_cuda_enter(g->c));
    if (g->prove) EK_TRY(g->prove(g, m));
    const bool whole = share->end - share->first == m->config.n_layers && !shard.ranks && !share->host_experts;
    if (whole && ek_model_keeps_packed(m))
        EK_TRY(ek_model_pack_all(m)); /* in that folder weights are kept only whole */
    EK_TRY(ek_gpu_upload(g, share->rows));
    return ek_gpu_table_upload(g);
}

ek_err ek_gpu_open_device(ek_gpu **out, const ek_gpu_driver *driver, int ordinal)
{
    ek_gpu *g = ek_alloc(sizeof *g);
    ek_err err = ek_cuda_open(&g->c, &driver->api, driver->modules, driver->built_with, ordinal, driver->features);
    if (err) {
        ek_gpu_close(g);
        return err;
    }
    *out = g;
    g->prove = driver->prove;
    ek_log(EK_LOG_DEBUG, "device %s:%d: %s", ek_cuda_maker(g->c), ordinal, ek_cuda_text(g->c));
    if (driver->tune) driver->tune(g->c);
    return EK_OK;
}

ek_err ek_gpu_open(ek_gpu **out, const ek_gpu_driver *driver, ek_model *m, int ordinal)
{
    ek_gpu *g;
    EK_TRY(check(m));
    EK_TRY(ek_gpu_open_device(&g, driver, ordinal));
    ek_err err = ek_gpu_load(g, m, &(ek_model_share){.end = m->config.n_layers, .embed = true}, (ek_gpu_shard){0});
    if (err) ek_gpu_close(g);
    else *out = g;
    return err;
}

/* The time of a drafter's step over that of the target's. With few rows a layer takes as long as its launches, so
 * layers count, not bytes; projections and head count as two layers. Measured on an H200: E2B 0.16 to 0.20; this
 * returns 0.17. */
static float draft_cost(const ek_drafter *d, const ek_model *own, const ek_model *target)
{
    const double layers = (double)(own->config.n_layers + 2) / (target->config.n_layers + 1);
    const double bytes = ek_drafter_cost(d);
    return (float)(bytes > layers ? bytes : layers);
}

static ek_err start_drafter(ek_gpu *own)
{
    EK_TRY(check(own->m));
    EK_TRY(ek_cuda_enter(own->c));
    if (own->prove) EK_TRY(own->prove(own, own->m));
    if (ek_model_keeps_packed(own->m)) EK_TRY(ek_model_pack_all(own->m));
    return ek_gpu_upload(own, NULL);
}

ek_err ek_gpu_add_drafter(ek_gpu *g, const ek_drafter *d)
{
    if (g->share.shard.ranks) EK_TRY(ek_gpu_shard_check_drafter(ek_drafter_model(d)));
    ek_gpu *own = ek_alloc(sizeof *own);
    EK_ASSERT(!g->drafter && ek_drafter_target(d) == g->m);
    ek_gpu_set_drafter(own, g, d);
    own->draft_cost = draft_cost(d, own->m, g->m);
    ek_err err = start_drafter(own);
    if (err) ek_gpu_close(own);
    else g->drafter = own;
    return err;
}

void ek_gpu_close(ek_gpu *g)
{
    if (!g) return;
    ek_gpu_close(g->drafter);
    if (g->c) {
        ek_cuda_enter(g->c);
        for (int i = 0; i < g->n_blocks; i++) ek_cuda_free(g->c, g->block[i]);
        ek_cuda_free(g->c, g->w.table.at);
    }
    if (!g->target) ek_cuda_close(g->c);
    free(g);
}

const char *ek_gpu_text(const ek_gpu *g)
{
    return ek_cuda_text(g->c);
}

double ek_gpu_room(ek_gpu *g)
{
    size_t free = 0, total = 0;
    if (ek_cuda_enter(g->c) == EK_OK) ek_cuda_room(g->c, &free, &total);
    return (double)free;
}

double ek_gpu_bytes(const ek_gpu *g)
{
    const double table = g->w.table.at ? (double)g->w.table.l.bytes : 0;
    return (double)g->bytes + table + (g->drafter ? ek_gpu_bytes(g->drafter) : 0);
}

double ek_gpu_step_part(ek_gpu *g, const ek_executor_sizes *z)
{
    const double there = ek_gpu_room(g), may = g->max_bytes > 0 ? g->max_bytes - ek_gpu_bytes(g) : there,
                 room = may < there ? may : there;
    return room > 0 ? ek_gpu_step_bytes(g, z) / room : INFINITY;
}

double ek_gpu_read_rate(ek_gpu *g)
{
    const size_t max = (size_t)1 << 30, bytes = g->block_bytes[0] < max ? g->block_bytes[0] / 256 * 256 : max;
    CUdeviceptr out;
    double start = 0, seconds = 0;
    g->err = EK_OK;
    if (ek_cuda_enter(g->c) || ek_cuda_alloc(g->c, &out, 16, "a measurement")) return 0;
    ek_cuda_math_args a = {.x = g->block[0], .y = out, .n = (int64_t)bytes};
    ek_cuda_grid grid = {.x = (unsigned)ek_cuda_multiprocessors(g->c) * 8, .threads = 256};
    for (int i = -1; i < 10; i++) {
        if (i == 0) {
            ek_gpu_note(g, ek_cuda_sync(g->c));
            start = ek_now();
        }
        ek_gpu_launch(g, "ek_read_stream", grid, &a);
    }
    ek_gpu_note(g, ek_cuda_sync(g->c));
    seconds = ek_now() - start;
    ek_cuda_free(g->c, out);
    return g->err ? 0 : (double)bytes * 10 / seconds;
}
