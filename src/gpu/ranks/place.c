#include "gpu/ranks/place.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/budget.h"
#include "gpu/gpu.h"
#include "gpu/weights/cut.h"
#include "model/pass.h"

/* Of a device's room: the rest is for keys, values and a step. Beside the CPU there is more than one way to cut, and
 * what is left is what makes contexts long. */
static const double ALL = 0.95, BESIDE_HOST = 0.75;

static double gb(double bytes)
{
    return bytes / 1e9;
}

static int n_layers(const ek_model *m)
{
    return m->config.n_layers;
}

/* Where the last device's layers begin at the latest. */
static int last_border(const ek_model *m)
{
    int border = n_layers(m) - 1;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (m->last[k] >= 0 && m->last[k] < border) border = m->last[k];
    return border;
}

/* The first embeds and the last makes logits, both by one table; a model with per-layer inputs embeds everywhere. */
static ek_model_share share_of(const ek_model *m, int first, int end)
{
    return (ek_model_share){
        .first = first, .end = end, .embed = first == 0 || end == n_layers(m) || m->config.per_layer_size};
}

static double weights_of(const ek_model *m, int first, int end)
{
    double bytes = ek_model_common_bytes(m, share_of(m, first, end).embed);
    for (int i = first; i < end; i++) bytes += ek_model_layer_bytes(m, i);
    return bytes;
}

static void add(ek_place *p, const ek_model *m, int device, int first, int end)
{
    p->device[p->n] = device;
    p->share[p->n] = share_of(m, first, end);
    p->bytes[p->n++] = weights_of(m, first, end);
}

static ek_err too_large(const ek_model *m, const double *room, int n, bool host)
{
    char rooms[256] = "";
    for (int i = 0; i < n && strlen(rooms) < sizeof rooms - 32; i++)
        snprintf(rooms + strlen(rooms), sizeof rooms - strlen(rooms), "%s%.2f", i ? ", " : "", gb(room[i]));
    if (!host)
        return ek_fail(EK_ENOMEM, "the weights need %.2f GB on %d devices, which have room for %s GB",
                       gb(weights_of(m, 0, n_layers(m))), n, rooms);
    return ek_fail(
        EK_ENOMEM,
        "the layers from %d on and the head, which stay together, need %.2f GB for weights; the devices have "
        "room for %s GB, of which %.0f %% are for weights",
        last_border(m), gb(weights_of(m, last_border(m), n_layers(m))), rooms, BESIDE_HOST * 100);
}

/* Borders so that the fullest device is as empty as can be: fill[r][i] is of r devices that have the first i layers. */
static ek_err place_on_devices(ek_place *p, const ek_model *m, const double *room, int n)
{
    const int layers = n_layers(m), border = last_border(m);
    double fill[EK_RANKS + 1][EK_MAX_LAYERS + 1];
    int from[EK_RANKS + 1][EK_MAX_LAYERS + 1], cut[EK_RANKS + 1];
    if (n > border + 1)
        return ek_fail(EK_EUNSUPPORTED, "%d devices, the layers can be cut in %d places: %d devices at most", n, border,
                       border + 1);
    for (int r = 0; r <= EK_RANKS; r++)
        for (int i = 0; i <= layers; i++) fill[r][i] = r || i ? INFINITY : 0, from[r][i] = 0;
    for (int r = 1; r <= n; r++)
        for (int i = r; i <= (r < n ? border : layers); i++)
            for (int j = r - 1; j < i && (r < n || i == layers); j++) {
                const double own = weights_of(m, j, i) / room[r - 1],
                             most = own > fill[r - 1][j] ? own : fill[r - 1][j];
                if ((r > 1 && j > border) || !(most < fill[r][i])) continue;
                fill[r][i] = most, from[r][i] = j;
            }
    if (!(fill[n][layers] <= ALL)) return too_large(m, room, n, false);
    cut[n] = layers;
    for (int r = n; r > 0; r--) cut[r - 1] = from[r][cut[r]];
    for (int r = 0; r < n; r++) add(p, m, r, cut[r], cut[r + 1]);
    return EK_OK;
}

/* From the last device's last layer on, as many as it holds. */
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

ek_err ek_place_layers(ek_place *out, const ek_model *m, const double *room, int n, bool host)
{
    *out = (ek_place){0};
    return host ? place_beside_host(out, m, room, n) : place_on_devices(out, m, room, n);
}

ek_err ek_place_outputs(ek_place *out, const ek_model *m, const double *room, int n)
{
    *out = (ek_place){.split = EK_SPLIT_OUTPUTS};
    EK_TRY(ek_gpu_cut_check(m, n));
    for (int r = 0; r < n; r++) {
        add(out, m, r, 0, n_layers(m));
        out->bytes[r] = ek_gpu_cut_bytes(m, &(ek_gpu_cut){r, n});
        if (out->bytes[r] > room[r] * ALL)
            return ek_fail(EK_ENOMEM, "device %d of %d has room for %.2f GB, its part of the weights needs %.2f GB", r,
                           n, gb(room[r]), gb(out->bytes[r]));
    }
    return EK_OK;
}

ek_err ek_place_by(ek_place *out, const ek_model *m, const double *room, int n, ek_split split, bool host)
{
    return split == EK_SPLIT_OUTPUTS && n > 1 ? ek_place_outputs(out, m, room, n)
                                              : ek_place_layers(out, m, room, n, host);
}

void ek_place_give_host(ek_place *p, const ek_model *m, int end)
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

void ek_place_advise(char *out, size_t size, const ek_model *m, double room)
{
    double each[EK_RANKS];
    ek_place p;
    int n = 2;
    out[0] = '\0';
    for (int r = 0; r < EK_RANKS; r++) each[r] = room;
    while (n <= EK_RANKS && n <= last_border(m) + 1 && ek_place_layers(&p, m, each, n, false)) n++;
    if (n <= EK_RANKS && n <= last_border(m) + 1)
        snprintf(out, size, "%d such devices would hold it (--device cuda:0-%d)", n, n - 1);
    const size_t used = strlen(out);
    if (ek_place_layers(&p, m, each, 1, true) || p.host_end == 0) return;
    snprintf(out + used, size - used, "%s--device cuda:0,cpu leaves %d of %d layers to the CPU", used ? ", or " : "",
             p.host_end, n_layers(m));
}

ek_place_keys ek_place_keys_of(const ek_place *p, const ek_model *m, const double *room, int ctx)
{
    ek_place_keys fewest = {.requests = INT_MAX};
    for (int i = 0; i < p->n; i++) {
        const ek_gpu_cut cut = {i, p->split == EK_SPLIT_OUTPUTS ? p->n : 0};
        ek_kv_layout own = m->layout;
        size_t at[EK_PAGE_KINDS];
        ek_gpu_pages_here(at, own.page_bytes, m, &p->share[i], &cut);
        const double rest = (room[p->device[i]] - p->bytes[i]) * EK_GPU_KEYS_SHARE, left = rest > 0 ? rest : 0;
        const int n = ek_budget_requests_in(&own, left, ctx);
        if (n < fewest.requests) fewest = (ek_place_keys){n, left, ek_budget_request_bytes(&own, ctx)};
    }
    return fewest;
}

/* --- in words */

typedef struct words {
    char *text;
    size_t size;
} words;

static void say(const words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const words *w, const char *format, ...)
{
    const size_t used = strlen(w->text);
    va_list list;
    va_start(list, format);
    vsnprintf(w->text + used, w->size - used, format, list);
    va_end(list);
}

static void say_layers(const words *w, int first, int end)
{
    const bool more = w->text[0];
    if (end - first == 1) say(w, "%s%d", more ? ", " : "layer ", first);
    else say(w, "%s%d to %d", more ? ", " : "layers ", first, end - 1);
}

static void say_outputs(const words *w, const ek_place *p, const int *ordinal)
{
    double most = 0;
    say(w, "outputs cut over ");
    for (int i = 0; i < p->n; i++) {
        say(w, "%scuda:%d", i == 0 ? "" : i + 1 < p->n ? ", " : " and ", ordinal[p->device[i]]);
        most = p->bytes[i] > most ? p->bytes[i] : most;
    }
    say(w, " (weights up to %.2f GB each)", gb(most));
}

void ek_place_text(char *out, size_t size, const ek_place *p, const int *ordinal)
{
    const words w = {out, size};
    out[0] = '\0';
    if (p->split == EK_SPLIT_OUTPUTS) {
        say_outputs(&w, p, ordinal);
        return;
    }
    if (p->host_end) {
        say_layers(&w, 0, p->host_end);
        say(&w, " on the CPU");
    }
    for (int i = 0; i < p->n; i++) {
        say_layers(&w, p->share[i].first, p->share[i].end);
        say(&w, "%s on cuda:%d (%s%.2f GB)", i + 1 < p->n ? "" : " and the head", ordinal[p->device[i]],
            i ? "" : "weights ", gb(p->bytes[i]));
    }
}
