#include "model/source/module.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/config/setting.h"

const char *ek_bare_name(const char *name)
{
    static const char *const prefix[] = {"model.language_model.", "language_model.model.", "model."};
    if (strncmp(name, "language_model.lm_head", strlen("language_model.lm_head")) == 0) return strchr(name, '.') + 1;
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0) return name + strlen(prefix[i]);
    return name;
}

/* Each mode of floats has one width and one group; a module's mode follows from these and from its tensors. */
static ek_err read_mx(const char *name, const char *where, int *bits, int *group)
{
    static const struct {
        const char *name;
        int bits, group;
    } known[] = {{"affine", 0, 0}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) {
            if (known[i].bits) *bits = known[i].bits, *group = known[i].group;
            return EK_OK;
        }
    return ek_fail(EK_EUNSUPPORTED,
                   "config.json: quantization mode of %.150s is %.40s; affine, mxfp4, mxfp8 and nvfp4 can be run",
                   where, name);
}

static ek_err wrong_number(const char *what, const char *where, const json_t *v, const char *must)
{
    char key[256];
    snprintf(key, sizeof key, "quantization %s of %.80s", what, where);
    return ek_setting_wrong(&(ek_settings){.file = "config.json"}, key, v, must);
}

/* where: the module, or "the file". */
static ek_err read_mode(const ek_settings *f, const char *where, int *bits, int *group)
{
    const char *mode;
    const json_t *b = ek_setting(f, "bits"), *g = ek_setting(f, "group_size");
    EK_TRY(ek_setting_may_text(&mode, f, "mode"));
    if (mode) EK_TRY(read_mx(mode, where, bits, group));
    json_int_t nb = json_integer_value(b), ng = json_integer_value(g);
    if (b && !(json_is_integer(b) && nb >= 2 && nb <= 8 && nb != 7))
        return wrong_number("bits", where, b, "2, 3, 4, 5, 6 or 8");
    if (g && !(json_is_integer(g) && (ng == 16 || ng == 32 || ng == 64 || ng == 128)))
        return wrong_number("group_size", where, g, "16, 32, 64 or 128");
    if (mode && strcmp(mode, "affine") != 0 && ((b && nb != *bits) || (g && ng != *group)))
        return ek_fail(EK_EFORMAT, "config.json: quantization mode %s of %.150s has %d bits in groups of %d", mode,
                       where, *bits, *group);
    if (b) *bits = (int)nb;
    if (g) *group = (int)ng;
    return EK_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const ek_quant_entry *)a)->path, ((const ek_quant_entry *)b)->path);
}

static ek_err read_section(ek_quant *q, const ek_settings *f)
{
    const char *key;
    json_t *v, *section = (json_t *)f->object;
    q->any = true;
    EK_TRY(read_mode(f, "the file", &q->bits, &q->group));
    q->own = ek_alloc(sizeof *q->own * (json_object_size(section) + 1));
    json_object_foreach(section, key, v)
    {
        if (!json_is_object(v) && !json_is_boolean(v)) continue;
        ek_quant_entry e = {.bits = q->bits, .group = q->group};
        if (json_is_false(v)) e = (ek_quant_entry){0};
        if (json_is_object(v))
            EK_TRY(read_mode(&(ek_settings){.file = f->file, .in = f->in, .object = v}, key, &e.bits, &e.group));
        e.path = ek_strdup(ek_bare_name(key));
        q->own[q->n_own++] = e;
    }
    if (q->n_own) qsort(q->own, (size_t)q->n_own, sizeof *q->own, by_path);
    return EK_OK;
}

/* Reads one of `names` (NULL ends them); may be absent. EUNSUPPORTED lists the names in `can`. */
static ek_err one_of(const char **out, const ek_settings *f, const char *key, const char *what,
                     const char *const *names, const char *can)
{
    EK_TRY(ek_setting_may_text(out, f, key));
    for (; *out && *names; names++)
        if (!strcmp(*out, *names)) return EK_OK;
    return *out ? ek_fail(EK_EUNSUPPORTED, "config.json: %s %.60s cannot be read; %s can", what, *out, can) : EK_OK;
}

static ek_err read_compressed(ek_quant *q, const ek_settings *f)
{
    static const char *const formats[] = {
        "pack-quantized",       "int-quantized",        "naive-quantized", "float-quantized", "dense",
        "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision", NULL};
    const char *format;
    const json_t *transform;
    q->method = EK_QUANT_COMPRESSED;
    EK_TRY(ek_setting_may_object(&transform, f, "transform_config"));
    if (json_object_size(json_object_get(transform, "config_groups")) > 0)
        return ek_fail(EK_EUNSUPPORTED, "config.json: compressed-tensors with a transform_config (rotated weights and "
                                        "activations) cannot be read");
    return one_of(&format, f, "format", "compressed-tensors' format", formats,
                  "pack-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, "
                  "mxfp8-quantized, int-quantized and float-quantized");
}

/* Reads the same settings under AutoGPTQ's and AutoAWQ's names: bits or w_bit, group_size or q_group_size. */
static ek_err read_across(ek_quant *q, const ek_settings *f, bool awq)
{
    static const char *const gemm[] = {"gemm", "GEMM", NULL}, *const formats[] = {"gptq", "gptq_v2", NULL};
    const char *const who = awq ? "AWQ" : "GPTQ", *const can = awq ? "4" : "4 and 8",
                      *const key = ek_setting(f, "bits") || !ek_setting(f, "w_bit") ? "bits" : "w_bit";
    const char *version = NULL, *format = NULL;
    q->method = awq ? EK_QUANT_AWQ : EK_QUANT_GPTQ;
    if (awq) EK_TRY(one_of(&version, f, "version", "AWQ's version", gemm, "gemm"));
    else EK_TRY(one_of(&format, f, "checkpoint_format", "GPTQ's checkpoint_format", formats, "gptq and gptq_v2"));
    if (!ek_setting(f, key))
        return ek_fail(EK_EFORMAT, "config.json: %sbits is missing; %s of %s can be read", f->in, who, can);
    EK_TRY(ek_setting_need_int(&q->bits, f, key, 1, 64));
    if (q->bits != 4 && (q->bits != 8 || awq))
        return ek_fail(EK_EUNSUPPORTED, "config.json: %s with bits %d; %s can be read", who, q->bits, can);
    q->zero_as_is = format && !strcmp(format, "gptq_v2");
    return EK_OK;
}

static ek_err read_method(ek_quant *q, const ek_settings *f, const char *name)
{
    static const char *const floats[] = {"modelopt", "modelopt_fp4", "modelopt_mixed", "fp8", "fbgemm_fp8", NULL};
    q->any = true;
    if (!strcmp(name, "compressed-tensors")) return read_compressed(q, f);
    if (!strcmp(name, "gptq") || !strcmp(name, "awq")) return read_across(q, f, *name == 'a');
    q->method = EK_QUANT_FLOATS;
    return one_of(&name, f, "quant_method", "weights quantised by", floats,
                  "MLX, compressed-tensors, GPTQ, AWQ, modelopt and fp8");
}

/* Finds the section under one of its names, at the top or in text_config. f->object NULL: there is none. */
static ek_err find_section(ek_settings *f, const json_t *top)
{
    static const struct {
        const char *key, *in;
    } names[] = {{"quantization", "quantization."}, {"quantization_config", "quantization_config."}};
    const ek_settings all = {.file = f->file, .object = top, .other = json_object_get(top, "text_config")};
    for (size_t i = 0; i < sizeof names / sizeof *names && !f->object; i++) {
        f->in = names[i].in;
        EK_TRY(ek_setting_may_object(&f->object, &all, names[i].key));
    }
    return EK_OK;
}

ek_err ek_quant_parse(ek_quant *q, const char *config_json)
{
    json_error_t why;
    json_t *top = json_loads(config_json, JSON_REJECT_DUPLICATES, &why);
    *q = (ek_quant){0};
    if (!top) return ek_fail(EK_EFORMAT, "config.json: line %d: %s", why.line, why.text);
    ek_settings f = {.file = "config.json"};
    const char *method = NULL;
    ek_err err = find_section(&f, top);
    if (!err) err = ek_setting_may_text(&method, &f, "quant_method");
    if (!err && method) err = read_method(q, &f, method);
    else if (!err && f.object) err = read_section(q, &f);
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

bool ek_quant_find(const ek_quant *q, const char *path, int *bits, int *group)
{
    ek_quant_entry key = {.path = (char *)path};
    const ek_quant_entry *e = q->n_own ? bsearch(&key, q->own, (size_t)q->n_own, sizeof key, by_path) : NULL;
    *bits = e ? e->bits : q->bits;
    *group = e ? e->group : q->group;
    return e != NULL;
}
