/* The APIs that are served: a new one adds its row. */
#include "serve/api/dialect.h"

const ek_dialect *const ek_dialects[] = {
    &ek_dialect_openai_chat, &ek_dialect_openai_completions, &ek_dialect_anthropic,     &ek_dialect_anthropic_count,
    &ek_dialect_tokenize,    &ek_dialect_detokenize,         &ek_dialect_responses,     &ek_dialect_responses_count,
    &ek_dialect_chat_render, &ek_dialect_completions_render, &ek_dialect_ollama_chat,   &ek_dialect_ollama_generate,
    &ek_dialect_ollama_show, &ek_dialect_ollama_pull,        &ek_dialect_transcription, NULL,
};
