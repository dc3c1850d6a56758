/* The key of a stored reply: SHA-256 over everything that decides token t + 1 from the tokens before it. The end of a
 * reply (limits, stop strings, stop ids) and the form of a body do not enter, so requests of several APIs with equal
 * prompt tokens share a reply.
 *
 *   content key   model, numerics, prompt, pictures and sounds, sampling, mask; used by cassettes (replies/cassette.h)
 *   key           content key, owner and the client's salt; used by stores
 *
 * Each field is hashed with its length; numbers are little-endian, floats are their bits. */
#ifndef EK_REPLIES_KEY_H
#define EK_REPLIES_KEY_H

#include "engine/engine.h"

enum { EK_REPLY_KEY = 32, EK_REPLY_KEY_TEXT = 2 * EK_REPLY_KEY + 1 };

typedef struct ek_reply_key {
    uint8_t h[EK_REPLY_KEY];
} ek_reply_key;

/* A request; everything is borrowed. */
typedef struct ek_reply_ask {
    const char *identity; /* of model and arithmetic: ek_model_digest and ek_model_numerics_id, and the file of the
                             towers if they have their own */
    const int32_t *tokens;
    int n_tokens; /* of the prompt alone */
    const ek_part *part;
    int n_parts;
    const ek_sampling *sampling; /* as passed to the engine: this choice's seed, the whole bias */
    bool masked;                 /* the next four fields count */
    const char *program;         /* its version, because another may allow other tokens; NULL as "" */
    const char *form;            /* the grammar's source (chat/bounds.h); NULL: no grammar */
    int max_thinking;
    bool thinking;
} ek_reply_ask;

/* The bias sorted by token, without zeros. out has room for n_bias; returns the number. */
int ek_reply_bias(ek_logit_bias *out, const ek_sampling *s);

/* Whether equal requests get equal tokens: they are greedy, or the client gave a seed. */
bool ek_reply_is_decided(const ek_sampling *s, bool has_seed);

void ek_reply_content_key(ek_reply_key *out, const ek_reply_ask *ask);
/* owner: the API key's, or 0; salt: n bytes from the client, or NULL. */
void ek_reply_key_for(ek_reply_key *out, const ek_reply_key *content, uint64_t owner, const char *salt, size_t n);

/* Hashes of three groups of fields, for comparison. */
typedef struct ek_reply_parts {
    ek_reply_key media, bias, mask;
} ek_reply_parts;
void ek_reply_parts_of(ek_reply_parts *out, const ek_reply_ask *ask);

void ek_reply_key_text(char out[EK_REPLY_KEY_TEXT], const ek_reply_key *k); /* hexadecimal */
bool ek_reply_key_read(ek_reply_key *out, const char *text, size_t n);      /* false: the text is no key */

#endif
