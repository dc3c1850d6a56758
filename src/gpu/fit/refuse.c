#include "gpu/fit/fit.h"

#include <math.h>

#include "model/pass.h"

/* As many more like the one that has least as are enough. */
static void say_more(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o)
{
    ek_ranks_opts other = {.n = o->n, .split = o->host ? EK_SPLIT_AUTO : o->split, .beside = o->beside};
    ek_cuda *all[EK_RANKS];
    double each[EK_RANKS], least = INFINITY, rooms = 0, weights = ek_model_common_bytes(m, true);
    bool held = false;
    for (int i = 0; i < m->config.n_layers; i++) weights += ek_model_layer_bytes(m, i);
    for (int i = 0; i < o->n; i++) least = fmin(least, room[i]), rooms += room[i];
    for (int i = 0; i < EK_RANKS; i++) all[i] = c[i < o->n ? i : 0], each[i] = i < o->n ? room[i] : least;
    while (!held && other.n < EK_RANKS) {
        ek_ranks_kept kept[EK_RANKS] = {0};
        ek_place p;
        other.n++, rooms += least;
        held = rooms > weights && ek_ranks_plan(&p, kept, m, all, each, &other) == EK_OK;
    }
    if (held) ek_buf_fmt(out, "%d such devices would hold it (--device cuda:0-%d)", other.n, other.n - 1);
}

/* The same devices by whole layers, or with the CPU. */
static void say_layers(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o)
{
    const char *const by = o->split == EK_SPLIT_OUTPUTS && o->n > 1 ? " --split layers" : "";
    ek_ranks_opts other = {.n = o->n, .split = EK_SPLIT_LAYERS, .beside = o->beside};
    ek_ranks_kept kept[EK_RANKS] = {0}, beside[EK_RANKS] = {0};
    ek_place p;
    if (*by && !ek_ranks_plan(&p, kept, m, c, room, &other)) {
        ek_buf_fmt(out, "%s%s would do", out->len ? ", or" : "", by);
        return;
    }
    other.host = true;
    if (o->host || ek_ranks_plan(&p, beside, m, c, room, &other) || p.host_end + p.host_experts == 0) return;
    ek_buf_str(out, out->len ? ", or --device " : "--device ");
    for (int i = 0; i < o->n; i++) ek_buf_fmt(out, i ? ",%d" : "cuda:%d", o->ordinal[i]);
    ek_buf_fmt(out, ",cpu%s leaves %s%d of %d layers to the CPU", by, p.host_experts ? "the experts of " : "",
               p.host_end + p.host_experts, m->config.n_layers);
}

/* "2 such devices would hold it (--device cuda:0-1), or --device cuda:0,cpu leaves 14 of 60 layers to the CPU".
 * Nothing, if there is no way. */
static void advise(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o)
{
    say_more(out, m, c, room, o);
    say_layers(out, m, c, room, o);
}

ek_err ek_ranks_refuse(ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o)
{
    ek_buf need = {0}, advice = {0};
    ek_ranks_opts by = *o;
    if (by.split == EK_SPLIT_AUTO) by.split = EK_SPLIT_LAYERS; /* which takes less */
    ek_ranks_say_need(&need, m, c, room, &by);
    advise(&advice, m, c, room, o);
    ek_fail(EK_ENOMEM, "%s%s%s", ek_buf_text(&need), advice.len ? "; " : "", ek_buf_text(&advice));
    ek_buf_fini(&need), ek_buf_fini(&advice);
    return EK_ENOMEM;
}
