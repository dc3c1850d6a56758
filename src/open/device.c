#include "open/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cuda/memory.h"
#include "gpu/fit/fit.h"
#include "gpu/several/state.h"
#include "open/card.h"
#include "vulkan/vulkan.h"

/* --- the words */

static ek_err no_device(const char *text)
{
    return ek_fail(
        EK_EINVAL,
        "device %.40s; there are auto, cpu, cuda and cuda:N, several as in cuda:0,1, cuda:0-3 or cuda:all, and "
        "cuda:0,cpu, cuda:0,cpu:layers, cuda:0,cpu:experts; and vulkan, vulkan:N, vulkan:0,1, vulkan:all, vulkan:0,cpu "
        "alike",
        text);
}

static ek_err add(ek_device *d, int ordinal, const char *text)
{
    for (int i = 0; i < d->n; i++)
        if (d->ordinal[i] == ordinal)
            return ek_fail(EK_EINVAL, "device %.40s: %s:%d twice", text, d->vulkan ? "vulkan" : "cuda", ordinal);
    if (d->n == EK_RANKS) return ek_fail(EK_EINVAL, "device %.40s: more than %d devices", text, EK_RANKS);
    d->ordinal[d->n++] = ordinal;
    return EK_OK;
}

/* A number of at most four digits; -1: there is none. */
static int number(const char **p)
{
    const size_t n = strspn(*p, "0123456789");
    if (n < 1 || n > 4) return -1;
    const int value = atoi(*p);
    *p += n;
    return value;
}

/* Reads N or A-B, up to a comma or the end. */
static ek_err add_numbers(ek_device *d, const char *p, const char *end, const char *text)
{
    const int first = number(&p);
    int last = first;
    if (first >= 0 && *p == '-') {
        p++;
        last = number(&p);
    }
    if (first < 0 || last < first || p != end) return no_device(text);
    for (int i = first; i <= last; i++) EK_TRY(add(d, i, text));
    return EK_OK;
}

static bool is(const char *p, const char *end, const char *word)
{
    return (size_t)(end - p) == strlen(word) && !memcmp(p, word, (size_t)(end - p));
}

/* Reads one item of a list. After the first item, a number is enough. */
static ek_err add_item(ek_device *d, const char *p, const char *end, const char *text)
{
    const bool layers = is(p, end, "cpu:layers"), experts = is(p, end, "cpu:experts");
    if (is(p, end, "cpu") || layers || experts) {
        d->part = layers ? EK_HOST_LAYERS : experts ? EK_HOST_EXPERTS : EK_HOST_CHOSEN;
        if (d->host) return ek_fail(EK_EINVAL, "device %.40s: cpu twice", text);
        d->host = true;
        return EK_OK;
    }
    const bool vulkan = !strncmp(p, "vulkan", 6), cuda = !strncmp(p, "cuda", 4);
    if ((vulkan || cuda) && (d->n || d->all) && vulkan != d->vulkan)
        return ek_fail(EK_EINVAL, "device %.40s: a model runs on CUDA devices or on Vulkan devices, not on both", text);
    if (vulkan && d->features) return no_device(text);
    d->vulkan |= vulkan;
    if (is(p, end, "cuda") || is(p, end, "vulkan")) return add(d, 0, text);
    if (is(p, end, "cuda:all") || is(p, end, "vulkan:all")) {
        if (d->all || d->n) return no_device(text);
        d->all = true;
        return EK_OK;
    }
    if (d->all) return no_device(text);
    const char *const numbers = vulkan ? p + 6 : cuda ? p + 4 : NULL;
    if (numbers ? *numbers != ':' : !d->n) return no_device(text);
    return add_numbers(d, numbers ? numbers + 1 : p, end, text);
}

/* Reads the part after an @: sm_80. */
static ek_err parse_features(ek_device *d, const char *p, const char *text)
{
    const char *const from = p + 3;
    if (!strncmp(p, "sm_", 3)) {
        p = from;
        d->features = number(&p);
        if (!*p && d->features >= 80 && p - from >= 2) return EK_OK;
    }
    return ek_fail(EK_EINVAL, "device %.40s: behind @ stands an architecture from sm_80 on, as sm_80 or sm_86", text);
}

ek_err ek_device_parse(ek_device *out, const char *text)
{
    const char *const last = text + strcspn(text, "@");
    *out = (ek_device){.gpu = true, .split = EK_SPLIT_AUTO};
    if (*last) EK_TRY(parse_features(out, last + 1, text));
    if (is(text, last, "auto")) {
        out->may_be_cpu = true;
        out->n = 1;
        return EK_OK;
    }
    for (const char *p = text, *end; p; p = end < last ? end + 1 : NULL) {
        end = p + strcspn(p, ",@");
        EK_TRY(add_item(out, p, end, text));
    }
    if (out->n || out->all) return EK_OK;
    if (out->part) return no_device(text); /* of what? */
    *out = (ek_device){0};                 /* cpu alone */
    return EK_OK;
}

ek_err ek_device_set_split(ek_device *d, const char *split)
{
    static const char *const word[] = {
        [EK_SPLIT_LAYERS] = "layers", [EK_SPLIT_OUTPUTS] = "outputs", [EK_SPLIT_AUTO] = "auto"};
    int i = split ? 0 : EK_SPLIT_AUTO;
    while (i < EK_SPLIT_AUTO && strcmp(split, word[i])) i++;
    if (split && strcmp(split, word[i]))
        return ek_fail(EK_EINVAL, "split %.40s; there are auto, layers and outputs", split);
    if (d->host && i == EK_SPLIT_OUTPUTS)
        return ek_fail(EK_EINVAL, "split outputs: cpu has whole layers, --split layers has them");
    d->split = i;
    return EK_OK;
}

ek_err ek_device_set_tune(ek_device *d, const char *tune)
{
    static const char *const word[] = {[EK_TUNE_AUTO] = "auto", [EK_TUNE_OFF] = "off", [EK_TUNE_AGAIN] = "again"};
    for (int i = EK_TUNE_AUTO; tune && i <= EK_TUNE_AGAIN; i++)
        if (!strcmp(tune, word[i])) {
            d->tune = i;
            return EK_OK;
        }
    return tune ? ek_fail(EK_EINVAL, "tune %.40s; there are auto, off and again", tune) : EK_OK;
}

/* --- opening */

/* With auto, Vulkan's first device is used if CUDA's cannot be, but only if it is a card. Devices that share the CPU's
 * memory were never measured. */
static bool prefers_vulkan(ek_gpu_driver *vulkan, const ek_device *d)
{
    ek_gpu_driver cuda;
    if (d->vulkan || !d->may_be_cpu || d->features) return d->vulkan;
    if (!ek_gpu_driver_load(&cuda) && !ek_cuda_ask(&cuda.api, cuda.modules, cuda.built_with, 0)) return false;
    return ek_vulkan_may_have_card(getenv) && !ek_gpu_driver_load_vulkan(vulkan) && ek_vulkan_is_card(0) &&
           !ek_cuda_ask(&vulkan->api, vulkan->modules, vulkan->built_with, 0);
}

ek_err ek_device_driver(ek_gpu_driver *out, const ek_device *d)
{
    const bool vulkan = prefers_vulkan(out, d);
    EK_TRY(vulkan ? ek_gpu_driver_load_vulkan(out) : ek_gpu_driver_load(out));
    out->features = d->features;
    out->prove = vulkan ? ek_proven_take : NULL;
    return EK_OK;
}

/* Adds Vulkan's cards. Without cards, other devices, because a driver may also show the CPU. */
static ek_err add_all(ek_fit_opts *o, const ek_gpu_driver *driver, bool vulkan)
{
    int n = 0, cards = 0;
    EK_TRY(ek_cuda_devices(&driver->api, &n));
    for (int i = 0; i < n && vulkan; i++) cards += ek_vulkan_is_card(i);
    for (int i = 0; i < n && o->n < EK_RANKS; i++)
        if (!cards || ek_vulkan_is_card(i)) o->ordinal[o->n++] = i;
    if (o->n) return EK_OK;
    return ek_fail(EK_ENOTFOUND, "device %s:all: the driver finds no device", vulkan ? "vulkan" : "cuda");
}

static ek_err resolve(ek_fit_opts *o, const ek_gpu_driver *driver, const ek_device *d)
{
    *o = (ek_fit_opts){.n = d->n,
                       .maker = d->vulkan ? "vulkan" : driver->api.maker,
                       .host = d->host,
                       .part = d->part,
                       .split = d->split};
    memcpy(o->ordinal, d->ordinal, sizeof o->ordinal);
    return d->all ? add_all(o, driver, d->vulkan) : EK_OK;
}

/* For devices of other makers, the CPU encodes pictures and sounds. */
static void set_beside(ek_fit_opts *o, double max_bytes, const ek_fit_beside *beside)
{
    o->max_bytes = max_bytes, o->beside = *beside;
    if (o->maker) o->beside.towers = 0;
}

/* The whole model on one device, with the memory that is free there. */
static ek_err open_alone(ek_gpu **out, const ek_gpu_driver *driver, ek_model *model, const ek_fit_opts *o)
{
    const ek_model_share whole = {.end = ek_model_config(model)->n_layers, .embed = true};
    ek_gpu *g;
    EK_TRY(ek_gpu_open_device(&g, driver, o->ordinal[0]));
    ek_err err = ek_ranks_check_alone(g, model, o);
    if (!err) err = ek_gpu_load(g, model, &whole, (ek_gpu_shard){0});
    if (err) ek_gpu_close(g);
    else *out = g;
    return err;
}

static ek_err open_devices(ek_gpu **out, ek_ranks **ranks, const ek_device *d, double max_bytes,
                           const ek_fit_beside *beside, ek_model *model)
{
    ek_gpu_driver driver;
    ek_fit_opts o;
    EK_TRY(ek_device_driver(&driver, d));
    driver.tune = d->tune == EK_TUNE_AUTO ? ek_tuning_take : d->tune == EK_TUNE_AGAIN ? ek_tuning_again : NULL;
    EK_TRY(resolve(&o, &driver, d));
    set_beside(&o, max_bytes, beside);
    if (ek_device_is_split(d) || max_bytes > 0) return ek_ranks_open(ranks, &driver, model, &o);
    return open_alone(out, &driver, model, &o);
}

bool ek_device_is_wanted(const ek_device *d)
{
    ek_gpu_driver driver;
    int n = 0;
    if (!d->gpu || !d->may_be_cpu) return d->gpu;
    return !ek_device_driver(&driver, d) && !ek_cuda_devices(&driver.api, &n) && n > 0;
}

bool ek_device_may_leave(const ek_device *d, ek_err err)
{
    return d->may_be_cpu && (err == EK_ENOMEM || err == EK_EUNSUPPORTED || err == EK_ENOTFOUND);
}

ek_err ek_device_open(ek_gpu **out, ek_ranks **ranks, const ek_device *d, double max_bytes, const ek_fit_beside *beside,
                      ek_model *model, ek_err *why)
{
    *out = NULL, *ranks = NULL;
    *why = EK_OK;
    if (!d->gpu) return EK_OK;
    const ek_err err = open_devices(out, ranks, d, max_bytes, beside, model);
    if (!err || !ek_device_may_leave(d, err)) return err;
    *why = err;
    return EK_OK;
}

/* Finds the existing devices. With max_bytes, further devices are assumed to have the size of an H100. */
static ek_err find_devices(ek_cuda **c, double *room, const ek_gpu_driver *driver, const ek_fit_opts *o)
{
    enum { HOPPER = 90, MULTIPROCESSORS = 132 };
    for (int i = 0; i < o->n; i++) {
        size_t free = 0, total;
        const ek_err err = driver->modules ? ek_cuda_open(&c[i], &driver->api, driver->modules, driver->built_with,
                                                          o->ordinal[i], driver->features)
                                           : EK_EUNSUPPORTED;
        if (err && o->max_bytes == 0) return err;
        const int like = o->maker ? EK_CUDA_PLAIN : driver->features ? driver->features : HOPPER;
        if (err) c[i] = ek_cuda_on_paper(like, MULTIPROCESSORS);
        else EK_TRY(ek_cuda_room(c[i], &free, &total));
        room[i] = o->max_bytes > 0 ? o->max_bytes : (double)free;
    }
    return EK_OK;
}

static ek_err place(char *out, size_t size, ek_model *model, const ek_gpu_driver *driver, const ek_fit_opts *o, int ctx)
{
    ek_cuda *c[EK_RANKS] = {0};
    ek_fit_parts kept[EK_RANKS] = {0};
    double room[EK_RANKS] = {0};
    ek_place p;
    ek_err err = find_devices(c, room, driver, o);
    if (!err) err = ek_fit_plan(&p, kept, model, c, room, o);
    if (err == EK_ENOMEM && room[o->n - 1] > 0) err = ek_fit_refuse(model, c, room, o);
    for (int i = 0; i < o->n; i++) ek_cuda_close(c[i]);
    if (err) return err;
    ek_place_text(out, size, &p, o->ordinal);
    const ek_fit_requests k = ek_fit_count_requests(&p, kept, model, room, ctx);
    return ek_fit_say_beside(out, size, o, kept, &k, ctx);
}

ek_err ek_device_place(char *out, size_t size, const ek_device *d, double max_bytes, const ek_fit_beside *beside,
                       int ctx, ek_model *model)
{
    ek_gpu_driver driver = {0};
    ek_fit_opts o;
    const ek_err err = ek_device_driver(&driver, d);
    if (err && (d->all || max_bytes == 0)) return err;
    if (err) driver.modules = NULL;
    EK_TRY(resolve(&o, &driver, d));
    set_beside(&o, max_bytes, beside);
    return place(out, size, model, &driver, &o, ctx);
}

double ek_device_room(const char *text, double max_bytes, const ek_model *model)
{
    ek_gpu_driver driver;
    ek_device d;
    ek_gpu *g;
    if (ek_device_parse(&d, text ? text : "auto") || !d.gpu || ek_device_is_split(&d)) return 0;
    if (ek_device_driver(&driver, &d)) return 0;
    if (ek_gpu_open_device(&g, &driver, d.ordinal[0])) return 0;
    const double free = ek_gpu_room(g), given = max_bytes > 0 && max_bytes < free ? max_bytes : free;
    double weights = ek_model_common_bytes(model, true);
    for (int i = 0; i < ek_model_config(model)->n_layers; i++) weights += ek_model_layer_bytes(model, i);
    ek_gpu_close(g);
    return given > weights ? (given - weights) * EK_GPU_KEYS_SHARE : 0;
}

static ek_err add_text(const ek_gpu_driver *driver, int ordinal, char *out, size_t room)
{
    const size_t used = strlen(out);
    ek_cuda *c;
    EK_TRY(ek_cuda_open(&c, &driver->api, driver->modules, driver->built_with, ordinal, driver->features));
    snprintf(out + used, room - used, "%s%s:%d (%s)", used ? ", " : "", ek_cuda_maker(c), ordinal, ek_cuda_text(c));
    ek_cuda_close(c);
    return EK_OK;
}

ek_err ek_device_text(const ek_device *d, char *out, size_t room)
{
    ek_gpu_driver driver;
    ek_fit_opts o = {0};
    snprintf(out, room, "cpu");
    if (!d->gpu) return EK_OK;
    ek_err err = ek_device_driver(&driver, d);
    if (!err) err = resolve(&o, &driver, d);
    if (!err) out[0] = '\0';
    for (int i = 0; i < o.n && !err; i++) err = add_text(&driver, o.ordinal[i], out, room);
    if (err && !d->may_be_cpu) return err;
    if (err) snprintf(out, room, "cpu: %s", ek_err_text());
    else if (d->host) snprintf(out + strlen(out), room - strlen(out), ", cpu");
    return EK_OK;
}
