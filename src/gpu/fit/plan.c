#include "gpu/fit/fit.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/budget.h"

double ek_ranks_keys_within(const ek_ranks_kept *k, double left)
{
    const double share = left * EK_GPU_KEYS_SHARE - k->towers, rest = left - k->step - k->towers;
    return k->step > 0 ? fmax(fmin(share, rest), fmin(k->keys, rest)) : share;
}

/* Of the devices that have a part: what the rest takes of each that is too full, by its place in the list. */
static ek_err find_short(const ek_place *p, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const double *room,
                         const ek_ranks_opts *o, double *beside, bool *found)
{
    *found = false;
    for (int i = 0; i < p->n; i++) {
        const int d = p->device[i];
        ek_ranks_kept *const k = &kept[d];
        EK_TRY(ek_ranks_keep(k, p, i, m, c[d], room[d], o));
        /* what the layers' sizes do not say of the weights, too: they are laid out for the device */
        const double need = k->weights - p->bytes[i] + k->step + k->keys + k->drafter + k->towers;
        if (p->bytes[i] + need <= room[d]) continue;
        *found = true;
        beside[d] = fmax(need, beside[d] * 1.02);
    }
    return EK_OK;
}

/* The rest takes more of its room than the share that weights leave: so a device is as if it had less. Where what it
 * takes is known, weights may take more than their share. */
static ek_err plan_by(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const double *room,
                      const ek_ranks_opts *o)
{
    enum { TRIES = 64 };
    double own[EK_RANKS], most[EK_RANKS], beside[EK_RANKS] = {0};
    const ek_drafter *const d = o->split == EK_SPLIT_OUTPUTS && o->n > 1 ? o->beside.drafter : NULL;
    if (d) EK_TRY(ek_gpu_cut_check_drafter(ek_drafter_model(d)));
    bool found = o->beside.step.max_rows > 0;
    memcpy(most, room, sizeof *most * (size_t)o->n);
    ek_err err = ek_ranks_place_by(out, m, most, o);
    for (int i = 0; i < o->n && err; i++) most[i] = room[i] / ek_place_share(o->host);
    if (err == EK_ENOMEM && found && !o->host) err = ek_ranks_place_by(out, m, most, o);
    EK_TRY(err);
    for (int i = 0; i < out->n; i++) kept[out->device[i]].weights = out->bytes[i];
    for (int n = 0; n < TRIES && found; n++) {
        EK_TRY(find_short(out, kept, m, c, room, o, beside, &found));
        for (int i = 0; i < o->n; i++) own[i] = fmax(1, fmin(most[i], (room[i] - beside[i]) / ek_place_share(o->host)));
        if (found) EK_TRY(ek_ranks_place_by(out, m, own, o));
    }
    return found ? ek_fail(EK_ENOMEM, "no placing of the layers leaves room for a step of %d rows",
                           o->beside.step.max_rows)
                 : EK_OK;
}

ek_err ek_ranks_plan(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const double *room,
                     const ek_ranks_opts *o)
{
    ek_ranks_opts by = *o;
    char why[sizeof out->why] = "";
    if (o->split != EK_SPLIT_AUTO) return plan_by(out, kept, m, c, room, o);
    if (!o->host && ek_stage_prefers_outputs(m, o->n)) {
        by.split = EK_SPLIT_OUTPUTS;
        const ek_err err = o->apart ? ek_fail(EK_EUNSUPPORTED, "%s", o->apart) : plan_by(out, kept, m, c, room, &by);
        if (err != EK_EUNSUPPORTED && err != EK_ENOMEM) return err;
        ek_buf text = {0};
        if (err == EK_ENOMEM) ek_ranks_say_need(&text, m, c, room, &by);
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

ek_ranks_requests ek_ranks_count_requests(const ek_place *p, const ek_ranks_kept *kept, const ek_model *m,
                                          const double *room, int ctx)
{
    ek_ranks_requests fewest = {.n = INT_MAX};
    for (int i = 0; i < p->n; i++) {
        const ek_ranks_kept *k = &kept[p->device[i]];
        const ek_gpu_cut cut = ek_place_cut(p, i);
        ek_kv_layout own = m->layout;
        size_t at[EK_PAGE_KINDS];
        ek_gpu_pages_here(at, own.page_bytes, m, &p->share[i], &cut);
        const double left = fmax(0, ek_ranks_keys_within(k, room[p->device[i]] - k->weights - k->table - k->drafter));
        const int n = ek_budget_requests_in(&own, left, ctx);
        if (n < fewest.n) fewest = (ek_ranks_requests){n, left, ek_budget_request_bytes(&own, ctx)};
    }
    return fewest;
}
