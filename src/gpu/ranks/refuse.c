#include "gpu/ranks/refuse.h"

#include <math.h>

#include "model/pass.h"

static double gb(double bytes)
{
    return bytes / 1e9;
}

static void say_stay_together(ek_buf *out, const ek_model *m, int first, double bytes)
{
    const int last = m->config.n_layers - 1;
    ek_buf_fmt(out, first == last ? "layer %d" : "layers %d to %d", first, last);
    ek_buf_fmt(out, " and the head, which stay together, need %.2f GB", gb(bytes));
}

/* --- what it takes */

static double all_of(const ek_ranks_kept *k)
{
    return k->weights + k->step + k->keys + k->drafter + k->towers;
}

/* Each part beside the weights that there is, the first behind `sep`. up_to: of several devices one may take less.
 * Returns how many. */
static int say_beside(ek_buf *out, const char *sep, const ek_ranks_kept *k, int rows, const char *up_to)
{
    const struct {
        const char *what;
        double bytes;
    } part[] = {{"keys and values", k->keys}, {"a drafter", k->drafter}, {"towers", k->towers}};
    int n = 0;
    if (k->step > 0) ek_buf_fmt(out, "%sa step of %d rows %s%.2f GB", n++ ? ", " : sep, rows, up_to, gb(k->step));
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes > 0)
            ek_buf_fmt(out, "%s%s %s%.2f GB", n++ ? ", " : sep, part[i].what, up_to, gb(part[i].bytes));
    return n;
}

static void say_rooms(ek_buf *out, const double *room, const ek_ranks_opts *o)
{
    bool alike = true;
    for (int i = 0; i < o->n; i++) alike &= fabs(room[i] - room[0]) < 5e6;
    ek_buf_str(out, "; ");
    for (int i = 0; i < o->n; i++) ek_buf_fmt(out, "%scuda:%d", !i ? "" : i + 1 < o->n ? ", " : " and ", o->ordinal[i]);
    ek_buf_fmt(out, " ha%s room for %.2f", o->n > 1 ? "ve" : "s", gb(room[0]));
    for (int i = 1; i < o->n && !alike; i++) ek_buf_fmt(out, "%s%.2f", i + 1 < o->n ? ", " : " and ", gb(room[i]));
    ek_buf_fmt(out, " GB%s", o->n > 1 && alike ? " each" : "");
}

/* What the layers that stay together take of one device, where all would have room but for them. */
static void say_last(ek_buf *out, ek_model *m, ek_cuda *const *c, const ek_ranks_opts *o)
{
    const ek_ranks_opts last = {.n = 1, .host = true, .part = EK_HOST_LAYERS, .beside = o->beside};
    ek_ranks_kept kept[EK_RANKS] = {0};
    ek_place p;
    if (ek_ranks_measure(&p, kept, m, c, &last) || p.host_end == 0) return;
    ek_buf_str(out, ", of which ");
    say_stay_together(out, m, p.host_end, kept[0].weights);
}

void ek_ranks_say_need(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o)
{
    ek_ranks_kept kept[EK_RANKS] = {0}, most = {0};
    double weights = 0, all = 0, rooms = 0;
    ek_place p;
    if (ek_ranks_measure(&p, kept, m, c, o)) {
        ek_buf_str(out, ek_err_text());
        return;
    }
    for (int i = 0; i < o->n; i++) {
        const ek_ranks_kept *k = &kept[i];
        most = (ek_ranks_kept){.weights = fmax(most.weights, k->weights),
                               .step = fmax(most.step, k->step),
                               .keys = fmax(most.keys, k->keys),
                               .drafter = fmax(most.drafter, k->drafter),
                               .towers = fmax(most.towers, k->towers)};
        weights += k->weights, all += all_of(k), rooms += room[i];
    }
    const bool outputs = p.split == EK_SPLIT_OUTPUTS && p.n > 1, several = p.n > 1;
    if (p.host_end) say_stay_together(out, m, p.host_end, weights);
    else if (p.host_experts) ek_buf_fmt(out, "without experts the weights need %.2f GB", gb(weights));
    else if (outputs)
        ek_buf_fmt(out, "on each of %d devices its part of the weights needs up to %.2f GB", o->n, gb(most.weights));
    else ek_buf_fmt(out, "the weights need %.2f GB", gb(weights));
    if (several && !outputs && most.step > 0) ek_buf_fmt(out, "; on each of %d devices", o->n);
    const int n = say_beside(out, several && !outputs ? " " : ", ", &most, o->beside.step.max_rows,
                             several ? "up to " : "");
    if (n) ek_buf_fmt(out, outputs ? ", %.2f GB in all on one" : ", %.2f GB in all", gb(outputs ? all_of(&most) : all));
    if (several && !outputs && all < rooms) say_last(out, m, c, o);
    say_rooms(out, room, o);
    if (o->host || !n) ek_buf_fmt(out, ", of which weights take %.0f %% at most", ek_place_share(o->host) * 100);
    if (n && weights < rooms)
        ek_buf_str(out, " (less is needed with a smaller --ctx, --chunk, --max-requests or --kv-memory)");
}

/* --- what would do */

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

void ek_ranks_advise(ek_buf *out, ek_model *m, ek_cuda *const *c, const double *room, const ek_ranks_opts *o)
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
    ek_ranks_advise(&advice, m, c, room, o);
    ek_fail(EK_ENOMEM, "%s%s%s", ek_buf_text(&need), advice.len ? "; " : "", ek_buf_text(&advice));
    ek_buf_fini(&need), ek_buf_fini(&advice);
    return EK_ENOMEM;
}
