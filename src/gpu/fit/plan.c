/* The planner: it places the model so that a step and everything else beside the weights has room. If there is no room,
 * it finds what is missing and what would help. */
#include "gpu/fit/fit.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/budget.h"
#include "gpu/weights/weights.h"
#include "model/pass.h"

/* --- the bytes of a part */

double ek_fit_part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS])
{
    double limit = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        const double part = l->page_bytes[k] ? (double)own[k] / (double)l->page_bytes[k] : 0;
        limit = part > limit ? part : limit;
    }
    return limit;
}

/* The bytes of part i of p on device c with `room` bytes, o->beside included. */
static ek_err keep(ek_fit_parts *out, const ek_place *p, int i, ek_model *m, ek_cuda *c, double room,
                   const ek_fit_opts *o)
{
    const int drafts = p->split == EK_SPLIT_OUTPUTS ? 0 : p->n - 1;
    size_t pages[EK_PAGE_KINDS];
    EK_TRY(ek_gpu_plan(out, pages, c, m, &p->share[i], ek_place_shards(p, i), &o->beside.step,
                       i == drafts ? o->beside.drafter : NULL));
    out->keys = o->beside.kv_bytes * ek_fit_part_of_pages(&m->layout, pages);
    out->towers = i == 0 ? o->beside.towers : 0;
    const double rest = out->step + out->keys + out->drafter + out->towers;
    if (!ek_gpu_table_fits(out->table, room - out->weights, rest)) out->table = 0;
    return EK_OK;
}

/* Places m on devices with unlimited room, so that layers take about as long on each; with the CPU, the CPU gets as
 * much as possible. o->split is not AUTO. */
static ek_err measure(ek_place *out, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const ek_fit_opts *o)
{
    double room[EK_RANKS];
    ek_fit_opts all = *o;
    all.host_layers = m->config.n_layers; /* as many as the CPU can have */
    for (int i = 0; i < o->n; i++) room[i] = 1e18;
    EK_TRY(ek_place_by(out, m, room, &all));
    out->whole_o = false; /* whole_o depends on the room */
    for (int i = 0; i < out->n && out->split == EK_SPLIT_OUTPUTS; i++) {
        const ek_gpu_shard shard = ek_place_shards(out, i);
        out->bytes[i] = ek_gpu_shard_bytes(m, &shard);
    }
    for (int i = 0; i < out->n; i++) {
        ek_fit_parts *const k = &kept[out->device[i]];
        if (o->beside.step.max_rows > 0) EK_TRY(keep(k, out, i, m, c[out->device[i]], room[i], o));
        else k->weights = out->bytes[i];
    }
    return EK_OK;
}

/* --- the plan */

double ek_fit_keys_within(const ek_fit_parts *k, double left)
{
    const double share = left * EK_GPU_KEYS_SHARE - k->towers, rest = left - k->step - k->towers;
    return k->step > 0 ? fmax(fmin(share, rest), fmin(k->keys, rest)) : share;
}

/* For each device whose rest takes too much: the bytes of this rest, by the device's index in the list. */
static ek_err find_short(const ek_place *p, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const double *room,
                         const ek_fit_opts *o, double *beside, bool *found)
{
    *found = false;
    for (int i = 0; i < p->n; i++) {
        const int d = p->device[i];
        ek_fit_parts *const k = &kept[d];
        EK_TRY(keep(k, p, i, m, c[d], room[d], o));
        /* includes bytes of weights that the layers' sizes do not show, because of the device's layout */
        const double need = k->weights - p->bytes[i] + k->step + k->keys + k->drafter + k->towers;
        if (p->bytes[i] + need <= room[d]) continue;
        *found = true;
        beside[d] = fmax(need, beside[d] * 1.02);
    }
    return EK_OK;
}

/* If the rest takes more of a device's room than the fraction that weights leave, the device is treated as smaller. If
 * the size of the rest is known, weights may take more than their fraction. */
static ek_err plan_by(ek_place *out, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const double *room,
                      const ek_fit_opts *o)
{
    enum { TRIES = 64 };
    double own[EK_RANKS], limit[EK_RANKS], beside[EK_RANKS] = {0};
    const ek_drafter *const d = o->split == EK_SPLIT_OUTPUTS && o->n > 1 ? o->beside.drafter : NULL;
    if (d) EK_TRY(ek_gpu_shard_check_drafter(ek_drafter_model(d)));
    bool found = o->beside.step.max_rows > 0;
    memcpy(limit, room, sizeof *limit * (size_t)o->n);
    ek_err err = ek_place_by(out, m, limit, o);
    for (int i = 0; i < o->n && err; i++) limit[i] = room[i] / ek_place_share(o->host);
    if (err == EK_ENOMEM && found && !o->host) err = ek_place_by(out, m, limit, o);
    EK_TRY(err);
    for (int i = 0; i < out->n; i++) kept[out->device[i]].weights = out->bytes[i];
    for (int n = 0; n < TRIES && found; n++) {
        EK_TRY(find_short(out, kept, m, c, room, o, beside, &found));
        for (int i = 0; i < o->n; i++)
            own[i] = fmax(1, fmin(limit[i], (room[i] - beside[i]) / ek_place_share(o->host)));
        if (found) EK_TRY(ek_place_by(out, m, own, o));
    }
    return found ? ek_fail(EK_ENOMEM, "no placing of the layers leaves room for a step of %d rows",
                           o->beside.step.max_rows)
                 : EK_OK;
}

/* --- missing memory */

static double all_of(const ek_fit_parts *k)
{
    return k->weights + k->step + k->keys + k->drafter + k->towers;
}

/* The bytes of the layers that stay together on one device, if all other layers would have room. */
static void find_last(ek_fit_need *out, ek_model *m, ek_cuda *const *c, const ek_fit_opts *o)
{
    const ek_fit_opts last = {.n = 1, .host = true, .part = EK_HOST_LAYERS, .beside = o->beside};
    ek_fit_parts kept[EK_RANKS] = {0};
    ek_place p;
    if (measure(&p, kept, m, c, &last) || p.host_end == 0) return;
    out->first = p.host_end, out->last = kept[0].weights;
}

static ek_err need_of(ek_fit_need *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o)
{
    ek_fit_parts kept[EK_RANKS] = {0};
    ek_place p;
    double rooms = 0;
    EK_TRY(measure(&p, kept, m, c, o));
    *out = (ek_fit_need){.layers = m->config.n_layers, .share = ek_place_share(o->host)};
    for (int i = 0; i < o->n; i++) {
        const ek_fit_parts *k = &kept[i];
        out->max = (ek_fit_parts){.weights = fmax(out->max.weights, k->weights),
                                  .step = fmax(out->max.step, k->step),
                                  .keys = fmax(out->max.keys, k->keys),
                                  .drafter = fmax(out->max.drafter, k->drafter),
                                  .towers = fmax(out->max.towers, k->towers)};
        out->weights += k->weights, out->all += all_of(k), rooms += room[i];
    }
    out->outputs = p.split == EK_SPLIT_OUTPUTS && p.n > 1, out->several = p.n > 1;
    out->host_end = p.host_end, out->host_experts = p.host_experts;
    out->all_on_one = all_of(&out->max);
    out->fewer = out->weights < rooms;
    if (out->several && !out->outputs && out->all < rooms) find_last(out, m, c, o);
    return EK_OK;
}

static void say_need(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o)
{
    ek_fit_need need;
    if (need_of(&need, m, c, room, o)) ek_buf_str(out, ek_err_text());
    else ek_fit_say_need(out, &need, room, o);
}

ek_err ek_fit_plan(ek_place *out, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const double *room,
                   const ek_fit_opts *o)
{
    ek_fit_opts by = *o;
    char why[sizeof out->why] = "";
    if (o->split != EK_SPLIT_AUTO) return plan_by(out, kept, m, c, room, o);
    if (!o->host && ek_stage_prefers_outputs(m, o->n)) {
        by.split = EK_SPLIT_OUTPUTS;
        const ek_err err = o->apart ? ek_fail(EK_EUNSUPPORTED, "%s", o->apart) : plan_by(out, kept, m, c, room, &by);
        if (err != EK_EUNSUPPORTED && err != EK_ENOMEM) return err;
        ek_buf text = {0};
        if (err == EK_ENOMEM) say_need(&text, m, c, room, &by);
        snprintf(why, sizeof why, "layers, for outputs cannot be cut: %s",
                 err == EK_ENOMEM ? ek_buf_text(&text) : ek_err_text());
        ek_buf_fini(&text);
        memset(kept, 0, sizeof *kept * (size_t)o->n);
    }
    by.split = EK_SPLIT_LAYERS;
    EK_TRY(plan_by(out, kept, m, c, room, &by));
    memcpy(out->why, why, sizeof why);
    return EK_OK;
}

ek_fit_requests ek_fit_count_requests(const ek_place *p, const ek_fit_parts *kept, const ek_model *m,
                                      const double *room, int ctx)
{
    ek_fit_requests fewest = {.n = INT_MAX};
    for (int i = 0; i < p->n; i++) {
        const ek_fit_parts *k = &kept[p->device[i]];
        const ek_gpu_shard shard = ek_place_shards(p, i);
        ek_kv_layout own = m->layout;
        size_t at[EK_PAGE_KINDS];
        ek_gpu_pages_here(at, own.page_bytes, m, &p->share[i], &shard);
        const double left = fmax(0, ek_fit_keys_within(k, room[p->device[i]] - k->weights - k->table - k->drafter));
        const int n = ek_budget_requests_in(&own, left, ctx);
        if (n < fewest.n) fewest = (ek_fit_requests){n, left, ek_budget_request_bytes(&own, ctx)};
    }
    return fewest;
}

/* --- remedies */

/* The number of further devices, like the smallest one, that would suffice. */
static void find_more(ek_fit_advice *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o)
{
    ek_fit_opts other = {.n = o->n, .split = o->host ? EK_SPLIT_AUTO : o->split, .beside = o->beside};
    ek_cuda *all[EK_RANKS];
    double each[EK_RANKS], least = INFINITY, rooms = 0, weights = ek_model_common_bytes(m, true);
    bool held = false;
    for (int i = 0; i < m->config.n_layers; i++) weights += ek_model_layer_bytes(m, i);
    for (int i = 0; i < o->n; i++) least = fmin(least, room[i]), rooms += room[i];
    for (int i = 0; i < EK_RANKS; i++) all[i] = c[i < o->n ? i : 0], each[i] = i < o->n ? room[i] : least;
    while (!held && other.n < EK_RANKS) {
        ek_fit_parts kept[EK_RANKS] = {0};
        ek_place p;
        other.n++, rooms += least;
        held = rooms > weights && ek_fit_plan(&p, kept, m, all, each, &other) == EK_OK;
    }
    if (held) out->devices = other.n;
}

/* The same devices by whole layers, or with the CPU. */
static void find_others(ek_fit_advice *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o)
{
    out->by_layers = o->split == EK_SPLIT_OUTPUTS && o->n > 1;
    ek_fit_opts other = {.n = o->n, .split = EK_SPLIT_LAYERS, .beside = o->beside};
    ek_fit_parts kept[EK_RANKS] = {0}, beside[EK_RANKS] = {0};
    ek_place p;
    out->fit_by_layers = out->by_layers && !ek_fit_plan(&p, kept, m, c, room, &other);
    if (out->fit_by_layers) return;
    other.host = true;
    if (o->host || ek_fit_plan(&p, beside, m, c, room, &other) || p.host_end + p.host_experts == 0) return;
    out->host_layers = p.host_end + p.host_experts, out->host_experts = p.host_experts > 0;
}

ek_err ek_fit_refuse(ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o)
{
    ek_buf need = {0}, text = {0};
    ek_fit_advice advice = {.layers = m->config.n_layers};
    ek_fit_opts by = *o;
    if (by.split == EK_SPLIT_AUTO) by.split = EK_SPLIT_LAYERS; /* which takes less */
    say_need(&need, m, c, room, &by);
    find_more(&advice, m, c, room, o);
    find_others(&advice, m, c, room, o);
    ek_fit_say_advice(&text, &advice, o);
    ek_fail(EK_ENOMEM, "%s%s%s", ek_buf_text(&need), text.len ? "; " : "", ek_buf_text(&text));
    ek_buf_fini(&need), ek_buf_fini(&text);
    return EK_ENOMEM;
}
