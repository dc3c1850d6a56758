#include "open/opts.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "cache/store.h"
#include "open/device.h"
#include "open/remote.h"

/* --- impossible values --- */

static const char *text_or(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

/* list: the allowed names, separated by bars, as in the message. */
static ek_err check_choice(const char *field, const char *value, const char *list)
{
    if (!value) return EK_OK;
    const size_t n = strlen(value);
    for (const char *p = list; *p;) {
        const size_t length = strcspn(p, "|");
        if (length == n && !memcmp(p, value, n)) return EK_OK;
        p += length + (p[length] == '|');
    }
    return ek_fail(EK_EINVAL, "%s: %.80s; it must be one of %s", field, value, list);
}

static ek_err check_choices(const ek_open_opts *o)
{
    EK_TRY(check_choice("synthetic", o->synthetic, "e2b|e4b|12b|26b|31b"));
    EK_TRY(check_choice("weights", o->weights, "auto|exact|8"));
    return check_choice("draft", o->draft, "off|ngram|auto");
}

static ek_err check_counts(const ek_open_opts *o)
{
    const struct {
        const char *field;
        int value, min, max; /* besides 0 */
    } counts[] = {
        {"synthetic_layers", o->synthetic_layers, 1, 256},
        {"kv_start", o->kv_start, 0, 65536},
        {"threads", o->threads, 1, 1024},
        {"chunk", o->chunk, 1, 1 << 20},
        {"draft_max", o->draft_max, 1, EK_DRAFT_MAX},
        {"ctx_tokens", o->ctx_tokens, 2, INT_MAX},
        {"max_requests", o->max_requests, 1, 65536},
        {"max_queue", o->max_queue, EK_OPEN_NONE, INT_MAX},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value && (counts[i].value < counts[i].min || counts[i].value > counts[i].max))
            return ek_fail(EK_EINVAL, "%s: %d; it must be between %d and %d, or 0 for the default", counts[i].field,
                           counts[i].value, counts[i].min, counts[i].max);
    if (o->synthetic_bits != 0 && o->synthetic_bits != 4 && o->synthetic_bits != 8)
        return ek_fail(EK_EINVAL, "synthetic_bits: %d; it must be 0, 4 or 8", o->synthetic_bits);
    return EK_OK;
}

static ek_err check_sizes(const ek_open_opts *o)
{
    const struct {
        const char *field;
        double value, max;
    } sizes[] = {
        {"gpu_bytes", o->gpu_bytes, INFINITY},
        {"kv_bytes", o->kv_bytes, INFINITY},
        {"cache_bytes", o->cache_bytes == EK_OPEN_NONE ? 0 : o->cache_bytes, INFINITY},
        {"cache_host_bytes", o->cache_host_bytes, INFINITY},
        {"cache_disk_bytes", o->cache_disk_bytes, INFINITY},
        {"max_gap", o->max_gap == EK_OPEN_NONE ? 0 : o->max_gap, 60},
        {"feature_bytes", o->feature_bytes == EK_OPEN_NONE ? 0 : o->feature_bytes, INFINITY},
        {"cache_audit", o->cache_audit == EK_OPEN_NONE ? 0 : o->cache_audit, 1},
        {"cache_shared_bytes", o->cache_shared_bytes, INFINITY},
        {"cache_shared_rate", o->cache_shared_rate, INFINITY},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!(sizes[i].value >= 0 && sizes[i].value <= sizes[i].max))
            return ek_fail(EK_EINVAL, "%s: %g; it must be between 0 and %g", sizes[i].field, sizes[i].value,
                           sizes[i].max);
    return EK_OK;
}

/* Refuses fields that cannot be used together. */
static ek_err check_pairs(const ek_open_opts *o)
{
    if (o->synthetic && o->model)
        return ek_fail(EK_EINVAL, "synthetic: %s, beside model: one of the two", o->synthetic);
    if (o->synthetic && o->chat) return ek_fail(EK_EINVAL, "synthetic: %s has no tokenizer for chat", o->synthetic);
    if (o->synthetic_layers && !o->synthetic)
        return ek_fail(EK_EINVAL, "synthetic_layers: %d, of a synthetic model only", o->synthetic_layers);
    if (o->cache_shared && ek_store_shared_check(o->cache_shared)) return ek_fail_in(EK_EINVAL, "cache_shared");
    if (o->cache_bytes != EK_OPEN_NONE || (!o->cache_dir && o->cache_host_bytes == 0 && !o->cache_shared)) return EK_OK;
    return ek_fail(EK_EINVAL, "%s: it keeps what cache_bytes %d does not allow",
                   o->cache_dir      ? "cache_dir"
                   : o->cache_shared ? "cache_shared"
                                     : "cache_host_bytes",
                   EK_OPEN_NONE);
}

ek_err ek_open_check(const ek_open_opts *o)
{
    ek_model_opts model;
    ek_device device;
    if (o->drafter_url) EK_TRY(ek_remote_check(o->drafter_url));
    EK_TRY(check_choices(o));
    EK_TRY(check_counts(o));
    EK_TRY(check_sizes(o));
    EK_TRY(check_pairs(o));
    if (ek_device_parse(&device, text_or(o->device, "auto"))) return ek_fail_in(EK_EINVAL, "device");
    EK_TRY(ek_device_set_split(&device, o->split));
    EK_TRY(ek_device_set_tune(&device, o->tune));
    return ek_open_model_opts(o, &model);
}

/* --- the values of the layers below --- */

#define MAX_GAP 0.06 /* seconds: about 17 tokens a second, more than a person reads */

ek_err ek_open_model_opts(const ek_open_opts *o, ek_model_opts *out)
{
    *out = (ek_model_opts){.exact = !strcmp(text_or(o->weights, ""), "exact"),
                           .quantise = !strcmp(text_or(o->weights, ""), "8"),
                           .kv_start = o->kv_start,
                           .packed_dir = o->packed_dir,
                           .cpu = ek_cpu_detect()};
    if (ek_kv_format_parse(text_or(o->kv, "i12"), &out->k_format, &out->v_format)) return ek_fail_in(EK_EINVAL, "kv");
    if (ek_model_check_start(o->kv_start, out->k_format, out->v_format)) return ek_fail_in(EK_EINVAL, "kv_start");
    if (ek_activations_parse(text_or(o->activations, "auto"), &out->activations))
        return ek_fail_in(EK_EINVAL, "activations");
    if (o->isa && ek_cpu_mask(o->isa, &out->cpu)) return ek_fail_in(EK_EINVAL, "isa");
    return EK_OK;
}

ek_towers_opts ek_open_towers_opts(const ek_open_opts *o, const ek_model_opts *m)
{
    return (ek_towers_opts){.cpu = m->cpu,
                            .exact = m->exact,
                            .quantise = m->quantise,
                            .pool = m->pool,
                            .synthetic = o->synthetic,
                            .packed_dir = m->packed_dir,
                            .mmproj = o->mmproj};
}

ek_engine_opts ek_open_engine_opts(const ek_open_opts *o)
{
    const char *draft = text_or(o->draft, "auto");
    ek_engine_opts out = ek_engine_defaults();
    if (o->max_requests) out.max_requests = o->max_requests;
    if (o->max_queue) out.max_queue = o->max_queue == EK_OPEN_NONE ? 0 : o->max_queue;
    if (o->chunk) out.chunk = o->chunk;
    out.max_gap = o->max_gap == EK_OPEN_NONE ? 0 : o->max_gap == 0 ? MAX_GAP : o->max_gap;
    if (o->draft_max) out.draft_max = o->draft_max;
    out.ctx_tokens = o->ctx_tokens;
    out.kv_bytes = o->kv_bytes;
    if (o->cache_bytes != 0) out.cache_bytes = o->cache_bytes == EK_OPEN_NONE ? 0 : o->cache_bytes;
    if (o->feature_bytes != 0) out.feature_bytes = o->feature_bytes == EK_OPEN_NONE ? 0 : o->feature_bytes;
    out.load_towers = o->media && o->media_now;
    out.cache_audit = o->cache_audit == EK_OPEN_NONE           ? 0
                      : o->cache_audit == 0 && o->cache_shared ? 0.01
                                                               : o->cache_audit;
    out.tell_held = o->tell_held;
    out.draft = !strcmp(draft, "off") ? EK_DRAFT_OFF : !strcmp(draft, "ngram") ? EK_DRAFT_NGRAM : EK_DRAFT_AUTO;
    return out;
}
