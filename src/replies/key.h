/* The name of a stored reply: SHA-256 over all that decides token t + 1 from the tokens before it. Where a reply ends
 * (limits, stop strings, stop ids) is no part of it, nor is the shape of a body: requests of several APIs whose
 * prompts have equal tokens share a reply.
 *
 *   content key   model, numerics, prompt, pictures and sounds, sampling, mask: a cassette has it (replies/cassette.h)
 *   key           of the content key, the owner and the client's salt: stores are searched for it
 *
 * Each field goes in with its length, numbers little-endian, floats by their bits. */
#ifndef EK_REPLIES_KEY_H
#define EK_REPLIES_KEY_H

#include "engine/engine.h"

enum { EK_REPLY_KEY = 32, EK_REPLY_KEY_TEXT = 2 * EK_REPLY_KEY + 1 };

typedef struct ek_reply_key {
    uint8_t h[EK_REPLY_KEY];
} ek_reply_key;

/* What is asked; everything is borrowed. */
typedef struct ek_reply_ask {
    const char *identity; /* of model and arithmetic: ek_model_digest and ek_model_numerics_id, and what reads pictures
                             and sounds where that is a file of its own */
    const int32_t *tokens;
    int n_tokens; /* of the prompt alone */
    const ek_part *part;
    int n_parts;
    const ek_sampling *sampling; /* as the engine gets it: seed of this choice, all of the bias */
    bool masked;                 /* by the next four */
    const char *program;         /* its version: a later one may allow other tokens in the same form. NULL as "" */
    const char *form;            /* what the grammar was made of (chat/form.h); NULL: no grammar */
    int max_thinking;
    bool thinking;
} ek_reply_ask;

/* The bias as it decides: by token, without zeros. out: room for n_bias; how many there are. */
int ek_reply_bias(ek_logit_bias *out, const ek_sampling *s);

/* Whether equal requests have equal tokens at all: they are greedy, or have a seed of their client. */
bool ek_reply_is_decided(const ek_sampling *s, bool has_seed);

void ek_reply_content_key(ek_reply_key *out, const ek_reply_ask *ask);
/* owner: of the API key, 0 without; salt: the client's, n bytes, NULL without. */
void ek_reply_key_for(ek_reply_key *out, const ek_reply_key *content, uint64_t owner, const char *salt, size_t n);

/* Three of its fields by themselves, to be compared. */
typedef struct ek_reply_parts {
    ek_reply_key media, bias, mask;
} ek_reply_parts;
void ek_reply_parts_of(ek_reply_parts *out, const ek_reply_ask *ask);

void ek_reply_key_text(char out[EK_REPLY_KEY_TEXT], const ek_reply_key *k); /* hexadecimal */
bool ek_reply_key_read(ek_reply_key *out, const char *text, size_t n);      /* false: it is none */

#endif
