/* The steps of a conversion: read the model, lay out the output, check that it fits, write it. */
#include "convert/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "convert/layout.h"
#include "convert/meta.h"
#include "convert/stream.h"
#include "text/json/json.h"
#include "text/template/chat.h"

enum { MAX_TEXT = 4 << 20, SHARD_BYTES = 5000000 }; /* SHARD_BYTES in thousands */

/* A small file of a folder. */
typedef struct text_file {
    const char *name;
    ek_buf text;
} text_file;

enum { CONFIG, GENERATION, TOKENIZER_CONFIG, TEMPLATE, INDEX, N_TEXTS };

typedef struct job {
    const ek_convert_opts *o;
    ek_convert_form form;
    const ek_target *target;
    ek_config config;
    ek_weights weights;
    ek_items items;
    ek_buf made;                   /* the tokenizer of a random model */
    ek_source_tokenizer tokenizer; /* json NULL: the source has none */
    ek_buf chat_template;
    const char *variant;
    int32_t *order; /* a drafter's tokens by centroid */
    ek_meta_opts meta;
    ek_layout layout;
    ek_place place;
    text_file text[N_TEXTS];
    ek_outdir *to;
} job;

/* --- the wanted output --- */

static bool ends_in(const char *s, const char *with)
{
    size_t n = strlen(s), m = strlen(with);
    return n > m && strcmp(s + n - m, with) == 0;
}

static ek_err choose(const ek_convert_opts *o, ek_convert_form *form, const ek_target **target)
{
    char name[16];
    const char *type = o->type;
    bool gguf = ends_in(o->to, ".gguf"), mlx = strncmp(type, "mlx", 3) == 0;
    if (o->from && !*o->from) return ek_fail(EK_EINVAL, "SRC is empty: a model is needed");
    if (!*o->to) return ek_fail(EK_EINVAL, "DST is empty: the name of a file or a folder is needed");
    snprintf(name, sizeof name, mlx ? "q%.4s.64" : "%.8s", mlx ? type + 3 : type);
    *target = ek_target_find(name);
    if (!*target) return ek_fail(EK_EINVAL, "there is no type %.40s", type);
    if (gguf && mlx) return ek_fail(EK_EINVAL, "%s is MLX, which is a folder; %s names a GGUF file", type, o->to);
    if (!gguf && !mlx && (*target)->block > 1)
        return ek_fail(EK_EINVAL, "%s exists in GGUF only: %s must end in .gguf", type, o->to);
    if (mlx && !o->from && (*target)->bits != 4 && (*target)->bits != 8)
        return ek_fail(EK_EINVAL, "random weights of MLX have 4 or 8 bits, %s has %d", type, (*target)->bits);
    *form = gguf ? EK_FORM_GGUF : mlx ? EK_FORM_MLX : EK_FORM_HF;
    return EK_OK;
}

ek_err ek_convert_check(const ek_convert_opts *o)
{
    ek_convert_form form;
    const ek_target *target;
    return choose(o, &form, &target);
}

/* --- the source --- */

static ek_err read_template(job *j, const char *dir)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/chat_template.jinja", dir);
    ek_err err = ek_is_file(path.data) ? ek_file_read(&j->chat_template, path.data, MAX_TEXT) : EK_OK;
    ek_buf_fini(&path);
    return err;
}

static ek_err read_chat(job *j)
{
    ek_source_chat chat;
    ek_chat_variant variant;
    EK_TRY(ek_source_chat_of(j->weights.source, &chat));
    if (chat.dir) {
        EK_TRY(ek_chat_variant_of(&variant, chat.dir));
        EK_TRY(read_template(j, chat.dir));
    } else {
        variant = ek_chat_variant_of_text(chat.name, chat.text, chat.n, chat.small);
        if (chat.text && chat.n <= MAX_TEXT) ek_buf_add(&j->chat_template, chat.text, chat.n);
    }
    j->variant = variant == EK_CHAT_SMALL ? "small" : "large";
    return EK_OK;
}

static ek_err read_order(job *j)
{
    const int n = j->config.vocab_size;
    j->order = ek_alloc(sizeof *j->order * (size_t)n);
    EK_TRY(ek_source_ids(j->weights.source, "masked_embedding.token_ordering", n, j->order));
    for (int i = 0; i < n; i++)
        if (j->order[i] < 0 || j->order[i] >= n)
            return ek_fail(EK_EFORMAT, "%s: token_ordering has %d at %d, the vocabulary has %d tokens", j->o->from,
                           j->order[i], i, n);
    return EK_OK;
}

static ek_err read_source(job *j)
{
    const char *from = j->o->from;
    EK_TRY(ek_source_open(&j->weights.source, from));
    EK_TRY(ek_source_config(j->weights.source, &j->config));
    if (j->config.n_centroids) EK_TRY(read_order(j));
    EK_TRY(ek_items_bind(&j->items, &j->weights, &j->config, j->weights.source));
    const bool drafter = j->config.backbone_hidden_size > 0;
    ek_err err = ek_source_tokenizer_of(j->weights.source, &j->tokenizer);
    if (err == EK_ENOTFOUND && drafter) {
        j->tokenizer = (ek_source_tokenizer){0}; /* a drafter has the tokens of its model */
    } else if (err == EK_ENOTFOUND) {
        ek_log(EK_LOG_WARN, "%s has no tokenizer; the result will have none", from);
        j->tokenizer = (ek_source_tokenizer){0};
    } else if (err) return err;
    return drafter ? EK_OK : read_chat(j);
}

static void invent(job *j)
{
    j->config = *j->o->invented;
    ek_items_invent(&j->items, &j->weights, &j->config, j->form == EK_FORM_MLX ? j->target->bits : 0);
    j->variant = j->config.per_layer_size ? "small" : "large";
    if (j->config.vocab_size < EK_MADE_MIN) return;
    ek_made_tokenizer(&j->made, j->config.vocab_size, EK_MADE_MERGES);
    j->tokenizer = (ek_source_tokenizer){.name = "tokenizer.json", .json = j->made.data, .n = j->made.len};
}

/* --- the written output --- */

static const char *model_name(const job *j)
{
    const char *path = j->o->from ? j->o->from : j->o->to, *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static ek_err plan_gguf(job *j)
{
    ek_gguf_meta meta = {0};
    ek_err err = ek_meta_gguf(&meta, &j->meta);
    if (!err) err = ek_place_gguf(&j->place, &j->layout, &meta, j->o->to, j->o->max_file_bytes);
    ek_gguf_meta_fini(&meta);
    return err;
}

static ek_err plan_folder(job *j)
{
    static const char *const name[N_TEXTS] = {"config.json", "generation_config.json", "tokenizer_config.json",
                                              "chat_template.jinja", "model.safetensors.index.json"};
    double max = j->o->max_file_bytes > 0 ? j->o->max_file_bytes : SHARD_BYTES * 1e3;
    for (int i = 0; i < N_TEXTS; i++) j->text[i].name = name[i];
    EK_TRY(ek_place_safetensors(&j->place, &j->layout, max));
    EK_TRY(ek_meta_config(&j->text[CONFIG].text, &j->meta, &j->layout));
    if (!j->config.backbone_hidden_size) {
        ek_meta_generation(&j->text[GENERATION].text, &j->config);
        ek_meta_tokenizer_config(&j->text[TOKENIZER_CONFIG].text, j->variant);
    }
    ek_buf_add(&j->text[TEMPLATE].text, j->chat_template.data, j->chat_template.len);
    ek_buf_add(&j->text[INDEX].text, j->place.index.data, j->place.index.len);
    return EK_OK;
}

static ek_err plan(job *j)
{
    bool invented = j->o->from == NULL;
    ek_layout_opts l = {.form = j->form,
                        .target = j->target,
                        .nested = invented,
                        .invented = invented && j->form == EK_FORM_MLX,
                        .seed = j->o->seed,
                        .order = j->order};
    j->meta = (ek_meta_opts){.config = &j->config,
                             .target = j->target,
                             .name = model_name(j),
                             .tokenizer = j->tokenizer.json,
                             .tokenizer_bytes = j->tokenizer.n,
                             .chat_template = j->chat_template.data,
                             .variant = j->variant,
                             .nested = invented};
    EK_TRY(ek_layout_make(&j->layout, &l, &j->config, &j->items));
    return j->form == EK_FORM_GGUF ? plan_gguf(j) : plan_folder(j);
}

/* Files of weights come first, then the small files with text, then the tokenizer. */
static ek_err open_output(job *j)
{
    const char **name = ek_alloc(sizeof *name * (size_t)(j->place.n + N_TEXTS + 1));
    int n = 0;
    for (int i = 0; i < j->place.n; i++) name[n++] = j->place.file[i].name;
    for (int i = 0; i < N_TEXTS; i++)
        if (j->text[i].text.len) name[n++] = j->text[i].name;
    if (j->form != EK_FORM_GGUF && j->tokenizer.json) name[n++] = "tokenizer.json";
    ek_err err = ek_outdir_open(&j->to, j->o->to, j->o->from, j->form != EK_FORM_GGUF, j->o->force, name, n);
    free(name);
    return err;
}

static double total_bytes(const job *j)
{
    double bytes = j->form == EK_FORM_GGUF ? 0 : (double)j->tokenizer.n;
    for (int i = 0; i < j->place.n; i++) bytes += (double)j->place.file[i].bytes;
    for (int i = 0; i < N_TEXTS; i++) bytes += (double)j->text[i].text.len;
    return bytes;
}

static ek_err write_all(job *j)
{
    EK_TRY(ek_outdir_room(j->to, total_bytes(j)));
    int n = j->place.n;
    for (int i = 0; i < n; i++) {
        const ek_place_file *f = &j->place.file[i];
        EK_TRY(ek_outdir_size(j->to, i, f->bytes));
        EK_TRY(ek_outdir_write(j->to, i, 0, f->head.data, f->head.len));
    }
    for (int i = 0; i < N_TEXTS; i++)
        if (j->text[i].text.len) EK_TRY(ek_outdir_write(j->to, n++, 0, j->text[i].text.data, j->text[i].text.len));
    if (j->form != EK_FORM_GGUF && j->tokenizer.json)
        EK_TRY(ek_outdir_write(j->to, n++, 0, j->tokenizer.json, j->tokenizer.n));
    ek_stream_opts s = {.search = j->o->from != NULL, .seed = j->o->seed, .pool = j->o->pool, .cancel = j->o->cancel};
    return ek_stream(&j->layout, j->to, &s);
}

static ek_err run(job *j)
{
    EK_TRY(choose(j->o, &j->form, &j->target));
    if (j->o->from) EK_TRY(read_source(j));
    else invent(j);
    EK_TRY(plan(j));
    EK_TRY(open_output(j));
    ek_err err = write_all(j);
    if (!err) return ek_outdir_commit(j->to);
    ek_outdir_cancel(j->to);
    return err;
}

ek_err ek_convert_model(const ek_convert_opts *o, ek_convert_report *report)
{
    job *j = ek_alloc(sizeof *j);
    j->o = o;
    ek_err err = run(j);
    if (!err) *report = (ek_convert_report){j->layout.n, j->place.n, total_bytes(j)};
    ek_layout_fini(&j->layout);
    ek_place_fini(&j->place);
    ek_items_fini(&j->items);
    ek_weights_fini(&j->weights);
    for (int i = 0; i < N_TEXTS; i++) ek_buf_fini(&j->text[i].text);
    free(j->order);
    ek_buf_fini(&j->made);
    ek_buf_fini(&j->chat_template);
    free(j);
    return err;
}
