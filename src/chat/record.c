#include "chat/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

uint64_t ek_digest_row(uint64_t h, uint64_t row)
{
    return ek_hash64(h, &row, sizeof row);
}

uint64_t ek_prompt_hash(const int32_t *tokens, int n_tokens)
{
    return ek_hash64(0, tokens, (uint64_t)n_tokens * sizeof *tokens);
}

void ek_record_begin(ek_record *r, const ek_request_opts *request)
{
    if (r->mode == EK_RECORD_NONE) return;
    r->n_prompt = request->n_tokens - request->n_replied;
    r->prompt_hash = ek_prompt_hash(request->tokens, r->n_prompt);
    r->n_parts = request->n_parts;
    for (int i = 0; i < r->n_parts; i++) {
        const uint8_t *digest = request->part[i].media->digest;
        r->prompt_hash = ek_hash64(r->prompt_hash, digest, sizeof request->part[i].media->digest);
    }
    if (r->n_parts > 0) r->mode = EK_RECORD_FACTS;
    r->sampling = request->sampling;
    r->ignore_eos = request->ignore_eos;
    r->forced = request->mask != NULL;
    size_t n_bias = (size_t)request->sampling.n_bias;
    ek_logit_bias *bias = ek_alloc((n_bias + 1) * sizeof *bias);
    if (n_bias > 0) memcpy(bias, request->sampling.bias, n_bias * sizeof *bias);
    r->sampling.bias = bias;
    if (r->mode == EK_RECORD_TOKENS)
        for (int i = 0; i < r->n_prompt; i++) ek_ids_add(&r->prompt, request->tokens[i]);
}

void ek_record_bounds(ek_record *r, const char *form, bool same_form, bool thinking, int max_thinking)
{
    if (r->mode != EK_RECORD_TOKENS) return;
    r->has_bounds = true;
    r->thinking = thinking;
    r->max_thinking = max_thinking;
    r->same_form = same_form;
    if (form) r->form = ek_strdup(form);
}

void ek_record_token(ek_record *r, int32_t token)
{
    if (r->mode == EK_RECORD_TOKENS) ek_ids_add(&r->reply, token);
}

void ek_record_fini(ek_record *r)
{
    free((void *)(uintptr_t)r->sampling.bias);
    free(r->form);
    ek_ids_fini(&r->prompt);
    ek_ids_fini(&r->reply);
    *r = (ek_record){0};
}
