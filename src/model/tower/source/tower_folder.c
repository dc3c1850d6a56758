/* A folder of safetensors with a config.json, as Hugging Face and mlx-vlm write them. Names are those of transformers;
 * mlx-vlm omits "model." and names the 12B's picture encoder vision_embedder. */
#include "model/tower/source/tower_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/source/module.h"

enum { JSON_LIMIT = 64 << 20 };

typedef struct folder {
    ek_tower_source source;
    ek_quant quant;
    ek_checkpoint *files;
    bool *used; /* by the tensor's index */
} folder;

/* Other programs' names of a module; checked in order. */
static const struct {
    const char *ours, *theirs;
} dialects[] = {
    {"embed_vision.multimodal_embedder.", "embed_vision."},
    {"embed_vision.", "vision_embedder."},
};

static const ek_tensor *find_exact(folder *f, const char *name, const char *suffix)
{
    static const char *const prefix[] = {"model.", ""};
    char full[512];
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        snprintf(full, sizeof full, "%s%s%s", prefix[i], name, suffix);
        const ek_tensor *t = ek_checkpoint_find(f->files, full);
        if (t) f->used[t - ek_checkpoint_at(f->files, 0)] = true;
        if (t) return t;
    }
    return NULL;
}

static const ek_tensor *find_tensor(folder *f, const char *name, const char *suffix)
{
    const ek_tensor *t = find_exact(f, name, suffix);
    for (size_t i = 0; !t && i < sizeof dialects / sizeof *dialects; i++) {
        char other[256];
        size_t n = strlen(dialects[i].ours);
        if (strncmp(name, dialects[i].ours, n) != 0) continue;
        snprintf(other, sizeof other, "%s%s", dialects[i].theirs, name + n);
        t = find_exact(f, other, suffix);
    }
    return t;
}

static bool find(ek_tower_source *s, const char *name, ek_tower_tensor *out)
{
    const ek_tensor *t = find_tensor((folder *)s, name, "");
    if (!t) return false;
    *out = (ek_tower_tensor){
        .name = t->name, .file = t->file, .n_dims = t->n_dims, .type = ek_weight_type_float(t->dtype), .data = t->data};
    memcpy(out->dim, t->dim, sizeof out->dim);
    return true;
}

static bool has(ek_tower_source *s, const char *begin)
{
    const folder *f = (folder *)s;
    for (int i = 0; i < ek_checkpoint_count(f->files); i++) {
        const char *name = ek_checkpoint_at(f->files, i)->name;
        if (strncmp(name, "model.", strlen("model.")) == 0) name += strlen("model.");
        if (strncmp(name, begin, strlen(begin)) == 0) return true;
    }
    return false;
}

/* Measured scales for another arithmetic, as beside the text's matrices, and bounds if config.json has no clipping. */
static bool of_activations(const char *name)
{
    static const char *const last[] = {".input_scale", ".input_global_scale", ".output_scale", ".input_min",
                                       ".input_max",   ".output_min",         ".output_max"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        if (n > strlen(last[i]) && strcmp(name + n - strlen(last[i]), last[i]) == 0) return true;
    return false;
}

/* A bias or an adapter's tensor would change the features, so it must not be ignored. */
static ek_err check_unused(ek_tower_source *s, const char *const *begin)
{
    const folder *f = (const folder *)s;
    for (int i = 0; i < ek_checkpoint_count(f->files); i++) {
        const ek_tensor *t = ek_checkpoint_at(f->files, i);
        const char *name = strncmp(t->name, "model.", strlen("model.")) == 0 ? t->name + strlen("model.") : t->name;
        if (f->used[i] || of_activations(name)) continue;
        for (const char *const *b = begin; *b; b++)
            if (strncmp(name, *b, strlen(*b)) == 0)
                return ek_fail(EK_EFORMAT, "%s: tensor %.200s is no part of the towers that config.json describes",
                               t->file, t->name);
    }
    return EK_OK;
}

static ek_err matrix(ek_tower_source *s, const char *name, int n, int k, ek_weight_data *out)
{
    folder *f = (folder *)s;
    ek_module m = {.name = name};
    for (int i = 0; i < EK_PART_COUNT; i++) m.part[i] = find_tensor(f, name, ek_part_suffix(i));
    const char *absent = ek_module_missing(&m);
    if (absent)
        return ek_fail(EK_EFORMAT, "%s: tensor %.200s%s of the towers is missing", s->path, name,
                       absent[0] ? absent : ".weight");
    return ek_module_read(&m, &f->quant, 0, n, k, out);
}

static void drop_pages(ek_tower_source *s)
{
    ek_checkpoint_drop_pages(((folder *)s)->files);
}

static void close_folder(ek_tower_source *s)
{
    folder *f = (folder *)s;
    ek_checkpoint_close(f->files);
    ek_quant_fini(&f->quant);
    json_decref(s->config);
    free(s->path);
    free(f->used);
    free(f);
}

static ek_err read_config(folder *f)
{
    ek_buf path = {0}, text = {0};
    json_error_t why;
    ek_buf_fmt(&path, "%s/config.json", f->source.path);
    ek_err err = ek_file_read(&text, path.data, JSON_LIMIT);
    if (!err) err = ek_quant_parse(&f->quant, ek_buf_text(&text));
    if (!err) {
        f->source.config = json_loads(ek_buf_text(&text), JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(f->source.config)) err = ek_fail(EK_EFORMAT, "config.json: is not a JSON object");
    }
    if (err && err != EK_ENOTFOUND) ek_fail_in(err, "%s", f->source.path);
    ek_buf_fini(&path);
    ek_buf_fini(&text);
    return err;
}

ek_err ek_tower_folder_open(ek_tower_source **out, const char *path)
{
    static const ek_tower_source_ops ops = {.find = find,
                                            .has = has,
                                            .matrix = matrix,
                                            .check_unused = check_unused,
                                            .drop_pages = drop_pages,
                                            .close = close_folder};
    folder *f = ek_alloc(sizeof *f);
    f->source = (ek_tower_source){.ops = &ops, .path = ek_strdup(path), .file = "config.json", .folder = true};
    ek_err err = read_config(f);
    if (!err) err = ek_checkpoint_open(&f->files, path);
    if (!err) f->used = ek_alloc((size_t)ek_checkpoint_count(f->files) + 1);
    if (err) close_folder(&f->source);
    else *out = &f->source;
    return err;
}
