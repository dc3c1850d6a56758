#include "serve/routes.h"

#include <stdio.h>
#include <string.h>

#include "serve/background.h"
#include "serve/receipts.h"

/* 404 and not 501, because clients repeat a request after a 5xx. */
void ek_route_missing(ek_server *s, ek_exchange *x, const char *why)
{
    ek_reply_error(x, ek_route_form(s, x), 404, NULL, NULL, "%.200s is not supported: %s", ek_exchange_path(x), why);
}

static const ek_route_row routes[] = {
    {"/v1/models", "GET", false, false, ek_models_list},
    {"/v1/models/*", "GET", false, false, ek_models_one},
    {"/health", "GET", true, true, ek_health},
    {"/ping", "GET", true, true, ek_health},
    {"/ping", "POST", true, true, ek_health},
    {"/ready", "GET", true, true, ek_readiness_reply},
    {"/load", "GET", false, true, ek_load_reply},
    {"/version", "GET", false, true, ek_version_reply},
    {"/metrics", "GET", false, true, ek_metrics_reply},
    {"/v1/responses/*/cancel", "POST", false, false, ek_background_cancel},
    {"/v1/responses/*/input_items", "GET", false, false, ek_responses_get},
    {"/v1/responses/*", "GET", false, false, ek_responses_get},
    {"/v1/responses/*", "DELETE", false, false, ek_responses_delete},
    {"/v1/conversations", "*", false, false, ek_conversations_route},
    {"/v1/conversations/*", "*", false, false, ek_conversations_route},
    {"/api/version", "GET", true, true, ek_models_version},
    {"/api/tags", "GET", false, false, ek_models_tags},
    {"/api/ps", "GET", false, false, ek_models_ps},
    {"/debug", "GET", false, false, ek_debug_reply},
    {"/props", "GET", false, false, ek_props_reply},
    {"/v1/tokenizer_info", "GET", false, false, ek_tokenizer_info_reply},
    {"/v1/receipts/*", "GET", false, false, ek_receipts_get},
    {"/slots", "GET", false, false, ek_slots_reply},
    {"/v1/fingerprint", "GET", false, false, ek_fingerprint_reply},
    {"/v1/drafts", "POST", false, false, ek_drafts_route},
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

const ek_route_row *ek_routes_all(int *n)
{
    *n = N_ROUTES;
    return routes;
}

/* Where "*" begins in the path, or its end without one; NULL if it does not fit. */
static const char *fit(const char *pattern, const char *path)
{
    if (!strncmp(pattern, "/v1", 3) && strncmp(path, "/v1", 3) != 0) pattern += 3;
    size_t n = strcspn(pattern, "*"), n_path = strlen(path);
    if (strncmp(path, pattern, n) != 0) return NULL;
    if (!pattern[n]) return path[n] ? NULL : path + n;
    const char *tail = pattern + n + 1;
    size_t n_tail = strlen(tail);
    if (n_path <= n + n_tail || strcmp(path + n_path - n_tail, tail) != 0) return NULL;
    return path + n;
}

bool ek_method_fits(const char *method, const char *allowed)
{
    return !strcmp(allowed, "*") || !strcmp(method, allowed) || (!strcmp(allowed, "GET") && !strcmp(method, "HEAD"));
}

const ek_route_row *ek_routes_find(const char *path, const char *method, const char **rest, bool *fits)
{
    const ek_route_row *found = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (found && strcmp(routes[i].pattern, found->pattern) != 0) break;
        const char *at = fit(routes[i].pattern, path);
        if (!at) continue;
        found = &routes[i];
        *rest = at;
        *fits = ek_method_fits(method, found->method);
        if (*fits) break;
    }
    return found;
}

void ek_routes_methods(char *out, size_t room, const ek_route_row *row)
{
    size_t n = 0;
    *out = '\0';
    for (size_t i = 0; i < N_ROUTES && n < room; i++)
        if (!strcmp(routes[i].pattern, row->pattern))
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", routes[i].method);
}

/* --- paths of other servers that this server lacks: a sentence for each, with the counterpart here --- */

static const char no_embeddings[] = "the model that is served here makes no embeddings; it answers at "
                                    "/v1/chat/completions",
                  no_ranks[] = "the model that is served here ranks nothing; it answers at /v1/chat/completions",
                  no_other_models[] = "one model is served, which this API neither makes nor changes",
                  no_batches[] = "this server takes no batches; each message goes to /v1/messages",
                  no_batch_files[] =
                      "this server keeps no files and takes no batches; each request goes to its own path",
                  no_assistants[] = "this server has no assistants; /v1/responses keeps conversations "
                                    "(previous_response_id)",
                  no_adapters[] = "one model is served, without adapters",
                  no_slots[] = "slots are not saved or restored; cached prefixes are found by their tokens";

/* "*" at the end stands for one byte or more. */
static const struct {
    const char *pattern, *why;
} absent[] = {
    {"/v1/embeddings", no_embeddings},
    {"/embedding", no_embeddings},
    {"/api/embed", no_embeddings},
    {"/api/embeddings", no_embeddings},
    {"/pooling", no_embeddings},
    {"/v1/rerank", no_ranks},
    {"/v2/rerank", no_ranks},
    {"/v1/reranking", no_ranks},
    {"/v1/score", no_ranks},
    {"/classify", no_ranks},
    {"/v1/moderations", no_ranks},
    {"/completion", "/v1/completions continues a text"},
    {"/generate", "/v1/completions continues a text, and /api/generate is Ollama's"},
    {"/api/v1/generate", "/v1/completions continues a text"},
    {"/infill", "the model continues texts and fills no gaps; /v1/completions continues one"},
    {"/v1/fim/completions", "the model continues texts and fills no gaps; /v1/completions continues one"},
    {"/apply-template", "/v1/chat/completions/render gives the tokens of a conversation"},
    {"/v1/chat/completions/input_tokens", "/v1/tokenize counts the tokens of a conversation"},
    {"/v1/messages/batches", no_batches},
    {"/v1/messages/batches/*", no_batches},
    {"/v1/batches", no_batch_files},
    {"/v1/batches/*", no_batch_files},
    {"/v1/files", no_batch_files},
    {"/v1/files/*", no_batch_files},
    {"/v1/uploads", no_batch_files},
    {"/v1/uploads/*", no_batch_files},
    {"/v1/assistants", no_assistants},
    {"/v1/assistants/*", no_assistants},
    {"/v1/threads", no_assistants},
    {"/v1/threads/*", no_assistants},
    {"/v1/conversations", no_assistants},
    {"/v1/conversations/*", no_assistants},
    {"/v1/vector_stores", no_embeddings},
    {"/v1/vector_stores/*", no_embeddings},
    {"/v1/images/*", "the model that is served here makes no pictures; /v1/chat/completions reads them"},
    {"/v1/audio/speech", "the model that is served here speaks no texts; /v1/audio/transcriptions writes down sounds"},
    {"/v1/audio/translations", "/v1/audio/transcriptions writes down what a sound says in its own language"},
    {"/v1/realtime", "replies are streamed over HTTP: /v1/responses and /v1/chat/completions"},
    {"/v1/realtime/*", "replies are streamed over HTTP: /v1/responses and /v1/chat/completions"},
    {"/v1/fine_tuning/*", no_other_models},
    {"/v1/load_lora_adapter", no_adapters},
    {"/v1/unload_lora_adapter", no_adapters},
    {"/lora-adapters", no_adapters},
    {"/models/load", no_other_models},
    {"/models/unload", no_other_models},
    {"/slots/*", no_slots},
    {"/api/create", no_other_models},
    {"/api/copy", no_other_models},
    {"/api/delete", no_other_models},
    {"/api/push", no_other_models},
    {"/api/blobs/*", no_other_models},
};

static bool fits_absent(const char *pattern, const char *path)
{
    const bool is = !strncmp(path, "/v1/", 4), has = !strncmp(pattern, "/v1/", 4);
    if (has && !is) pattern += 3; /* as in fit */
    if (is && !has && strncmp(pattern, "/v2/", 4) != 0) path += 3;
    size_t n = strcspn(pattern, "*");
    return !strncmp(path, pattern, n) && (pattern[n] ? path[n] != '\0' : path[n] == '\0');
}

const char *ek_absent_find(const char *path)
{
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (fits_absent(absent[i].pattern, path)) return absent[i].why;
    return NULL;
}

/* The served APIs; a new one gets a row. */

const ek_dialect *const ek_dialects[] = {
    &ek_dialect_openai_chat,
    &ek_dialect_openai_completions,
    &ek_dialect_anthropic,
    &ek_dialect_anthropic_count,
    &ek_dialect_tokenize,
    &ek_dialect_detokenize,
    &ek_dialect_responses,
    &ek_dialect_responses_count,
    &ek_dialect_responses_compact,
    &ek_dialect_chat_render,
    &ek_dialect_completions_render,
    &ek_dialect_ollama_chat,
    &ek_dialect_ollama_generate,
    &ek_dialect_ollama_show,
    &ek_dialect_ollama_pull,
    &ek_dialect_transcription,
    NULL,
};
