#include "gpu/fit/fit.h"

#include <math.h>

#include "gpu/weights/shard.h"
#include "model/pass.h"

/* Maximum fractions of a device's room for weights; the rest is for keys, values and a step. Beside the CPU the
 * fraction is smaller, because the CPU can take more layers and a larger rest allows longer contexts. */
static const double ALL = 0.95, BESIDE_HOST = 0.75;

/* If weights take at most this fraction of the room, times place the layers: one layer more or less then hardly
 * shortens contexts. */
static const double HALF = 0.5;

double ek_place_share(bool host)
{
    return host ? BESIDE_HOST : ALL;
}

static int n_layers(const ek_model *m)
{
    return m->config.n_layers;
}

/* The first layer that must lie on the last device. */
static int last_border(const ek_model *m)
{
    int border = n_layers(m) - 1;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (m->last[k] >= 0 && m->last[k] < border) border = m->last[k];
    return border;
}

/* The first device embeds and the last one makes logits, both by one table; a model with per-layer inputs embeds on
 * every device. */
static ek_model_share share_of(const ek_model *m, int first, int end)
{
    return (ek_model_share){
        .first = first, .end = end, .embed = first == 0 || end == n_layers(m) || m->config.per_layer_size};
}

/* Bytes of weights without the experts of layers [0, host_experts). */
static double weights_beside(const ek_model *m, int first, int end, int host_experts)
{
    double bytes = ek_model_common_bytes(m, share_of(m, first, end).embed);
    for (int i = first; i < end; i++) bytes += ek_model_layer_bytes(m, i);
    for (int i = first; i < end && i < host_experts; i++) bytes -= ek_model_experts_bytes(m, i, m->config.n_experts);
    return bytes;
}

static double weights_of(const ek_model *m, int first, int end)
{
    return weights_beside(m, first, end, 0);
}

static void add(ek_place *p, const ek_model *m, int device, int first, int end)
{
    p->device[p->n] = device;
    p->share[p->n] = share_of(m, first, end);
    p->share[p->n].host_experts = p->host_experts;
    p->bytes[p->n++] = weights_beside(m, first, end, p->host_experts);
}

static ek_err too_large(const ek_model *m, const double *room, int n, bool host)
{
    const int first = host ? last_border(m) : 0;
    return ek_fit_fail_weights(first, weights_of(m, first, n_layers(m)), room, n, host ? BESIDE_HOST : 1);
}

/* The costs that borders minimise for the device with the highest cost. */
typedef struct aim {
    const double *room;
    double share; /* maximum fraction of a device's room for weights */
    bool time; /* the cost is the time of a step of a few replies; false: the fraction of the room that weights take */
} aim;

static double cost_of(const ek_place *p, const ek_model *m, const aim *a, int r, int first, int end)
{
    enum { FEW = 4 };
    const double fill = weights_beside(m, first, end, p->host_experts) / a->room[r];
    if (fill > a->share) return INFINITY;
    if (!a->time) return fill;
    const ek_stage own = ek_stage_of(m, first, end);
    return ek_stage_time(&own, FEW, FEW);
}

/* Finds the borders of n devices, cut[0] to cut[n], with the lowest cost of the most expensive device, and returns this
 * cost. cost[r][i] is the cost of r devices with the first i layers. INFINITY: there are no such borders. */
static double find_borders(int *shard, const ek_place *p, const ek_model *m, int n, const aim *a)
{
    const int layers = n_layers(m), border = last_border(m);
    double cost[EK_RANKS + 1][EK_MAX_LAYERS + 1];
    int from[EK_RANKS + 1][EK_MAX_LAYERS + 1];
    for (int r = 0; r <= EK_RANKS; r++)
        for (int i = 0; i <= layers; i++) cost[r][i] = r || i ? INFINITY : 0, from[r][i] = 0;
    for (int r = 1; r <= n; r++)
        for (int i = r; i <= (r < n ? border : layers); i++)
            for (int j = r - 1; j < i && (r < n || i == layers); j++) {
                if (r > 1 && j > border) continue;
                const double own = cost_of(p, m, a, r - 1, j, i), max = own > cost[r - 1][j] ? own : cost[r - 1][j];
                if (max < cost[r][i]) cost[r][i] = max, from[r][i] = j;
            }
    shard[n] = layers;
    for (int r = n; r > 0; r--) shard[r - 1] = from[r][shard[r]];
    return cost[n][layers];
}

/* Places layers by time if there is room for that. Devices also wait for layers whose experts are the CPU's. Weights
 * take at most `share` of a device's room. */
static ek_err place_on_devices(ek_place *p, const ek_model *m, const double *room, int n, double share)
{
    const int border = last_border(m);
    int shard[EK_RANKS + 1];
    if (n > border + 1)
        return ek_fail(EK_EUNSUPPORTED, "%d devices, the layers can be cut in %d places: %d devices at most", n, border,
                       border + 1);
    if ((p->host_experts || find_borders(shard, p, m, n, &(aim){room, HALF, true}) == INFINITY) &&
        find_borders(shard, p, m, n, &(aim){room, share, false}) == INFINITY)
        return too_large(m, room, n, false);
    for (int r = 0; r < n; r++) add(p, m, r, shard[r], shard[r + 1]);
    return EK_OK;
}

/* From the last device's last layer backwards, each device takes as many layers as it can hold. */
static ek_err place_beside_host(ek_place *p, const ek_model *m, const double *room, int n)
{
    int first[EK_RANKS], end = n_layers(m), used = 0;
    for (int r = n - 1; r >= 0 && end > 0; r--, used++) {
        int i = end;
        while (i > 0 && weights_of(m, i - 1, end) <= room[r] * BESIDE_HOST) i--;
        if (r == n - 1 && i > last_border(m)) return too_large(m, room, n, true);
        first[r] = i;
        if (i == end) break; /* none */
        end = i;
    }
    p->host_end = end;
    for (int r = n - used; r < n; r++) add(p, m, r, first[r], r + 1 < n ? first[r + 1] : n_layers(m));
    return EK_OK;
}

/* Puts the experts of as few layers as possible on the CPU, and the rest on the devices. */
static ek_err place_experts(ek_place *out, const ek_model *m, const double *room, int n)
{
    if (!m->config.n_experts)
        return ek_fail(EK_EUNSUPPORTED, "the model has no experts that the CPU could have (cpu:layers)");
    double least = weights_beside(m, 0, n_layers(m), n_layers(m));
    for (int k = 0; k <= n_layers(m); k++) {
        *out = (ek_place){.host_experts = k};
        if (place_on_devices(out, m, room, n, BESIDE_HOST) == EK_OK) return EK_OK;
    }
    return ek_fit_fail_experts(least, n, BESIDE_HOST);
}

/* Bytes of weights that the CPU reads for a token. */
static double read_by_host(const ek_place *p, const ek_model *m)
{
    double bytes = 0;
    for (int i = 0; i < p->host_end; i++)
        bytes += ek_model_layer_bytes(m, i) - ek_model_experts_bytes(m, i, m->config.n_experts) +
                 ek_model_experts_bytes(m, i, m->config.top_k_experts);
    for (int i = 0; i < p->host_experts; i++) bytes += ek_model_experts_bytes(m, i, m->config.top_k_experts);
    return bytes;
}

static ek_err place_with_host(ek_place *out, const ek_model *m, const double *room, int n, ek_host_part part)
{
    ek_place experts;
    if (part == EK_HOST_EXPERTS) return place_experts(out, m, room, n);
    *out = (ek_place){0};
    const ek_err err = place_beside_host(out, m, room, n);
    if (part == EK_HOST_LAYERS || !m->config.n_experts || (!err && !out->host_end)) return err;
    if (place_experts(&experts, m, room, n)) {
        *out = (ek_place){0}; /* for its sentence */
        return place_beside_host(out, m, room, n);
    }
    if (err || read_by_host(&experts, m) < read_by_host(out, m)) *out = experts;
    return EK_OK;
}

ek_gpu_shard ek_place_shards(const ek_place *p, int i)
{
    return (ek_gpu_shard){i, p->split == EK_SPLIT_OUTPUTS ? p->n : 0, p->whole_o};
}

/* False if there is little room: keys then need the memory that all of o would take. */
static bool have_room_for_o(const ek_model *m, const double *room, int n)
{
    bool all = true;
    for (int r = 0; r < n; r++) all &= 2 * ek_gpu_shard_bytes(m, &(ek_gpu_shard){r, n, true}) <= room[r];
    return all;
}

static ek_err place_outputs(ek_place *out, const ek_model *m, const double *room, int n)
{
    *out = (ek_place){.split = EK_SPLIT_OUTPUTS};
    EK_TRY(ek_gpu_shard_check(m, n));
    out->whole_o = have_room_for_o(m, room, n);
    for (int r = 0; r < n; r++) {
        add(out, m, r, 0, n_layers(m));
        out->bytes[r] = ek_gpu_shard_bytes(m, &(ek_gpu_shard){r, n, out->whole_o});
        if (out->bytes[r] > room[r] * ALL) return ek_fit_fail_output(r, n, room[r], out->bytes[r]);
    }
    return EK_OK;
}

/* Gives the CPU the experts of layers [0, end), if it had fewer. */
static void give_host_experts(ek_place *p, const ek_model *m, int end)
{
    const ek_place old = *p;
    if (end <= old.host_experts) return;
    p->n = 0, p->host_experts = end < n_layers(m) ? end : n_layers(m);
    for (int r = 0; r < old.n; r++) add(p, m, old.device[r], old.share[r].first, old.share[r].end);
}

/* The same for whole layers. The last device keeps the layers that it must have. */
static void give_host(ek_place *p, const ek_model *m, int end)
{
    const ek_place old = *p;
    if (end > last_border(m)) end = last_border(m);
    if (end <= old.host_end) return;
    p->n = 0, p->host_end = end;
    for (int r = 0; r < old.n; r++) {
        const int first = old.share[r].first > end ? old.share[r].first : end;
        if (first < old.share[r].end) add(p, m, old.device[r], first, old.share[r].end);
    }
}

ek_err ek_place_by(ek_place *out, const ek_model *m, const double *room, const ek_fit_opts *o)
{
    EK_ASSERT(o->split != EK_SPLIT_AUTO);
    *out = (ek_place){0};
    EK_TRY(o->split == EK_SPLIT_OUTPUTS && o->n > 1 ? place_outputs(out, m, room, o->n)
           : o->host                                ? place_with_host(out, m, room, o->n, o->part)
                                                    : place_on_devices(out, m, room, o->n, ALL));
    out->maker = o->maker;
    out->whole_o &= !o->part_o;
    if (!o->host) return EK_OK;
    if (o->part == EK_HOST_EXPERTS) give_host_experts(out, m, o->host_layers);
    else give_host(out, m, o->host_layers);
    return EK_OK;
}
