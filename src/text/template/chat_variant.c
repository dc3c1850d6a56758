/* Chooses between the two published chat templates for a model directory. */
#define _GNU_SOURCE /* memmem, memrchr */
#include <string.h>

#include "base/file.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "text/json/json.h"
#include "text/template/chat.h"

enum { MAX_TEMPLATE = 4 << 20, MAX_CONFIG = 16 << 20 };

static const struct {
    const char *hash;
    ek_chat_variant variant;
} published[] = {
    {"ae53464bf3be25802b3a5b37def7fd89667067d7577049b3b2d74c4d8de4c6d4", EK_CHAT_LARGE},
    {"0a2c8073c878ab1da004bee933a998606537bbb62016310352c7285c3f01c5b5", EK_CHAT_SMALL},
};

/* The generation prompt is a template's last output: the text after the last model header distinguishes the variants.
 */
static bool by_generation_prompt(const ek_buf *b, ek_chat_variant *out)
{
    static const char header[] = "<|turn>model\\n", empty[] = "<|channel>thought\\n<channel|>";
    const char *at = NULL, *text = ek_buf_text(b), *end = text + b->len;
    for (const char *p = text; (p = memmem(p, (size_t)(end - p), header, sizeof header - 1)); p++) at = p;
    if (!at || !memmem(text, b->len, "<|tool_call>call:", 17)) return false;
    *out = memmem(at, (size_t)(end - at), empty, sizeof empty - 1) ? EK_CHAT_LARGE : EK_CHAT_SMALL;
    return true;
}

/* False where neither hash nor generation prompt is known, after a line in the log. out NULL: it decides nothing. */
static bool recognise(const ek_buf *b, const char *name, ek_chat_variant *out)
{
    char hash[65];
    ek_sha256_hex(hash, ek_buf_text(b), b->len);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(hash, published[i].hash) == 0) {
            if (out) *out = published[i].variant;
            return true;
        }
    bool decided = out && by_generation_prompt(b, out);
    ek_log(EK_LOG_WARN, "%s is not a published Gemma 4 template (SHA-256 %s); prompts follow the one of 2026-07-09%s",
           name, hash, decided ? ", with this one's generation prompt" : "");
    return decided;
}

static ek_err by_template(ek_chat_variant *out, const char *path, bool *decided)
{
    ek_buf b = {0};
    ek_err e = ek_file_read(&b, path, MAX_TEMPLATE);
    if (e == EK_OK) *decided = recognise(&b, path, out);
    ek_buf_fini(&b);
    return e;
}

ek_chat_variant ek_chat_variant_of_text(const char *name, const char *text, size_t n, bool small)
{
    ek_chat_variant variant = EK_CHAT_LARGE;
    ek_buf b = {0}, what = {0};
    if (text) ek_buf_add(&b, text, n < MAX_TEMPLATE ? n : MAX_TEMPLATE);
    ek_buf_fmt(&what, "%s: tokenizer.chat_template", name);
    if (!text || !recognise(&b, what.data, &variant)) variant = small ? EK_CHAT_SMALL : EK_CHAT_LARGE;
    ek_buf_fini(&b);
    ek_buf_fini(&what);
    return variant;
}

static ek_err by_tokenizer_config(ek_chat_variant *out, const char *path, bool *decided)
{
    json_t *v;
    EK_TRY(ek_json_read_file(&v, path, MAX_CONFIG));
    const char *name = ek_json_get_text(v, "chat_variant", NULL);
    ek_err e = EK_OK;
    if (name && strcmp(name, "small") != 0 && strcmp(name, "large") != 0)
        e = ek_fail(EK_EFORMAT, "%s: chat_variant is \"%.40s\", neither \"small\" nor \"large\"", path, name);
    else if (name) {
        *out = name[0] == 's' ? EK_CHAT_SMALL : EK_CHAT_LARGE;
        *decided = true;
    }
    json_decref(v);
    return e;
}

static ek_err by_config(ek_chat_variant *out, const char *path, bool *decided)
{
    static const char key[] = "hidden_size_per_layer_input";
    json_t *v;
    EK_TRY(ek_json_read_file(&v, path, MAX_CONFIG));
    const json_t *size = ek_json_get(ek_json_get(v, "text_config"), key);
    if (!size) size = ek_json_get(v, key);
    *out = json_number_value(size) > 0 ? EK_CHAT_SMALL : EK_CHAT_LARGE;
    *decided = true;
    json_decref(v);
    return EK_OK;
}

/* A template as a text under chat_template, or in a list of named ones: an unpublished one is logged, like a file of
 * its own. */
static void note_text(const char *path, const char *name, const json_t *text)
{
    ek_buf b = {0}, what = {0};
    if (!json_is_string(text)) return;
    ek_buf_add(&b, json_string_value(text), json_string_length(text));
    ek_buf_fmt(&what, "%s: chat_template%s%s", path, name ? " " : "", name ? name : "");
    recognise(&b, what.data, NULL);
    ek_buf_fini(&b), ek_buf_fini(&what);
}

static void note_templates(const char *dir, const char *file)
{
    json_t *v = NULL;
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/%s", dir, file);
    if (ek_is_file(path.data) && !ek_json_read_file(&v, path.data, MAX_CONFIG)) {
        const json_t *t = ek_json_get(v, "chat_template");
        note_text(path.data, NULL, t);
        for (size_t i = 0; i < json_array_size(t); i++) {
            const json_t *one = json_array_get(t, i);
            note_text(path.data, ek_json_get_text(one, "name", NULL), ek_json_get(one, "template"));
        }
    }
    json_decref(v);
    ek_buf_fini(&path);
}

/* An adapter is no part of the model beside it: answers are those of the model alone. */
static void note_adapter(const char *dir)
{
    static const char *const file[] = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/%s", dir, file[i]);
        const bool there = ek_is_file(path.data);
        if (there)
            ek_log(EK_LOG_WARN, "%s: an adapter beside the model is not used; merge it into the weights first",
                   path.data);
        ek_buf_fini(&path);
        if (there) return;
    }
}

void ek_chat_note_folder(const char *dir)
{
    ek_buf jinja = {0};
    ek_buf_fmt(&jinja, "%s/chat_template.jinja", dir);
    if (!ek_is_file(jinja.data)) { /* readers take it before the others */
        note_templates(dir, "chat_template.json");
        note_templates(dir, "tokenizer_config.json");
    }
    note_adapter(dir);
    ek_buf_fini(&jinja);
}

ek_err ek_chat_variant_of(ek_chat_variant *out, const char *dir)
{
    static const struct {
        const char *file;
        ek_err (*decide)(ek_chat_variant *out, const char *path, bool *decided);
    } sources[] = {{"chat_template.jinja", by_template},
                   {"tokenizer_config.json", by_tokenizer_config},
                   {"config.json", by_config}};
    *out = EK_CHAT_LARGE;
    bool decided = false;
    ek_err e = EK_OK;
    for (size_t i = 0; i < sizeof sources / sizeof *sources && !decided && e == EK_OK; i++) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/%s", dir, sources[i].file);
        if (ek_is_file(ek_buf_text(&path))) e = sources[i].decide(out, ek_buf_text(&path), &decided);
        ek_buf_fini(&path);
    }
    return e;
}
