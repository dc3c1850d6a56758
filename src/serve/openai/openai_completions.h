/* Completions: what a body says (openai_completions_body.c) of its replies (openai_completions.c) and their
 * log-probabilities (openai_completions_logprobs.c). Inside src/serve. */
#ifndef EK_SERVE_OPENAI_COMPLETIONS_H
#define EK_SERVE_OPENAI_COMPLETIONS_H

#include "serve/api/openai.h"

/* Of one choice: how far its stream is. */
typedef struct ek_completion_progress {
    int n_logprobs;        /* sent */
    size_t bytes, n_chars; /* of the content before the next token to be sent, for text_offset */
} ek_completion_progress;

/* ek_api_request.own. */
typedef struct ek_openai_completion {
    json_t *prompt; /* until the prompts are made */
    bool bos, echo, include_usage;
    ek_buf echoed[EK_OPENAI_CHOICES_MAX]; /* per prompt: its text, with echo */
    ek_completion_progress choice[EK_OPENAI_CHOICES_MAX];
} ek_openai_completion;

/* Whether a reply's text, or an echo of its prompt, has this token. */
static inline bool ek_completion_shows(const ek_tokenizer *t, const ek_turn_opts *o, int32_t id)
{
    return o->show_special || !ek_tokenizer_is_special(t, id);
}

/* Serve as ek_dialect.parse and ek_dialect.prompt. */
ek_err ek_openai_completion_parse(ek_api_request *r, const char *text, size_t n, const ek_api_limits *limits);
ek_err ek_openai_completion_prompts(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r);

/* ,"logprobs":… of what became visible since `at`, which moves on; with the prompt's if asked. */
void ek_openai_completion_logprobs(ek_buf *out, const ek_api_reply *r, int choice, bool prompt,
                                   ek_completion_progress *at);

#endif
