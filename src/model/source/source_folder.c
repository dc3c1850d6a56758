/* A folder of safetensors with a config.json, as Hugging Face and mlx-lm write them: names of tensors, the parts of
 * quantised tensors, and other tensors that may be present. Names: transformers, modeling_gemma4.py; experts also as
 * mlx-lm splits them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/source/module.h"
#include "model/source/source.h"
#include "tensor/checkpoint.h"

enum { JSON_LIMIT = 64 << 20 };

typedef struct folder {
    ek_source source;
    ek_quant quant;
    ek_checkpoint *files; /* opened when the first weight is requested */
    bool *used;           /* by the tensor's index */
    const char *prefix;
    const char *head; /* name of an lm_head; NULL: there is none */
    bool split_experts, single_experts;
    ek_map tokenizer;
    char *tokenizer_path;
} folder;

/* ------------------------------------------------------------------ configuration */

/* Appends DIR/NAME, a JSON file of a model, to out: bounded, without zero bytes. */
static ek_err read_json(ek_buf *out, const char *dir, const char *name)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/%s", dir, name);
    ek_err err = ek_file_read(out, path.data, JSON_LIMIT);
    if (!err && memchr(ek_buf_text(out), 0, out->len)) err = ek_fail(EK_EFORMAT, "%s: has a zero byte", path.data);
    ek_buf_fini(&path);
    return err;
}

static ek_err read_config(ek_source *s, ek_config *out)
{
    folder *f = (folder *)s;
    ek_buf config = {0}, generation = {0};
    bool has_generation = false;
    ek_err err = read_json(&config, s->path, "config.json");
    if (!err) {
        ek_err absent = read_json(&generation, s->path, "generation_config.json");
        has_generation = absent == EK_OK;
        if (absent && absent != EK_ENOTFOUND) err = absent;
    }
    if (!err) {
        ek_quant_fini(&f->quant);
        err = ek_config_parse(out, ek_buf_text(&config), has_generation ? ek_buf_text(&generation) : NULL);
        if (!err) err = ek_quant_parse(&f->quant, ek_buf_text(&config));
        if (err) ek_fail_in(err, "%s", s->path);
    }
    ek_buf_fini(&config);
    ek_buf_fini(&generation);
    return err;
}

/* ------------------------------------------------------------------ names */

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

bool ek_source_stands_beside(const char *name)
{
    return starts(name, "pre_projection") || starts(name, "post_projection") || starts(name, "masked_embedding.");
}

static const char *prefix_of(const folder *f, const char *name)
{
    if (strcmp(name, "lm_head") == 0) return f->head ? f->head : "";
    return ek_source_stands_beside(name) ? "" : f->prefix;
}

static const ek_tensor *find_tensor(folder *f, const char *name, const char *suffix)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s%s", prefix_of(f, name), name, suffix);
    const ek_tensor *t = ek_checkpoint_find(f->files, full);
    if (t) f->used[t - ek_checkpoint_at(f->files, 0)] = true;
    return t;
}

static ek_err missing(const folder *f, const char *name, const char *suffix)
{
    return ek_fail(EK_EFORMAT, "tensor %s%s%s is missing from %s", prefix_of(f, name), name, suffix,
                   ek_checkpoint_at(f->files, 0)->file);
}

static ek_err find_prefix(folder *f)
{
    static const char *const prefix[] = {"model.language_model.", "language_model.model.", "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        f->prefix = prefix[i];
        if (find_tensor(f, "embed_tokens", ".weight")) return EK_OK;
    }
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) { /* the names of other tensors show the prefix */
        f->prefix = prefix[i];
        if (find_tensor(f, "norm", ".weight")) break;
    }
    return missing(f, "embed_tokens", ".weight");
}

/* Whether experts are split and named as in mlx-lm; one of the three names is enough, so that a missing one is reported
 * by name. */
static bool has_split_experts(folder *f)
{
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    bool any = false;
    for (size_t i = 0; i < sizeof proj / sizeof *proj; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.0.experts.switch_glu.%s", proj[i]);
        any |= find_tensor(f, name, ".weight") != NULL;
    }
    return any;
}

/* The head is outside the model: "lm_head", in files of mlx-lm and of early transformers "language_model.lm_head". Any
 * of its tensors counts, so that a missing one is reported by name. */
static void find_head(folder *f)
{
    static const char *const prefix[] = {"lm_head.", "language_model.lm_head."};
    for (int i = 0; i < ek_checkpoint_count(f->files); i++)
        for (size_t j = 0; j < sizeof prefix / sizeof *prefix; j++)
            if (starts(ek_checkpoint_at(f->files, i)->name, prefix[j]) && !(f->head && j))
                f->head = j ? "language_model." : "";
}

/* Whether each expert is a module: quantisers of PyTorch models divide the fused tensors so. */
static bool has_single_experts(folder *f)
{
    static const char *const part[] = {".weight", ".weight_packed", ".qweight"};
    bool any = false;
    for (int i = 0; i < 3; i++) any |= find_tensor(f, "layers.0.experts.0.gate_proj", part[i]) != NULL;
    return any;
}

static ek_err open_files(folder *f)
{
    EK_TRY(ek_checkpoint_open(&f->files, f->source.path));
    if (ek_checkpoint_count(f->files) == 0) return ek_fail(EK_EFORMAT, "the checkpoint holds no tensors");
    f->used = ek_alloc((size_t)ek_checkpoint_count(f->files));
    EK_TRY(find_prefix(f));
    find_head(f);
    f->split_experts = has_split_experts(f);
    f->single_experts = !f->split_experts && has_single_experts(f);
    return EK_OK;
}

/* ------------------------------------------------------------------ weights */

/* Reads the tensors of a module: its name with each known ending. */
static ek_err read_module(folder *f, ek_weight_data *w, const char *name, const char *suffix, int outer, int rows,
                          int k)
{
    ek_module m = {.name = name};
    for (int i = 0; i < EK_PART_COUNT; i++) m.part[i] = find_tensor(f, name, i ? ek_part_suffix(i) : suffix);
    const char *absent = ek_module_missing(&m);
    if (absent) return missing(f, name, absent[0] ? absent : suffix);
    return ek_module_read(&m, &f->quant, outer, rows, k, w);
}

/* "layers.3.experts.up_proj" is experts.switch_glu.up_proj in mlx-lm's files, and experts.7.up_proj if each expert is a
 * module. Otherwise it is the second half of the rows of experts.gate_up_proj; experts.down_proj has its own name. */
static ek_err read_expert(folder *f, ek_weight_data *w, const ek_weight_query *q)
{
    char name[128];
    const char *proj = strrchr(q->name, '.') + 1;
    int rows = q->n, first = 0, layer_part = (int)(proj - q->name);
    if (f->single_experts) {
        snprintf(name, sizeof name, "%.*s%d.%s", layer_part, q->name, q->expert, proj);
        return read_module(f, w, name, ".weight", 0, q->n, q->k);
    }
    bool half = !f->split_experts && strcmp(proj, "down_proj") != 0;
    if (half) rows = 2 * q->n, first = strcmp(proj, "up_proj") == 0 ? q->n : 0;
    snprintf(name, sizeof name, "%.*s%s%s", layer_part, q->name, f->split_experts ? "switch_glu." : "",
             half ? "gate_up_proj" : proj);
    EK_TRY(read_module(f, w, name, f->split_experts ? ".weight" : "", q->n_experts, rows, q->k));
    w->row = (int64_t)q->expert * rows + first;
    return EK_OK;
}

static ek_err read_weight(ek_source *s, const ek_weight_query *q, ek_weight_data *out)
{
    folder *f = (folder *)s;
    if (!f->files) EK_TRY(open_files(f));
    switch (q->shape) {
    case EK_WEIGHT_MATRIX: EK_TRY(read_module(f, out, q->name, ".weight", 0, q->n, q->k)); break;
    case EK_WEIGHT_EXPERT: EK_TRY(read_expert(f, out, q)); break;
    case EK_WEIGHT_VECTOR: {
        const ek_tensor *t = find_tensor(f, q->name, "");
        if (!t) return missing(f, q->name, "");
        EK_TRY(ek_module_floats(out, t, 0, q->k, 0));
    }
    }
    out->n = q->n, out->k = q->k;
    return EK_OK;
}

static ek_err has_head(ek_source *s, bool *out)
{
    folder *f = (folder *)s;
    if (!f->files) EK_TRY(open_files(f));
    *out = f->head != NULL;
    return EK_OK;
}

static ek_err read_ids(ek_source *s, const char *name, int n, int32_t *out)
{
    folder *f = (folder *)s;
    if (!f->files) EK_TRY(open_files(f));
    const ek_tensor *t = find_tensor(f, name, "");
    if (!t) return missing(f, name, "");
    if (t->dtype != EK_I64)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, it must be I64", t->file, t->name,
                       ek_dtype_name(t->dtype));
    EK_TRY(ek_module_shape(t, 0, n, 0));
    for (int i = 0; i < n; i++) {
        int64_t id;
        memcpy(&id, t->data + sizeof id * (size_t)i, sizeof id);
        if (id < INT32_MIN || id > INT32_MAX)
            return ek_fail(EK_EFORMAT, "%s: tensor %s has %lld at %d", t->file, t->name, (long long)id, i);
        out[i] = (int32_t)id;
    }
    return EK_OK;
}

/* ------------------------------------------------------------------ unused tensors */

/* Measured scales of activations, keys and values: evenkeel computes them from the actual values instead. */
static bool activation_scale(const char *name)
{
    static const char *const last[] = {"input_scale", "input_global_scale", "output_scale", "k_scale", "v_scale",
                                       "q_scale"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof last / sizeof *last; i++)
        if (strcmp(dot + 1, last[i]) == 0) return true;
    return false;
}

/* Tensors that a text model may ignore: the towers of other senses, and the keys and values that early files have for
 * layers that share. */
static bool ignorable(const char *name, const ek_config *c)
{
    static const char *const tower[] = {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.",
                                        "vision_embedder."};
    int layer, at = 0;
    const char *inner = starts(name, "model.") ? name + strlen("model.") : name;
    for (size_t i = 0; i < sizeof tower / sizeof *tower; i++)
        if (starts(inner, tower[i])) return true;
    if (activation_scale(name)) return true;
    const char *bare = ek_bare_name(name);
    if (sscanf(bare, "layers.%d.self_attn.%n", &layer, &at) != 1 || at == 0) return false;
    if (layer < c->first_shared || layer >= c->n_layers) return false;
    return starts(bare + at, "k_proj.") || starts(bare + at, "v_proj.") || starts(bare + at, "k_norm.");
}

static ek_err check_unused(ek_source *s, const ek_config *c)
{
    const folder *f = (const folder *)s;
    for (int i = 0; i < ek_checkpoint_count(f->files); i++) {
        const ek_tensor *t = ek_checkpoint_at(f->files, i);
        if (!f->used[i] && !ignorable(t->name, c))
            return ek_fail(EK_EFORMAT, "%s: tensor %.200s is no part of the model that config.json describes", t->file,
                           t->name);
    }
    return EK_OK;
}

/* ------------------------------------------------------------------ tokenizer */

static ek_err find_tokenizer(ek_source *s, ek_source_tokenizer *out)
{
    folder *f = (folder *)s;
    if (!f->tokenizer_path) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/tokenizer.json", s->path);
        ek_err err = ek_map_open(&f->tokenizer, path.data);
        if (!err) f->tokenizer_path = ek_strdup(path.data);
        ek_buf_fini(&path);
        EK_TRY(err);
    }
    *out = (ek_source_tokenizer){.name = f->tokenizer_path,
                                 .json = f->tokenizer.data ? (const char *)f->tokenizer.data : "",
                                 .n = f->tokenizer.size};
    return EK_OK;
}

static void rest_folder(ek_source *s)
{
    folder *f = (folder *)s;
    if (f->files) ek_checkpoint_drop_pages(f->files);
}

static void close_folder(ek_source *s)
{
    folder *f = (folder *)s;
    ek_checkpoint_close(f->files);
    ek_quant_fini(&f->quant);
    if (f->tokenizer_path) ek_map_close(&f->tokenizer);
    free(f->tokenizer_path);
    free(f->used);
    free(s->path);
    free(f);
}

ek_source *ek_source_folder(const char *path)
{
    static const ek_source_ops ops = {.kind = "safetensors",
                                      .config = read_config,
                                      .weight = read_weight,
                                      .has_head = has_head,
                                      .ids = read_ids,
                                      .finish = check_unused,
                                      .tokenizer = find_tokenizer,
                                      .rest = rest_folder,
                                      .close = close_folder};
    folder *f = ek_alloc(sizeof *f);
    f->source = (ek_source){.ops = &ops, .path = ek_strdup(path)};
    return &f->source;
}
