#include "cli/inspect/inspect.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "model/source/source.h"
#include "tensor/checkpoint.h"
#include "tensor/gguf.h"

enum { CONFIG_LIMIT = 16 << 20 };

const char *ek_about_variant(const ek_config *c)
{
    static const char *const name[] = {"e2b", "e4b", "12b", "26b", "31b"};
    static const char *const shown[] = {"E2B", "E4B", "12B", "26B-A4B", "31B"};
    static ek_config one;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (ek_config_published(&one, name[i], 0) == EK_OK && one.n_layers == c->n_layers &&
            one.hidden_size == c->hidden_size && one.n_experts == c->n_experts)
            return shown[i];
    return "own";
}

static json_t *read_config(const char *dir)
{
    ek_buf path = {0}, text = {0};
    json_error_t why;
    ek_buf_fmt(&path, "%s/config.json", dir);
    json_t *config = ek_file_read(&text, path.data, CONFIG_LIMIT) ? NULL
                                                                  : json_loadb(ek_buf_text(&text), text.len, 0, &why);
    ek_buf_fini(&path);
    ek_buf_fini(&text);
    return config;
}

static int int_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < 1000000
               ? (int)json_integer_value(v)
               : 0;
}

/* Appends ", 4 bits in groups of 64", or the known part of it. */
static void add_bits(ek_about *a, int bits, int group)
{
    size_t n = strlen(a->format), room = sizeof a->format - n;
    if (bits) n += (size_t)snprintf(a->format + n, room, "%s%d bits", n ? ", " : "", bits);
    if (bits && group && n < sizeof a->format) snprintf(a->format + n, sizeof a->format - n, " in groups of %d", group);
}

/* compressed-tensors writes the widths into its groups of modules. */
static void add_compressed(ek_about *a, const json_t *q)
{
    const char *key;
    json_t *group;
    json_object_foreach(json_object_get(q, "config_groups"), key, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        add_bits(a, int_of(weights, "num_bits"), int_of(weights, "group_size"));
        return;
    }
}

static bool read_quantization(ek_about *a, const json_t *config)
{
    const json_t *mlx = json_object_get(config, "quantization"), *q = json_object_get(config, "quantization_config");
    if (json_is_object(mlx) && int_of(mlx, "bits")) {
        const char *mode = json_string_value(json_object_get(mlx, "mode"));
        snprintf(a->container, sizeof a->container, "MLX");
        snprintf(a->format, sizeof a->format, "%.40s", mode && strcmp(mode, "affine") != 0 ? mode : "");
        add_bits(a, int_of(mlx, "bits"), int_of(mlx, "group_size"));
        return true;
    }
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const char *format = json_string_value(json_object_get(q, "format"));
    if (!format) format = json_string_value(json_object_get(q, "quant_algo")); /* modelopt */
    if (!method) return false;
    snprintf(a->method, sizeof a->method, "%.40s", method);
    snprintf(a->format, sizeof a->format, "%.40s%s%.40s", method, format ? " " : "", format ? format : "");
    add_bits(a, int_of(q, "bits"), int_of(q, "group_size"));
    add_compressed(a, q);
    return true;
}

/* The element type of most bytes. */
static void read_types(ek_about *a, const char *path)
{
    enum { TYPES = 32 };
    struct {
        const char *name;
        double bytes;
    } type[TYPES];
    ek_listing *l;
    int n = 0, largest = 0;
    if (ek_listing_open(&l, path)) return;
    for (int i = 0; i < ek_listing_count(l); i++) {
        const ek_listed *t = ek_listing_at(l, i);
        int at = 0;
        while (at < n && strcmp(type[at].name, t->type) != 0) at++;
        if (at == TYPES) continue;
        if (at == n) type[n].name = t->type, type[n++].bytes = 0;
        type[at].bytes += t->bytes;
        if (type[at].bytes > type[largest].bytes) largest = at;
    }
    if (!a->format[0] && n) {
        snprintf(a->format, sizeof a->format, "%s", type[largest].name);
        for (char *p = a->format; *p; p++)
            if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
    }
    ek_listing_close(l);
}

static void read_folder(ek_about *a, const char *path)
{
    json_t *config = read_config(path);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    snprintf(a->container, sizeof a->container, "safetensors");
    snprintf(a->model_type, sizeof a->model_type, "%.60s", type ? type : "");
    if (!read_quantization(a, config)) read_types(a, path);
    json_decref(config);
}

/* Also describes GGUF files that are not Gemma 4. */
static void read_gguf(ek_about *a, const char *path)
{
    ek_gguf *g;
    const char *s;
    size_t n;
    snprintf(a->container, sizeof a->container, "GGUF");
    read_types(a, path);
    if (ek_gguf_open(&g, path)) return;
    const ek_gguf_value *arch = ek_gguf_find(g, "general.architecture");
    if (arch && ek_gguf_text(arch, &s, &n))
        snprintf(a->model_type, sizeof a->model_type, "%.*s", n < 60 ? (int)n : 60, s);
    ek_gguf_close(g);
}

/* Reads only config.json, so the format of the weights does not matter. */
static bool parse_config(ek_config *out, const char *dir)
{
    ek_buf path = {0}, text = {0};
    ek_buf_fmt(&path, "%s/config.json", dir);
    bool ok = !ek_file_read(&text, path.data, CONFIG_LIMIT) && !memchr(ek_buf_text(&text), 0, text.len) &&
              !ek_config_parse(out, ek_buf_text(&text), NULL);
    ek_buf_fini(&path);
    ek_buf_fini(&text);
    return ok;
}

ek_err ek_about_config(ek_config *out, const char *path, bool *shape)
{
    ek_source *s;
    char why[900];
    *shape = false;
    ek_err err = ek_source_open(&s, path);
    if (err) return err;
    err = ek_source_config(s, out);
    ek_source_close(s);
    *shape = !err;
    if (!err) return EK_OK;
    snprintf(why, sizeof why, "%s", ek_err_text());
    *shape = ek_is_dir(path) && parse_config(out, path);
    return ek_fail(err, "%s", why);
}

static void read_shape(ek_about *a, const char *path)
{
    static ek_config config;
    bool known;
    if (ek_about_config(&config, path, &known) && !known) return;
    snprintf(a->model_type, sizeof a->model_type, "%s", config.model_type);
    snprintf(a->variant, sizeof a->variant, "%s", ek_about_variant(&config));
    a->drafter = config.backbone_hidden_size > 0;
}

void ek_about_read(ek_about *a, const char *path)
{
    const char *end = strrchr(path, '.');
    *a = (ek_about){.container = "file"};
    if (ek_gguf_is_folder(path)) read_gguf(a, path);
    else if (ek_is_dir(path)) read_folder(a, path);
    else if (end && !strcasecmp(end, ".gguf")) read_gguf(a, path);
    else if (end && !strcmp(end, ".safetensors")) {
        snprintf(a->container, sizeof a->container, "safetensors");
        read_types(a, path);
    }
    read_shape(a, path);
}

void ek_about_text(char *out, size_t room, const ek_about *a)
{
    const char *kind = a->drafter ? "Gemma 4 drafter" : a->variant[0] ? "Gemma 4" : a->model_type;
    snprintf(out, room, "%s%s%s%s%s%s%s", kind, a->variant[0] && !a->drafter ? " " : "", a->drafter ? "" : a->variant,
             *kind ? ", " : "", a->container, a->format[0] ? ", " : "", a->format);
}
