#include "gpu/several/several.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gpu/fit/fit.h"
#include "gpu/several/state.h"
#include "gpu/weights/weights.h"
#include "model/pass.h"

static void say_places(ek_ranks *r)
{
    int ordinal[EK_RANKS] = {0};
    for (int i = 0; i < r->n; i++) ordinal[r->place.device[i]] = ek_cuda_ordinal(r->gpu[i]->c);
    ek_place_text(r->text, sizeof r->text, &r->place, ordinal);
    const char *name = ek_gpu_text(r->gpu[0]);
    const size_t used = strlen(r->text);
    snprintf(r->text + used, sizeof r->text - used, " (%.*s)", (int)strcspn(name, ","), name);
}

static ek_err open_devices(ek_gpu **gpu, const ek_gpu_driver *driver, const ek_fit_opts *o, double *room)
{
    for (int i = 0; i < o->n; i++) {
        EK_TRY(ek_gpu_open_device(&gpu[i], driver, o->ordinal[i]));
        gpu[i]->max_bytes = o->max_bytes;
        room[i] = ek_gpu_room(gpu[i]);
        if (o->max_bytes > room[i])
            return ek_fail(EK_ENOMEM, "%s:%d has %.2f GB free, %.2f GB of it are to be taken", ek_cuda_maker(gpu[i]->c),
                           o->ordinal[i], room[i] / 1e9, o->max_bytes / 1e9);
        if (o->max_bytes > 0) room[i] = o->max_bytes;
    }
    return EK_OK;
}

/* Opens the memory of each device to those that exchange rows with it: by layers to its neighbours, and to the last
 * device for tokens. */
static ek_err reach(ek_ranks *r)
{
    const bool outputs = r->place.split == EK_SPLIT_OUTPUTS;
    for (int i = 0; i < r->n; i++)
        for (int j = 0; j < r->n; j++) {
            const bool neighbours = i - j == 1 || j - i == 1 || i + 1 == r->n || j + 1 == r->n;
            bool reached = true;
            if (i == j || (!outputs && !neighbours)) continue;
            EK_TRY(ek_cuda_reach(r->gpu[i]->c, r->gpu[j]->c, &reached));
            if (!reached && outputs)
                return ek_fail(EK_EUNSUPPORTED,
                               "%s:%d does not reach the memory of %s:%d, outputs cannot be cut over them (--split "
                               "layers)",
                               ek_cuda_maker(r->gpu[i]->c), ek_cuda_ordinal(r->gpu[i]->c), ek_cuda_maker(r->gpu[j]->c),
                               ek_cuda_ordinal(r->gpu[j]->c));
        }
    return EK_OK;
}

/* For EK_SPLIT_AUTO: names two devices that would exchange parts and do not reach each other's memory; "": there are
 * none. */
static ek_err find_apart(char *out, size_t size, ek_gpu *const *gpu, const ek_model *m, const ek_fit_opts *o)
{
    out[0] = '\0';
    if (o->split != EK_SPLIT_AUTO || o->host || !ek_stage_prefers_outputs(m, o->n)) return EK_OK;
    for (int i = 0; i < o->n; i++)
        for (int j = 0; j < o->n && !out[0]; j++) {
            bool reached = true;
            if (i != j) EK_TRY(ek_cuda_reach(gpu[i]->c, gpu[j]->c, &reached));
            if (!reached)
                snprintf(out, size, "%s:%d does not reach the memory of %s:%d", ek_cuda_maker(gpu[i]->c), o->ordinal[i],
                         ek_cuda_maker(gpu[j]->c), o->ordinal[j]);
        }
    return EK_OK;
}

/* Sets r->place by ek_fit_plan, and the bytes that the devices keep. gpu: the devices. */
static ek_err place(ek_ranks *r, ek_gpu *const *gpu, const double *room, const ek_fit_opts *o)
{
    ek_cuda *c[EK_RANKS];
    ek_fit_parts kept[EK_RANKS] = {0};
    for (int i = 0; i < o->n; i++) c[i] = gpu[i]->c;
    const ek_err err = ek_fit_plan(&r->place, kept, r->m, c, room, o);
    if (err) return err == EK_ENOMEM ? ek_fit_refuse(r->m, c, room, o) : err;
    for (int i = 0; i < o->n; i++) {
        gpu[i]->kept_step = kept[i].step, gpu[i]->kept_keys = kept[i].keys;
        gpu[i]->kept_rest = kept[i].drafter + kept[i].towers;
    }
    return EK_OK;
}

ek_err ek_ranks_check_alone(ek_gpu *g, ek_model *m, const ek_fit_opts *o)
{
    const double room = ek_gpu_room(g);
    ek_fit_parts kept[EK_RANKS] = {0};
    ek_place p;
    const ek_err err = ek_fit_plan(&p, kept, m, &g->c, &room, o);
    return err == EK_ENOMEM ? ek_fit_refuse(m, &g->c, &room, o) : err;
}

/* Loads the weights of device i. */
static ek_err load_one(ek_ranks *r, int i)
{
    ek_model_share share = r->place.share[i];
    const ek_gpu_wanted w = {r->m, ek_place_shards(&r->place, i), share.host_experts};
    const ek_rows_wanted rows = {ek_gpu_rows_wanted, &w};
    if (w.shard.ranks || w.host_experts) share.rows = &rows;
    return ek_gpu_load(r->gpu[i], r->m, &share, w.shard);
}

/* Loads weights in the order of the devices, the CPU's last, because these stay in host memory. */
static ek_err load(ek_ranks *r)
{
    for (int i = 0; i < r->n; i++) EK_TRY(load_one(r, i));
    if (!ek_model_is_deferred(r->m)) return EK_OK;
    if (r->place.host_end) return ek_model_pack(r->m, &(ek_model_share){.end = r->place.host_end, .embed = true});
    const ek_rows_wanted experts = {ek_gpu_experts_wanted, NULL};
    if (r->place.host_experts)
        return ek_model_pack(r->m, &(ek_model_share){.end = r->place.host_experts, .rows = &experts});
    ek_model_release_weights(r->m);
    return EK_OK;
}

static ek_err start(ek_ranks *r, const ek_gpu_driver *driver, const ek_fit_opts *o)
{
    ek_gpu *gpu[EK_RANKS] = {0};
    double room[EK_RANKS];
    char apart[80];
    ek_fit_opts known = *o;
    ek_err err = open_devices(gpu, driver, o, room);
    if (!err) err = find_apart(apart, sizeof apart, gpu, r->m, o);
    if (!err && apart[0]) known.apart = apart;
    if (!err) err = place(r, gpu, room, &known);
    if (!err) r->n = r->place.n;
    for (int i = 0; i < r->n; i++) { /* only devices with layers are kept */
        r->gpu[i] = gpu[r->place.device[i]];
        gpu[r->place.device[i]] = NULL;
    }
    for (int i = 0; i < o->n; i++) ek_gpu_close(gpu[i]);
    EK_TRY(err);
    EK_TRY(reach(r));
    say_places(r);
    ek_log(EK_LOG_INFO, "%s", r->text);
    if (r->place.why[0]) ek_log(EK_LOG_INFO, "%s", r->place.why);
    return load(r);
}

ek_err ek_ranks_open(ek_ranks **out, const ek_gpu_driver *driver, ek_model *m, const ek_fit_opts *o)
{
    EK_ASSERT(o->n >= 1 && o->n <= EK_RANKS && !(o->host && o->split == EK_SPLIT_OUTPUTS));
    ek_ranks *r = ek_alloc(sizeof *r);
    r->m = m, r->max_bytes = o->max_bytes;
    ek_err err = start(r, driver, o);
    if (err) ek_ranks_close(r);
    else *out = r;
    return err;
}

void ek_ranks_close(ek_ranks *r)
{
    if (!r) return;
    for (int i = 0; i < r->n; i++) ek_gpu_close(r->gpu[i]);
    free(r);
}

bool ek_ranks_let_step(ek_ranks *r, const ek_executor_sizes *z, double part)
{
    for (int i = 0; i < r->n; i++)
        if (ek_gpu_step_part(r->gpu[i], z) > part) return false;
    for (int i = 0; i < r->n; i++) r->gpu[i]->kept_step = fmax(r->gpu[i]->kept_step, ek_gpu_step_bytes(r->gpu[i], z));
    return true;
}

ek_executor ek_ranks_executor(ek_ranks *r)
{
    return r->place.split == EK_SPLIT_OUTPUTS ? ek_ranks_by_outputs(r) : ek_ranks_by_layers(r);
}

const char *ek_ranks_text(const ek_ranks *r)
{
    return r->text;
}

bool ek_ranks_has_host(const ek_ranks *r)
{
    return r->place.host_end > 0 || r->place.host_experts > 0;
}

ek_gpu *ek_ranks_first(const ek_ranks *r)
{
    return r->gpu[0];
}

ek_gpu *ek_ranks_drafting(const ek_ranks *r)
{
    return r->place.split == EK_SPLIT_OUTPUTS ? r->gpu[0] : r->gpu[r->n - 1];
}
