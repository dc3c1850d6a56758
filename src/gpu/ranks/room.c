#include "gpu/ranks/room.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/sizes.h"

/* Of the bytes of a page what `own` is at most. */
static double part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS])
{
    double most = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        const double part = l->page_bytes[k] ? (double)own[k] / (double)l->page_bytes[k] : 0;
        most = part > most ? part : most;
    }
    return most;
}

double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room)
{
    const double most = part_of_pages(&r->m->layout, own);
    return most > 0 ? room / most : INFINITY;
}

/* What keys and values may take of `left` bytes beside a step. */
static double keys_of(const ek_gpu *g, double left)
{
    const double share = left * EK_GPU_KEYS_SHARE - g->reserved, rest = left - g->kept_step - g->reserved;
    return g->kept_step > 0 ? fmax(fmin(share, rest), fmin(g->kept_keys, rest)) : share;
}

double ek_ranks_room(const ek_ranks *r, int i, double free)
{
    const ek_gpu *g = r->gpu[i];
    double own = keys_of(g, free);
    if (r->max_bytes > 0) own = fmin(own, keys_of(g, r->max_bytes - ek_gpu_bytes(g)));
    return ek_ranks_pages_for(r, g->share.kv_bytes, own > 1 ? own : 1);
}

/* --- what lies where, so that a step has room */

static ek_err place_once(ek_ranks *r, const double *room, const ek_ranks_opts *o)
{
    EK_TRY(ek_place_by(&r->place, r->m, room, o->n, o->split, o->host, o->part));
    if (!o->host) return EK_OK;
    if (o->part == EK_HOST_EXPERTS) ek_place_give_host_experts(&r->place, r->m, o->host_layers);
    else ek_place_give_host(&r->place, r->m, o->host_layers);
    return EK_OK;
}

/* Of the devices that have a part: what the rest takes of each that is too full, by its place in the list. */
static ek_err find_short(ek_ranks *r, ek_gpu *const *gpu, const double *room, const ek_ranks_opts *o, double *beside,
                         bool *found)
{
    const ek_place *p = &r->place;
    *found = false;
    for (int i = 0; i < p->n; i++) {
        const ek_gpu_cut cut = {i, p->split == EK_SPLIT_OUTPUTS ? p->n : 0};
        const int d = p->device[i], drafts = cut.ranks ? 0 : p->n - 1;
        ek_gpu_planned all;
        EK_TRY(ek_gpu_plan(&all, gpu[d]->c, r->m, &p->share[i], cut, &o->beside.step,
                           i == drafts ? o->beside.drafter : NULL));
        gpu[d]->kept_step = all.step + all.drafter_step;
        gpu[d]->kept_keys = o->beside.kv_bytes * part_of_pages(&r->m->layout, all.page_bytes);
        gpu[d]->kept_rest = all.drafter + (i == 0 ? o->beside.towers : 0);
        /* what the layers' sizes do not say of the weights, too: they are laid out for the device */
        const double need = all.weights - p->bytes[i] + gpu[d]->kept_step + gpu[d]->kept_keys + gpu[d]->kept_rest;
        if (p->bytes[i] + need <= room[d]) continue;
        *found = true;
        beside[d] = fmax(need, beside[d] * 1.02);
    }
    return EK_OK;
}

static ek_err no_room_beside(const ek_ranks_opts *o, ek_gpu *const *gpu)
{
    char why[320], more[64] = "";
    double step = 0, keys = 0, rest = 0;
    snprintf(why, sizeof why, "%s", ek_err_text());
    for (int i = 0; i < o->n; i++) {
        step = fmax(step, gpu[i]->kept_step), keys = fmax(keys, gpu[i]->kept_keys);
        rest = fmax(rest, gpu[i]->kept_rest);
    }
    if (rest > 0)
        snprintf(more, sizeof more, ", %s %.2f GB",
                 !o->beside.drafter     ? "towers"
                 : o->beside.towers > 0 ? "a drafter and towers"
                                        : "a drafter",
                 rest / 1e9);
    return ek_fail(EK_ENOMEM,
                   "%s, where keys and values take %.2f GB, a step of %d rows %.2f GB%s (fewer with a smaller --ctx, "
                   "--chunk, --max-requests or --kv-memory)",
                   why, keys / 1e9, o->beside.step.max_rows, step / 1e9, more);
}

/* The rest takes more of its room than the share that weights leave: so a device is as if it had less. */
ek_err ek_ranks_place(ek_ranks *r, ek_gpu *const *gpu, const double *room, const ek_ranks_opts *o)
{
    enum { TRIES = 64 };
    double own[EK_RANKS], beside[EK_RANKS] = {0};
    bool found = o->beside.step.max_rows > 0;
    memcpy(own, room, sizeof *own * (size_t)o->n);
    EK_TRY(place_once(r, own, o));
    for (int n = 0; n < TRIES && found; n++) {
        EK_TRY(find_short(r, gpu, room, o, beside, &found));
        for (int i = 0; i < o->n; i++) own[i] = fmax(1, fmin(room[i], (room[i] - beside[i]) / ek_place_share(o->host)));
        const ek_err err = found ? place_once(r, own, o) : EK_OK;
        if (err) return err == EK_ENOMEM ? no_room_beside(o, gpu) : err;
    }
    return found ? ek_fail(EK_ENOMEM, "no placing of the layers leaves room for a step of %d rows",
                           o->beside.step.max_rows)
                 : EK_OK;
}

ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run)
{
    const double weights = ek_gpu_bytes(run->g) + r->gpu[i]->reserved;
    double kv = 0, step = 0;
    for (const ek_gpu_run *x = run; x; x = x->drafter) step += (double)(x->scratch_bytes + x->block.bytes);
    for (int k = 0; k < EK_PAGE_KINDS; k++) kv += (double)run->page_bytes[k] * run->z.n_pages[k];
    if (r->max_bytes == 0 || weights + kv + step <= r->max_bytes) return EK_OK;
    return ek_fail(
        EK_ENOMEM,
        "cuda:%d may give %.2f GB; weights take %.2f GB, keys and values %.2f GB and a step %.2f GB (fewer with "
        "a smaller --ctx, --chunk, --max-requests or --kv-memory)",
        ek_cuda_ordinal(run->g->c), r->max_bytes / 1e9, weights / 1e9, kv / 1e9, step / 1e9);
}
