#include "gpu/fit/fit.h"

#include <math.h>

#include "gpu/weights/weights.h"
#include "model/pass.h"

double ek_ranks_part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS])
{
    double most = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        const double part = l->page_bytes[k] ? (double)own[k] / (double)l->page_bytes[k] : 0;
        most = part > most ? part : most;
    }
    return most;
}

ek_err ek_ranks_place_by(ek_place *p, const ek_model *m, const double *room, const ek_ranks_opts *o)
{
    EK_TRY(ek_place_by(p, m, room, o->n, o->split, o->host, o->part));
    p->whole_o &= !o->part_o;
    if (!o->host) return EK_OK;
    if (o->part == EK_HOST_EXPERTS) ek_place_give_host_experts(p, m, o->host_layers);
    else ek_place_give_host(p, m, o->host_layers);
    return EK_OK;
}

ek_err ek_ranks_keep(ek_ranks_kept *out, const ek_place *p, int i, ek_model *m, ek_cuda *c, double room,
                     const ek_ranks_opts *o)
{
    const int drafts = p->split == EK_SPLIT_OUTPUTS ? 0 : p->n - 1;
    ek_gpu_planned all;
    EK_TRY(ek_gpu_plan(&all, c, m, &p->share[i], ek_place_cut(p, i), &o->beside.step,
                       i == drafts ? o->beside.drafter : NULL));
    *out = (ek_ranks_kept){.weights = all.weights,
                           .step = all.step + all.drafter_step,
                           .keys = o->beside.kv_bytes * ek_ranks_part_of_pages(&m->layout, all.page_bytes),
                           .drafter = all.drafter,
                           .towers = i == 0 ? o->beside.towers : 0};
    const double rest = out->step + out->keys + out->drafter + out->towers;
    if (ek_gpu_table_fits(all.table, room - all.weights, rest)) out->table = all.table;
    return EK_OK;
}

ek_err ek_ranks_measure(ek_place *out, ek_ranks_kept *kept, ek_model *m, ek_cuda *const *c, const ek_ranks_opts *o)
{
    double room[EK_RANKS];
    for (int i = 0; i < o->n; i++) room[i] = 1e18;
    EK_TRY(ek_ranks_place_by(out, m, room, o));
    out->whole_o = false; /* which is as there is room */
    for (int i = 0; i < out->n && out->split == EK_SPLIT_OUTPUTS; i++) {
        const ek_gpu_cut cut = ek_place_cut(out, i);
        out->bytes[i] = ek_gpu_cut_bytes(m, &cut);
    }
    if (o->host && o->part == EK_HOST_EXPERTS) ek_place_give_host_experts(out, m, m->config.n_layers);
    else if (o->host) ek_place_give_host(out, m, m->config.n_layers);
    for (int i = 0; i < out->n; i++) {
        ek_ranks_kept *const k = &kept[out->device[i]];
        if (o->beside.step.max_rows > 0) EK_TRY(ek_ranks_keep(k, out, i, m, c[out->device[i]], room[i], o));
        else k->weights = out->bytes[i];
    }
    return EK_OK;
}

/* --- the sentence */

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
