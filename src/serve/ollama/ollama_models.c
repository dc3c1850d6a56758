/* Ollama's paths about models, for the one served model under any name: /api/version, /api/tags, /api/ps, whose replies
 * serve/models.c sends; /api/show, and /api/pull of the served model. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "serve/api/field.h"
#include "serve/ollama/ollama.h"
#include "text/json/json.h"

/* --- pieces --- */

/* The tag of a name; clients look for names with `latest`, which stands for no tag. */
static const char *tag_of(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon && !strchr(colon, '/') ? "" : ":latest";
}

static void put_name(ek_buf *out, const ek_model_card *card)
{
    ek_buf name = {0};
    ek_buf_fmt(&name, "%s%s", card->name, tag_of(card->name));
    ek_put_string(out, name.data);
    ek_buf_fini(&name);
}

static void put_size(ek_buf *out, uint64_t n)
{
    static const char units[] = {'K', 'M', 'B', 'T'};
    double v = (double)n;
    int unit = -1;
    while (v >= 999.95 && unit < 3) v /= 1000, unit++;
    if (unit < 0) ek_buf_fmt(out, "\"%.0f\"", v);
    else ek_buf_fmt(out, "\"%.1f%c\"", v, units[unit]);
}

static void put_details(ek_buf *out, const ek_model_card *card)
{
    ek_buf_fmt(out,
               "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":\"gemma4\",\"families\":[\"gemma4\"],"
               "\"parameter_size\":",
               card->format);
    put_size(out, card->parameters);
    ek_put_string_after(out, ",\"quantization_level\":", card->weights);
    ek_buf_fmt(out, ",\"context_length\":%d,\"embedding_length\":%d}", card->ctx_tokens, card->config->hidden_size);
}

static void put_capabilities(ek_buf *out, const ek_model_card *card)
{
    ek_buf_fmt(out, "\"capabilities\":[\"completion\",\"tools\",\"thinking\"%s%s]", card->image ? ",\"vision\"" : "",
               card->audio ? ",\"audio\"" : "");
}

/* The members of the model in a list, without the braces. */
static void put_entry(ek_buf *out, const ek_model_card *card)
{
    ek_buf_str(out, "\"name\":");
    put_name(out, card);
    ek_buf_str(out, ",\"model\":");
    put_name(out, card);
    ek_buf_fmt(out, ",\"size\":%lld,\"digest\":\"%s\",", (long long)card->size, card->digest);
    put_details(out, card);
}

/* --- lists --- */

void ek_ollama_version(ek_buf *out)
{
    ek_buf_str(out, "{\"version\":\"" EK_OLLAMA_VERSION "\",\"evenkeel\":\"" EK_VERSION "\"}");
}

void ek_ollama_tags(ek_buf *out, const ek_model_card *card)
{
    ek_buf_str(out, "{\"models\":[{");
    put_entry(out, card);
    ek_buf_str(out, ",\"modified_at\":");
    ek_ollama_time(out, card->modified);
    ek_buf_char(out, ',');
    put_capabilities(out, card);
    ek_buf_str(out, "}]}");
}

/* The model is loaded as long as the server runs. */
void ek_ollama_ps(ek_buf *out, const ek_model_card *card)
{
    ek_buf_str(out, "{\"models\":[{");
    put_entry(out, card);
    ek_buf_fmt(out, ",\"expires_at\":\"2999-12-31T23:59:59Z\",\"size_vram\":%lld,\"context_length\":%d}]}",
               (long long)(card->on_device ? card->size : 0), card->ctx_tokens);
}

/* --- paths whose body names a model --- */

typedef struct own {
    const ek_model_card *card;
    ek_sampling sampling;
} own;

static ek_err open_own(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    own *o = r->own = ek_alloc(sizeof *o);
    o->card = limits->card;
    o->sampling = limits->defaults;
    EK_ASSERT(o->card);
    return ek_ollama_model(r, body);
}

static ek_err read_show(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    bool verbose;
    EK_TRY(open_own(r, body, limits));
    return ek_field_bool(r, body, "verbose", &verbose);
}

/* Writes lines KEY VALUE; clients read the context from them. */
static void put_parameters(ek_buf *out, const own *o, const char *before)
{
    const ek_sampling *s = &o->sampling;
    ek_buf_fmt(out, "%snum_ctx %d\n%stemperature %g\n%stop_k %d\n%stop_p %g", before, o->card->ctx_tokens, before,
               (double)s->temperature, before, s->top_k, before, (double)s->top_p);
}

static void put_text(ek_buf *out, const char *key, ek_buf *text)
{
    ek_buf_fmt(out, "\"%s\":", key);
    ek_json_quote(out, ek_buf_text(text), text->len);
    ek_buf_char(out, ',');
    ek_buf_clear(text);
}

static void put_info(ek_buf *out, const ek_model_card *card)
{
    const ek_config *c = card->config;
    ek_buf_fmt(out,
               "\"model_info\":{\"general.architecture\":\"gemma4\",\"general.parameter_count\":%llu,"
               "\"gemma4.context_length\":%d,\"gemma4.embedding_length\":%d,\"gemma4.block_count\":%d,"
               "\"gemma4.attention.head_count\":%d,\"gemma4.attention.head_count_kv\":%d,"
               "\"gemma4.attention.key_length\":%d,\"gemma4.attention.sliding_window\":%d,\"gemma4.vocab_size\":%d,"
               "\"general.basename\":",
               (unsigned long long)card->parameters, card->ctx_tokens, c->hidden_size, c->n_layers, c->n_heads,
               c->layer[0].n_kv_heads, c->layer[0].head_dim, c->sliding_window, c->vocab_size);
    ek_put_string(out, card->name);
    ek_buf_char(out, '}');
}

static ek_err write_show(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    const own *o = r->own;
    ek_buf text = {0};
    (void)m, (void)prompt;
    ek_buf_char(out, '{');
    ek_buf_fmt(&text, "FROM %s%s\nTEMPLATE {{ .Prompt }}\n", o->card->name, tag_of(o->card->name));
    put_parameters(&text, o, "PARAMETER ");
    put_text(out, "modelfile", &text);
    put_parameters(&text, o, "");
    put_text(out, "parameters", &text);
    ek_buf_str(&text, "{{ .Prompt }}"); /* the model's own template is not in Ollama's form */
    put_text(out, "template", &text);
    ek_buf_fini(&text);
    put_details(out, o->card);
    ek_buf_char(out, ',');
    put_info(out, o->card);
    ek_buf_char(out, ',');
    put_capabilities(out, o->card);
    ek_buf_str(out, ",\"modified_at\":");
    ek_ollama_time(out, o->card->modified);
    ek_buf_char(out, '}');
    return EK_OK;
}

/* Any name is served, but a pull asks for specific weights. */
static ek_err read_pull(ek_api_request *r, const json_t *body, const ek_api_limits *limits)
{
    r->stream = true;
    EK_TRY(open_own(r, body, limits));
    EK_TRY(ek_field_bool(r, body, "stream", &r->stream));
    const own *o = r->own;
    if (ek_model_card_is(o->card, r->model)) return EK_OK;
    ek_buf after = {0};
    ek_buf_fmt(&after, "here: it serves %.200s and loads no others (evenkeel pull fetches models)", o->card->name);
    ek_err err = ek_field_wrong_text(r, "model", "this server pulls no", r->model, after.data);
    ek_buf_fini(&after);
    return err;
}

static ek_err write_pull(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt)
{
    (void)m, (void)r, (void)prompt;
    ek_buf_str(out, "{\"status\":\"success\"}\n");
    return EK_OK;
}

const ek_dialect ek_dialect_ollama_show = {
    .path = "/api/show",
    .id_prefix = "",
    .prompt_param = "model",
    .read = read_show,
    .prompt = ek_api_no_prompt,
    .answer = write_show,
    .vendor = EK_API_OLLAMA,
    .error = ek_ollama_error,
};

const ek_dialect ek_dialect_ollama_pull = {
    .path = "/api/pull",
    .id_prefix = "",
    .prompt_param = "model",
    .stream_type = "application/x-ndjson",
    .read = read_pull,
    .prompt = ek_api_no_prompt,
    .answer = write_pull,
    .vendor = EK_API_OLLAMA,
    .error = ek_ollama_error,
};
