#include "model/quant.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

const char *ek_bare_name(const char *name)
{
    static const char *const prefix[] = {"model.language_model.", "language_model.model.", "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0) return name + strlen(prefix[i]);
    return name;
}

/* Modes of floats have one width and one group each; which of them a module is stored in is seen from those and from
 * its tensors. */
static ek_err read_mx(const json_t *mode, const char *where, int *bits, int *group)
{
    static const struct {
        const char *name;
        int bits, group;
    } known[] = {{"affine", 0, 0}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};
    const char *name = json_string_value(mode);
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) {
            if (known[i].bits) *bits = known[i].bits, *group = known[i].group;
            return EK_OK;
        }
    return ek_fail(EK_EUNSUPPORTED,
                   "config.json: quantization mode of %.150s is %.40s; affine, mxfp4, mxfp8 and nvfp4 can be run",
                   where, name ? name : "no string");
}

static bool is_affine(const json_t *mode)
{
    return strcmp(json_string_value(mode), "affine") == 0;
}

static ek_err read_mode(const json_t *v, const char *where, int *bits, int *group)
{
    const json_t *mode = json_object_get(v, "mode"), *b = json_object_get(v, "bits"),
                 *g = json_object_get(v, "group_size");
    if (mode) EK_TRY(read_mx(mode, where, bits, group));
    json_int_t nb = json_integer_value(b), ng = json_integer_value(g);
    if (b && !(json_is_integer(b) && nb >= 2 && nb <= 8 && nb != 7))
        return ek_fail(EK_EFORMAT, "config.json: quantization bits of %.150s must be 2, 3, 4, 5, 6 or 8", where);
    if (g && !(json_is_integer(g) && (ng == 16 || ng == 32 || ng == 64 || ng == 128)))
        return ek_fail(EK_EFORMAT, "config.json: quantization group_size of %.150s must be 16, 32, 64 or 128", where);
    if (mode && !is_affine(mode) && ((b && nb != *bits) || (g && ng != *group)))
        return ek_fail(EK_EFORMAT, "config.json: quantization mode %s of %.150s has %d bits in groups of %d",
                       json_string_value(mode), where, *bits, *group);
    if (b) *bits = (int)nb;
    if (g) *group = (int)ng;
    return EK_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const ek_quant_entry *)a)->path, ((const ek_quant_entry *)b)->path);
}

static ek_err read_section(ek_quant *q, json_t *section)
{
    const char *key;
    json_t *v;
    q->any = true;
    EK_TRY(read_mode(section, "the file", &q->bits, &q->group));
    q->own = ek_alloc(sizeof *q->own * (json_object_size(section) + 1));
    json_object_foreach(section, key, v)
    {
        if (!json_is_object(v) && !json_is_boolean(v)) continue;
        ek_quant_entry e = {.bits = q->bits, .group = q->group};
        if (json_is_false(v)) e = (ek_quant_entry){0};
        if (json_is_object(v)) EK_TRY(read_mode(v, key, &e.bits, &e.group));
        e.path = ek_strdup(ek_bare_name(key));
        q->own[q->n_own++] = e;
    }
    if (q->n_own) qsort(q->own, (size_t)q->n_own, sizeof *q->own, by_path);
    return EK_OK;
}

static ek_err unsupported(const char *what, const json_t *v, const char *can)
{
    return ek_fail(EK_EUNSUPPORTED, "config.json: %s %.60s cannot be read; %s can", what,
                   json_is_string(v) ? json_string_value(v) : "without a name", can);
}

static bool is_one_of(const json_t *v, const char *const *names)
{
    const char *s = json_string_value(v);
    for (; s && *names; names++)
        if (!strcmp(s, *names)) return true;
    return false;
}

static ek_err read_compressed(ek_quant *q, const json_t *section)
{
    static const char *const formats[] = {
        "pack-quantized",       "int-quantized",        "naive-quantized", "float-quantized", "dense",
        "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision", NULL};
    const json_t *format = json_object_get(section, "format"),
                 *transform = json_object_get(section, "transform_config");
    q->method = EK_QUANT_COMPRESSED;
    if (json_object_size(json_object_get(transform, "config_groups")) > 0)
        return ek_fail(EK_EUNSUPPORTED, "config.json: compressed-tensors with a transform_config (rotated weights and "
                                        "activations) cannot be read");
    if (format && !is_one_of(format, formats))
        return unsupported("compressed-tensors' format", format,
                           "pack-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, "
                           "mxfp8-quantized, int-quantized and float-quantized");
    return EK_OK;
}

/* AutoGPTQ's and AutoAWQ's names for the same: bits or w_bit, group_size or q_group_size. */
static ek_err read_across(ek_quant *q, const json_t *section, bool awq)
{
    static const char *const gemm[] = {"gemm", "GEMM", NULL}, *const formats[] = {"gptq", "gptq_v2", NULL};
    const json_t *bits = json_object_get(section, "bits"), *version = json_object_get(section, "version"),
                 *format = json_object_get(section, "checkpoint_format");
    if (!bits) bits = json_object_get(section, "w_bit");
    q->method = awq ? EK_QUANT_AWQ : EK_QUANT_GPTQ;
    if (awq && version && !is_one_of(version, gemm)) return unsupported("AWQ's version", version, "gemm");
    if (!awq && format && !is_one_of(format, formats))
        return unsupported("GPTQ's checkpoint_format", format, "gptq and gptq_v2");
    json_int_t n = json_integer_value(bits);
    if (!json_is_integer(bits) || !(n == 4 || (n == 8 && !awq)))
        return ek_fail(EK_EUNSUPPORTED, "config.json: %s with bits %lld; %s can be read", awq ? "AWQ" : "GPTQ",
                       (long long)n, awq ? "4" : "4 and 8");
    q->bits = (int)n;
    q->zero_as_is = format && !strcmp(json_string_value(format), "gptq_v2");
    return EK_OK;
}

static ek_err read_method(ek_quant *q, const json_t *section, const json_t *method)
{
    const char *name = json_string_value(method);
    q->any = true;
    if (name && !strcmp(name, "compressed-tensors")) return read_compressed(q, section);
    if (name && (!strcmp(name, "gptq") || !strcmp(name, "awq"))) return read_across(q, section, *name == 'a');
    static const char *const floats[] = {"modelopt", "modelopt_fp4", "modelopt_mixed", "fp8", "fbgemm_fp8", NULL};
    if (is_one_of(method, floats)) {
        q->method = EK_QUANT_FLOATS;
        return EK_OK;
    }
    return unsupported("weights quantised by", method, "MLX, compressed-tensors, GPTQ, AWQ, modelopt and fp8");
}

ek_err ek_quant_parse(ek_quant *q, const char *config_json)
{
    static const char *const names[] = {"quantization", "quantization_config"};
    json_error_t why;
    json_t *top = json_loads(config_json, JSON_REJECT_DUPLICATES, &why);
    *q = (ek_quant){0};
    if (!top) return ek_fail(EK_EFORMAT, "config.json: line %d: %s", why.line, why.text);
    json_t *section = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !section; i++) {
        section = json_object_get(top, names[i]);
        if (!section) section = json_object_get(json_object_get(top, "text_config"), names[i]);
        if (json_is_null(section)) section = NULL;
    }
    ek_err err = EK_OK;
    const json_t *method = json_object_get(section, "quant_method");
    if (section && !json_is_object(section)) err = ek_fail(EK_EFORMAT, "config.json: quantization must be an object");
    else if (method) err = read_method(q, section, method);
    else if (section) err = read_section(q, section);
    json_decref(top);
    if (err) ek_quant_fini(q);
    return err;
}

void ek_quant_fini(ek_quant *q)
{
    for (int i = 0; i < q->n_own; i++) free(q->own[i].path);
    free(q->own);
    *q = (ek_quant){0};
}

void ek_quant_find(const ek_quant *q, const char *path, int *bits, int *group)
{
    ek_quant_entry key = {.path = (char *)path};
    const ek_quant_entry *e = q->n_own ? bsearch(&key, q->own, (size_t)q->n_own, sizeof key, by_path) : NULL;
    *bits = e ? e->bits : q->bits;
    *group = e ? e->group : q->group;
}
