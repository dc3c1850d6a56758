#include "model/tower/source/tower_gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "model/source/source.h"

/* ------------------------------------------------------------------ the file */

static bool has_towers(const ek_gguf *g)
{
    return ek_gguf_tensor_find(g, "mm.input_projection.weight") ||
           ek_gguf_tensor_find(g, "mm.a.input_projection.weight");
}

static int is_mmproj(const struct dirent *e)
{
    return ek_ends_with(e->d_name, ".gguf") && strstr(e->d_name, "mmproj") != NULL;
}

/* The order of preference among several files: towers were trained in bf16, f32 can hold it, f16 may not. */
static int rank(const char *name)
{
    static const char *const in_order[] = {"BF16", "bf16", "F32", "f32", "F16", "f16"};
    int i = 0;
    while (i < 6 && !strstr(name, in_order[i])) i++;
    return i / 2;
}

static int by_rank(const struct dirent **a, const struct dirent **b)
{
    const int by = rank((*a)->d_name) - rank((*b)->d_name);
    return by ? by : strcmp((*a)->d_name, (*b)->d_name);
}

static ek_err no_towers(const char *path)
{
    return ek_fail(EK_EFORMAT,
                   "%s: holds no towers: neither mm.input_projection.weight nor mm.a.input_projection.weight", path);
}

/* Whether its rows have the model's width, `hidden`. */
static ek_err check_fits(const ek_gguf *g, const char *path, int64_t hidden)
{
    static const char *const last[] = {"mm.input_projection.weight", "mm.a.input_projection.weight"};
    if (!has_towers(g)) return no_towers(path);
    for (int i = 0; i < 2; i++) {
        const ek_gguf_tensor *t = ek_gguf_tensor_find(g, last[i]);
        if (t && t->dim[1] != hidden)
            return ek_fail(EK_EFORMAT, "%s: tensor %s gives rows of %lld, the model's have %lld", path, last[i],
                           (long long)t->dim[1], (long long)hidden);
    }
    return EK_OK;
}

/* Opens the first file of towers beside a model that can be read and fits it. Nobody requested these files, so none of
 * them is an error: if all fail, the model has no towers, and a line names the reason. */
static void open_beside(ek_gguf **out, const char *path, int64_t hidden)
{
    ek_buf dir = {0}, why = {0};
    struct dirent **entry;
    const char *slash = strrchr(path, '/');
    if (ek_is_dir(path)) ek_buf_str(&dir, path);
    else if (slash) ek_buf_fmt(&dir, "%.*s", (int)(slash - path), path);
    else ek_buf_str(&dir, ".");
    const int n = scandir(ek_buf_text(&dir), &entry, is_mmproj, by_rank);
    for (int i = 0; i < n; i++) {
        ek_buf file = {0};
        ek_buf_fmt(&file, "%s/%s", ek_buf_text(&dir), entry[i]->d_name);
        ek_err err = *out ? EK_OK : ek_gguf_open(out, file.data);
        if (!err && *out && !why.len) ek_log(EK_LOG_DEBUG, "towers of %s: %s", path, file.data);
        if (!err) err = check_fits(*out, file.data, hidden);
        if (err && *out) ek_gguf_close(*out), *out = NULL;
        if (err && !why.len) ek_buf_str(&why, ek_err_text());
        ek_buf_fini(&file);
        free(entry[i]);
        if (!err)
            while (++i < n) free(entry[i]);
    }
    if (n >= 0) free(entry);
    if (!*out && why.len)
        ek_log(EK_LOG_WARN,
               "%s; the model takes text alone (--mmproj FILE names its towers, none says that it has none)",
               ek_buf_text(&why));
    ek_buf_fini(&dir), ek_buf_fini(&why);
}

/* *out NULL: no towers. *beside: the file was found, not named. */
static ek_err open_file(ek_gguf **out, bool *beside, const char *path, const char *mmproj)
{
    *out = NULL, *beside = false;
    if (!mmproj || strcmp(mmproj, "none") == 0) {
        EK_TRY(ek_gguf_open(out, path));
        if (has_towers(*out)) return EK_OK;
        const ek_gguf_tensor *table = ek_gguf_tensor_find(*out, "token_embd.weight");
        const int64_t hidden = table ? table->dim[0] : 0;
        ek_gguf_close(*out);
        *out = NULL, *beside = true;
        if (!mmproj) open_beside(out, path, hidden);
        return EK_OK;
    }
    EK_TRY(ek_gguf_open(out, mmproj));
    if (has_towers(*out)) {
        ek_log(EK_LOG_DEBUG, "towers of %s: %s", path, mmproj);
        return EK_OK;
    }
    ek_gguf_close(*out);
    *out = NULL;
    return no_towers(mmproj);
}

/* ------------------------------------------------------------------ tensors */

static const ek_weight_type *type_of(const ek_gguf_tensor *t)
{
    const ek_gguf_type *has = ek_gguf_type_of(t->type);
    return has ? ek_weight_type_named(has->name) : NULL;
}

/* Memory for a converted tensor; it belongs to the source until it is taken (ek_tower_source.made). */
static void *make(ek_tower_source *s, size_t n)
{
    free(s->made);
    return s->made = ek_alloc(n);
}

/* Rows of [3][side][side] become [side][side][3]; size: bytes of an element. */
static const uint8_t *channels_last(ek_tower_source *s, const uint8_t *from, int64_t rows, int64_t pixels, size_t size)
{
    uint8_t *to = make(s, (size_t)(rows * pixels * 3) * size), *out = to;
    for (int64_t r = 0; r < rows; r++, from += (size_t)pixels * 3 * size)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = 0; c < 3; c++, out += size) memcpy(out, from + (size_t)(c * pixels + p) * size, size);
    return to;
}

/* The four floats of v.clamp_data for "vision_tower.encoder.layers.3.mlp.up_proj.input_min"; zeros mean no bound. */
static bool find_packed_bound(ek_tower_gguf *s, const char *name, ek_tower_tensor *out)
{
    static const char *const linear[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                         "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    static const char *const which[] = {"input_min", "input_max", "output_min", "output_max"};
    static const float none[] = {-__builtin_inff(), __builtin_inff(), -__builtin_inff(), __builtin_inff()};
    const ek_gguf_tensor *t = ek_gguf_tensor_find(s->g, "v.clamp_data");
    const char *dot = strrchr(name, '.');
    int layer, at = 0, l = 0, w = 0;
    if (!t || !dot || sscanf(name, "vision_tower.encoder.layers.%d.%n", &layer, &at) != 1 || !at) return false;
    while (l < 7 && (strncmp(name + at, linear[l], strlen(linear[l])) != 0 || name[at + (int)strlen(linear[l])] != '.'))
        l++;
    while (w < 4 && strcmp(dot + 1, which[w]) != 0) w++;
    const int64_t first = ((int64_t)layer * 7 + l) * 4;
    if (l == 7 || w == 4 || layer < 0 || t->type != 0 || first + 4 > t->dim[0]) return false;
    float four[4];
    memcpy(four, t->data + sizeof *four * (size_t)first, sizeof four);
    const bool absent = four[0] == 0 && four[1] == 0 && four[2] == 0 && four[3] == 0;
    *out = (ek_tower_tensor){.name = t->name,
                             .file = t->file,
                             .type = ek_weight_type_float(EK_F32),
                             .data = absent ? (const uint8_t *)&none[w] : t->data + sizeof *four * (size_t)(first + w)};
    return true;
}

static bool find(ek_tower_source *source, const char *name, ek_tower_tensor *out)
{
    ek_tower_gguf *s = (ek_tower_gguf *)source;
    char full[160];
    const ek_gguf_tensor *t = ek_tower_gguf_name(full, sizeof full, name, s->ollama) ? ek_gguf_tensor_find(s->g, full)
                                                                                     : NULL;
    if (!t) return find_packed_bound(s, name, out);
    *out = (ek_tower_tensor){
        .name = t->name, .file = t->file, .n_dims = t->n_dims, .type = type_of(t), .data = t->data};
    for (int d = 0; d < t->n_dims; d++) out->dim[d] = t->dim[t->n_dims - 1 - d];
    if (strstr(name, "patch_ln1") && out->type && out->type->load && t->dim[0] % 3 == 0)
        out->data = channels_last(source, t->data, 1, t->dim[0] / 3, out->type->block_bytes[0]);
    return true;
}

static bool has(ek_tower_source *source, const char *begin)
{
    const ek_tower_gguf *s = (const ek_tower_gguf *)source;
    static const char *const one_of[][2] = {{"vision_tower.", "v.blk.0.attn_q.weight"},
                                            {"embed_vision.", "mm.input_projection.weight"},
                                            {"audio_tower.", "a.conv1d.0.weight"},
                                            {"embed_audio.", "mm.a.input_projection.weight"}};
    for (size_t i = 0; i < sizeof one_of / sizeof *one_of; i++)
        if (strcmp(begin, one_of[i][0]) == 0) return ek_gguf_tensor_find(s->g, one_of[i][1]) != NULL;
    return false;
}

static ek_err wrong_shape(const ek_gguf_tensor *t, int n, int k)
{
    return ek_fail(EK_EFORMAT, "%s: tensor %s has %lld x %lld x %lld x %lld weights, %d x %d are needed", t->file,
                   t->name, (long long)t->dim[3], (long long)t->dim[2], (long long)t->dim[1], (long long)t->dim[0], n,
                   k);
}

/* The first projection of patches, in either order of its inputs. */
static ek_err patches(ek_tower_source *s, const ek_gguf_tensor *t, bool unified, int n, int k, ek_weight_data *out)
{
    const int64_t *d = t->dim, pixels = k / 3;
    const bool square = d[0] == d[1] && d[0] * d[1] == pixels && d[2] == 3 && d[3] == n && k % 3 == 0;
    const bool flat = d[0] == k && d[1] == n && d[2] == 1 && d[3] == 1;
    if (!square && !flat) return wrong_shape(t, n, k);
    if (!out->type->load)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s has type %s, it must be f32, f16 or bf16", t->file, t->name,
                       out->type->name);
    if (square || unified) out->plane[0] = channels_last(s, t->data, n, pixels, out->type->block_bytes[0]);
    return EK_OK;
}

static ek_err matrix(ek_tower_source *source, const char *name, int n, int k, ek_weight_data *out)
{
    ek_tower_gguf *s = (ek_tower_gguf *)source;
    char full[160], weight[160];
    snprintf(weight, sizeof weight, "%s.weight", name);
    const ek_gguf_tensor *t = ek_tower_gguf_name(full, sizeof full, weight, s->ollama) ? ek_gguf_tensor_find(s->g, full)
                                                                                       : NULL;
    if (!t) return ek_fail(EK_EFORMAT, "%s: tensor %.120s of the towers is missing", source->file, full);
    *out = (ek_weight_data){.type = type_of(t), .plane = {t->data}};
    if (!out->type || out->type->scale == EK_SCALE_E4M3)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s has type number %u, which cannot be run", t->file, t->name,
                       t->type);
    if (strcmp(full, "v.patch_embd.weight") == 0) return patches(source, t, s->unified, n, k, out);
    if (t->dim[0] != k || t->dim[1] != n || t->dim[2] != 1 || t->dim[3] != 1) return wrong_shape(t, n, k);
    return EK_OK;
}

static void drop_pages(ek_tower_source *s)
{
    ek_gguf_drop_pages(((ek_tower_gguf *)s)->g);
}

static void close_gguf(ek_tower_source *source)
{
    ek_tower_gguf *s = (ek_tower_gguf *)source;
    ek_gguf_close(s->g);
    json_decref(source->config);
    free(source->made);
    free(source->path);
    free(s);
}

/* ------------------------------------------------------------------ opening */

/* The text model's part of the configuration. */
static ek_err read_text(ek_tower_gguf *s, const char *path)
{
    ek_source *model;
    ek_config *c = ek_alloc(sizeof *c);
    ek_err err = ek_source_open(&model, path);
    if (!err) err = ek_source_config(model, c);
    ek_source_close(model);
    if (!err) {
        const ek_media_ids *m = &c->media;
        s->source.config = json_pack(
            "{s:{s:i,s:i,s:s?},s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "text_config", "hidden_size", c->hidden_size,
            "vocab_size", c->vocab_size, "use_bidirectional_attention", c->mutual ? "vision" : NULL, "boi_token_id",
            m->begin[EK_PART_IMAGE], "image_token_id", m->soft[EK_PART_IMAGE], "eoi_token_id", m->end[EK_PART_IMAGE],
            "boa_token_id", m->begin[EK_PART_SOUND], "audio_token_id", m->soft[EK_PART_SOUND], "eoa_token_index",
            m->end[EK_PART_SOUND], "video_token_id", m->soft[EK_PART_FRAME]);
        EK_ASSERT(s->source.config);
    }
    free(c);
    return err;
}

ek_err ek_tower_gguf_open(ek_tower_source **out, const char *path, const char *mmproj)
{
    static const ek_tower_source_ops ops = {
        .find = find, .has = has, .matrix = matrix, .drop_pages = drop_pages, .close = close_gguf};
    ek_gguf *g;
    bool beside;
    EK_TRY(open_file(&g, &beside, path, mmproj));
    if (!g) return EK_OK;
    ek_tower_gguf *s = ek_alloc(sizeof *s);
    s->g = g;
    s->source = (ek_tower_source){
        .ops = &ops, .path = ek_strdup(path), .file = ek_gguf_file_name(g, 0), .gguf = true, .beside = beside};
    s->unified = !ek_gguf_tensor_find(g, "v.blk.0.attn_q.weight");
    s->ollama = ek_tower_gguf_audio_ollama(g);
    ek_err err = read_text(s, path);
    if (err) {
        close_gguf(&s->source);
        return err;
    }
    ek_tower_gguf_config(s);
    *out = &s->source;
    return EK_OK;
}
