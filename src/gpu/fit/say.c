/* All sentences of bytes: the size of each part, the available memory, the remedies. Planning and opening give the
 * numbers. */
#include "gpu/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double gb(double bytes)
{
    return bytes / 1e9;
}

/* --- the placement of a model */

static void say_layers(ek_buf *out, int first, int end, bool more)
{
    if (end - first == 1) ek_buf_fmt(out, "%s%d", more ? ", " : "layer ", first);
    else ek_buf_fmt(out, "%s%d to %d", more ? ", " : "layers ", first, end - 1);
}

static const char *named(const char *maker)
{
    return maker ? maker : "cuda";
}

static void say_outputs(ek_buf *out, const ek_place *p, const int *ordinal)
{
    double limit = 0;
    ek_buf_fmt(out, "outputs cut over ");
    for (int i = 0; i < p->n; i++) {
        ek_buf_fmt(out, "%s%s:%d", i == 0 ? "" : i + 1 < p->n ? ", " : " and ", named(p->maker), ordinal[p->device[i]]);
        limit = p->bytes[i] > limit ? p->bytes[i] : limit;
    }
    ek_buf_fmt(out, " (weights up to %.2f GB each)", gb(limit));
}

static void say_places(ek_buf *out, const ek_place *p, const int *ordinal)
{
    if (p->host_end) {
        say_layers(out, 0, p->host_end, false);
        ek_buf_fmt(out, " on the CPU");
    }
    if (p->host_experts) {
        ek_buf_fmt(out, "experts of ");
        ek_buf_fmt(out, p->host_experts == 1 ? "layer 0" : "layers 0 to %d", p->host_experts - 1);
        ek_buf_fmt(out, " on the CPU, ");
    }
    for (int i = 0; i < p->n; i++) {
        say_layers(out, p->share[i].first, p->share[i].end, i || p->host_end);
        ek_buf_fmt(out, "%s on %s:%d (%s%.2f GB)", i + 1 < p->n ? "" : " and the head", named(p->maker),
                   ordinal[p->device[i]], i ? "" : "weights ", gb(p->bytes[i]));
    }
}

void ek_place_text(char *out, size_t size, const ek_place *p, const int *ordinal)
{
    ek_buf text = {0};
    if (p->split == EK_SPLIT_OUTPUTS) say_outputs(&text, p, ordinal);
    else say_places(&text, p, ordinal);
    snprintf(out, size, "%s", ek_buf_text(&text));
    ek_buf_fini(&text);
}

ek_err ek_fit_say_beside(char *out, size_t size, const ek_fit_opts *o, const ek_fit_parts *kept,
                         const ek_fit_requests *k, int ctx)
{
    const size_t used = strlen(out);
    double step = 0, table = 0;
    if (k->n == 0)
        return ek_fail(EK_ENOMEM,
                       "%s; keys and values of one request of %d tokens need %.2f GB, %.2f GB are left for them", out,
                       ctx, k->each / 1e9, k->left / 1e9);
    for (int i = 0; i < o->n; i++) {
        step = kept[i].step > step ? kept[i].step : step;
        table = kept[i].table > table ? kept[i].table : table;
    }
    ek_buf text = {0};
    ek_buf_fmt(&text, "; beside them keys and values of %d request%s of %d tokens, %.2f GB each", k->n,
               k->n == 1 ? "" : "s", ctx, k->each / 1e9);
    if (step > 0) ek_buf_fmt(&text, "; a step of %d rows %.2f GB", o->beside.step.max_rows, step / 1e9);
    if (table > 0) ek_buf_fmt(&text, "; per-layer embeddings %.2f GB", table / 1e9);
    if (o->beside.towers > 0) ek_buf_fmt(&text, "; pictures and sounds %.2f GB", o->beside.towers / 1e9);
    snprintf(out + used, size - used, "%s", ek_buf_text(&text));
    ek_buf_fini(&text);
    return EK_OK;
}

/* --- the needs of a model */

static void say_stay_together(ek_buf *out, int first, int layers, double bytes)
{
    const int last = layers - 1;
    ek_buf_fmt(out, first == last ? "layer %d" : "layers %d to %d", first, last);
    ek_buf_fmt(out, " and the head, which stay together, need %.2f GB", gb(bytes));
}

/* Appends each part besides the weights, the first one after `sep`. up_to: on some devices the parts may be smaller.
 * Returns the number of parts. */
static int say_beside(ek_buf *out, const char *sep, const ek_fit_parts *k, int rows, const char *up_to)
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

static void say_rooms(ek_buf *out, const double *room, const ek_fit_opts *o)
{
    bool alike = true;
    for (int i = 0; i < o->n; i++) alike &= fabs(room[i] - room[0]) < 5e6;
    ek_buf_str(out, "; ");
    for (int i = 0; i < o->n; i++)
        ek_buf_fmt(out, "%s%s:%d", !i ? "" : i + 1 < o->n ? ", " : " and ", named(o->maker), o->ordinal[i]);
    ek_buf_fmt(out, " ha%s room for %.2f", o->n > 1 ? "ve" : "s", gb(room[0]));
    for (int i = 1; i < o->n && !alike; i++) ek_buf_fmt(out, "%s%.2f", i + 1 < o->n ? ", " : " and ", gb(room[i]));
    ek_buf_fmt(out, " GB%s", o->n > 1 && alike ? " each" : "");
}

void ek_fit_say_need(ek_buf *out, const ek_fit_need *need, const double *room, const ek_fit_opts *o)
{
    if (need->host_end) say_stay_together(out, need->host_end, need->layers, need->weights);
    else if (need->host_experts) ek_buf_fmt(out, "without experts the weights need %.2f GB", gb(need->weights));
    else if (need->outputs)
        ek_buf_fmt(out, "on each of %d devices its part of the weights needs up to %.2f GB", o->n,
                   gb(need->max.weights));
    else ek_buf_fmt(out, "the weights need %.2f GB", gb(need->weights));
    if (need->several && !need->outputs && need->max.step > 0) ek_buf_fmt(out, "; on each of %d devices", o->n);
    const int n = say_beside(out, need->several && !need->outputs ? " " : ", ", &need->max, o->beside.step.max_rows,
                             need->several ? "up to " : "");
    if (n)
        ek_buf_fmt(out, need->outputs ? ", %.2f GB in all on one" : ", %.2f GB in all",
                   gb(need->outputs ? need->all_on_one : need->all));
    if (need->last > 0) {
        ek_buf_str(out, ", of which ");
        say_stay_together(out, need->first, need->layers, need->last);
    }
    say_rooms(out, room, o);
    if (o->host || !n) ek_buf_fmt(out, ", of which weights take %.0f %% at most", need->share * 100);
    if (n && need->fewer)
        ek_buf_str(out, " (less is needed with a smaller --ctx, --chunk, --max-requests or --kv-memory)");
}

/* --- remedies */

void ek_fit_say_advice(ek_buf *out, const ek_fit_advice *a, const ek_fit_opts *o)
{
    const char *const by = a->by_layers ? " --split layers" : "";
    if (a->devices)
        ek_buf_fmt(out, "%d such devices would hold it (--device %s:0-%d)", a->devices, named(o->maker),
                   a->devices - 1);
    if (a->fit_by_layers) ek_buf_fmt(out, "%s%s would do", out->len ? ", or" : "", by);
    if (!a->host_layers) return;
    ek_buf_str(out, out->len ? ", or --device " : "--device ");
    ek_buf_str(out, named(o->maker));
    for (int i = 0; i < o->n; i++) ek_buf_fmt(out, i ? ",%d" : ":%d", o->ordinal[i]);
    ek_buf_fmt(out, ",cpu%s leaves %s%d of %d layers to the CPU", by, a->host_experts ? "the experts of " : "",
               a->host_layers, a->layers);
}

/* --- parts without room */

ek_err ek_fit_fail_weights(int first, double bytes, const double *room, int n, double share)
{
    char rooms[256] = "";
    for (int i = 0; i < n && strlen(rooms) < sizeof rooms - 32; i++)
        snprintf(rooms + strlen(rooms), sizeof rooms - strlen(rooms), "%s%.2f", i ? ", " : "", gb(room[i]));
    if (share == 1)
        return ek_fail(EK_ENOMEM, "the weights need %.2f GB on %d device%s room for %s GB", gb(bytes), n,
                       n == 1 ? ", which has" : "s, which have", rooms);
    return ek_fail(
        EK_ENOMEM,
        "the layers from %d on and the head, which stay together, need %.2f GB for weights; the devices have "
        "room for %s GB, of which %.0f %% are for weights",
        first, gb(bytes), rooms, share * 100);
}

ek_err ek_fit_fail_experts(double bytes, int n, double share)
{
    return ek_fail(EK_ENOMEM,
                   "without its experts the model needs %.2f GB on %d device%s, of whose room %.0f %% are for weights",
                   gb(bytes), n, n == 1 ? "" : "s", share * 100);
}

ek_err ek_fit_fail_output(int rank, int n, double room, double bytes)
{
    return ek_fail(EK_ENOMEM, "device %d of %d has room for %.2f GB, its part of the weights needs %.2f GB", rank, n,
                   gb(room), gb(bytes));
}

ek_err ek_fit_fail_taken(const ek_cuda *c, double room, const ek_fit_parts *k)
{
    return ek_fail(
        EK_ENOMEM,
        "%s:%d may give %.2f GB; weights take %.2f GB, keys and values %.2f GB and a step %.2f GB (fewer with "
        "a smaller --ctx, --chunk, --max-requests or --kv-memory)",
        ek_cuda_maker(c), ek_cuda_ordinal(c), gb(room), gb(k->weights), gb(k->keys), gb(k->step));
}

ek_err ek_fit_fail_free(double room, const ek_fit_parts *k, bool drafter)
{
    if (drafter)
        return ek_fail(
            EK_ENOMEM,
            "the device has %.2f GB free; a step of the drafter needs %.2f GB (fewer with a smaller --ctx or "
            "--max-requests)",
            gb(room), gb(k->step));
    return ek_fail(EK_ENOMEM,
                   "the device has %.2f GB free; keys and values need %.2f GB and a step %.2f GB (fewer with a smaller "
                   "--ctx, --chunk, --max-requests or --kv-memory)",
                   gb(room), gb(k->keys), gb(k->step));
}
