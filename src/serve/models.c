/* GET /v1/models and /v1/models/{id}, in OpenAI's form and in Anthropic's, and the lists of Ollama's API. */
#include <string.h>
#include <time.h>

#include "serve/ollama/ollama.h"
#include "serve/routes.h"
#include "serve/server_state.h"
#include "text/json/json.h"

/* The members of OpenRouter's and vLLM's lists, which clients read before they send a picture. */
static void put_modalities(ek_buf *out, const ek_server *s)
{
    const ek_chat_media *m = &s->chat->media;
    ek_buf_fmt(out, ",\"architecture\":{\"input_modalities\":[\"text\"%s%s],\"output_modalities\":[\"text\"]}",
               m->image ? ",\"image\"" : "", m->audio ? ",\"audio\"" : "");
}

/* How this server takes PDFs, for the page at /. */
static void put_pdf(ek_buf *out, const ek_server *s)
{
    const bool pages = s->pdftoppm && s->chat->media.image;
    if (!s->pdftotext && !pages) return;
    ek_buf_fmt(out, ",\"evenkeel\":{\"pdf\":[%s%s%s]}", s->pdftotext ? "\"text\"" : "",
               s->pdftotext && pages ? "," : "", pages ? "\"pages\"" : "");
}

static void openai_entry(ek_buf *out, const ek_server *s, const char *name)
{
    ek_put_string_after(out, "{\"id\":", name);
    ek_buf_fmt(
        out,
        ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"evenkeel\",\"max_model_len\":%d,\"context_length\":%d",
        (long long)s->started, ek_engine_ctx(s->engine), ek_engine_ctx(s->engine));
    ek_buf_str(out, ",\"parent\":null,\"root\":"); /* as in vLLM: not an adapter of another model */
    ek_put_string(out, s->model_name);
    put_modalities(out, s);
    put_pdf(out, s);
    ek_buf_char(out, '}');
}

static void anthropic_entry(ek_buf *out, const ek_server *s, const char *name)
{
    char created[32];
    struct tm t;
    time_t started = (time_t)s->started;
    gmtime_r(&started, &t);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &t);
    ek_put_string_after(out, "{\"type\":\"model\",\"id\":", name);
    ek_put_string_after(out, ",\"display_name\":", name);
    ek_buf_fmt(out,
               ",\"created_at\":\"%s\",\"max_input_tokens\":%d,\"max_tokens\":%d,\"capabilities\":null,\"line\":null,"
               "\"lifecycle\":\"active\",\"deprecated_at\":null,\"retires_at\":null,\"context_length\":%d}",
               created, ek_engine_ctx(s->engine), ek_engine_ctx(s->engine), ek_engine_ctx(s->engine));
}

/* Writes the model under each of its names. */
static void put_entries(ek_buf *out, const ek_server *s, void (*entry)(ek_buf *, const ek_server *, const char *))
{
    entry(out, s, s->model_name);
    for (int i = 0; i < s->card.n_listed; i++) {
        ek_buf_char(out, ',');
        entry(out, s, s->card.names[i]);
    }
}

void ek_models_list(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    const char *last = s->card.n_listed ? s->card.names[s->card.n_listed - 1] : s->model_name;
    ek_buf b = {0};
    if (ek_route_form(s, x)->vendor == EK_API_ANTHROPIC) {
        ek_buf_str(&b, "{\"data\":[");
        put_entries(&b, s, anthropic_entry);
        ek_put_string_after(&b, "],\"first_id\":", s->model_name);
        ek_put_string_after(&b, ",\"last_id\":", last);
        ek_buf_str(&b, ",\"has_more\":false}");
    } else {
        ek_buf_str(&b, "{\"object\":\"list\",\"data\":[");
        put_entries(&b, s, openai_entry);
        ek_buf_str(&b, "]}");
    }
    ek_reply_json(x, 200, &b);
}

void ek_models_one(ek_server *s, ek_exchange *x, const char *id)
{
    const ek_dialect *form = ek_route_form(s, x);
    ek_buf b = {0};
    if (!ek_model_card_is(&s->card, id)) {
        ek_reply_error(x, form, 404, "model", "model_not_found",
                       "there is no model \"%.200s\" here; this server has \"%s\"", id, s->model_name);
        return;
    }
    if (form->vendor == EK_API_ANTHROPIC) anthropic_entry(&b, s, id);
    else openai_entry(&b, s, id);
    ek_reply_json(x, 200, &b);
}

void ek_models_tags(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_buf b = {0};
    ek_ollama_tags(&b, &s->card);
    ek_reply_json(x, 200, &b);
}

void ek_models_ps(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_buf b = {0};
    ek_ollama_ps(&b, &s->card);
    ek_reply_json(x, 200, &b);
}

void ek_models_version(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)s, (void)rest;
    ek_buf b = {0};
    ek_ollama_version(&b);
    ek_reply_json(x, 200, &b);
}
