/* Paths of other servers that this server lacks: a sentence for each, with the counterpart here. */
#include <string.h>

#include "serve/routes.h"

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
} rows[] = {
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

static bool fits(const char *pattern, const char *path)
{
    const bool is = !strncmp(path, "/v1/", 4), has = !strncmp(pattern, "/v1/", 4);
    if (has && !is) pattern += 3; /* as in routes.c */
    if (is && !has && strncmp(pattern, "/v2/", 4) != 0) path += 3;
    size_t n = strcspn(pattern, "*");
    return !strncmp(path, pattern, n) && (pattern[n] ? path[n] != '\0' : path[n] == '\0');
}

const char *ek_absent_find(const char *path)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fits(rows[i].pattern, path)) return rows[i].why;
    return NULL;
}
