/* A request whose reply can be stored: its key, its text in a file of replies, and the stored request nearest to it.
 *
 * The key of a stored reply is SHA-256 over everything that decides token t + 1 from the tokens before it. The end of a
 * reply (limits, stop strings, stop ids) and the form of a body do not enter, so requests of several APIs with equal
 * prompt tokens share a reply.
 *
 *   content key   model, numerics, prompt, pictures and sounds, sampling, mask; used by cassettes (replies/cassette.h)
 *   key           content key, owner and the client's salt; used by stores
 *
 * Each field is hashed with its length; numbers are little-endian, floats are their bits. */
#ifndef EK_REPLIES_ASK_H
#define EK_REPLIES_ASK_H

#include "base/buf.h"
#include "engine/engine.h"
#include "text/json/json.h"

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

/* --- a request as text: all fields of a content key except the identity of model and arithmetic ---
 *
 * A file of replies shows it, and the key can be computed from it again. It is one JSON object in canonical spelling:
 *
 *   {"prompt":[2,105,…],"media":[[3,"image","SHA-256"],…],"options":{…},"mask":null}
 *
 * A sampled reply's options include seed (as text), temperature, top_p, min_p and top_k. A mask is
 * {"program","form","max_thinking","thinking"}. A bias of null masks its token. */

/* Appends the object; a->identity is not read. */
void ek_reply_ask_write(ek_buf *out, const ek_reply_ask *a);

/* An ask that was read. It owns everything that ask points to except the identity. */
typedef struct ek_reply_asked {
    ek_reply_ask ask;
    int32_t *tokens;
    ek_part *part;
    ek_media *media;
    ek_logit_bias *bias;
    ek_sampling sampling;
    ek_buf program, form;
} ek_reply_asked;

/* EFORMAT with the reason, also for an unknown member, which might change the tokens. identity: borrowed. Call
 * ek_reply_asked_fini also after a failure. */
ek_err ek_reply_ask_read(ek_reply_asked *out, const json_t *v, const char *identity);
void ek_reply_asked_fini(ek_reply_asked *a);

/* --- the nearest stored request, for a message about a request without a stored reply ---
 *
 * The nearest one has the longest common beginning of the prompt and, among equals, the fewest other differences. */

/* A set of requests; each takes 4 bytes per prompt token and about 200 more. */
typedef struct ek_reply_requests ek_reply_requests;

ek_reply_requests *ek_reply_requests_open(void);
void ek_reply_requests_close(ek_reply_requests *r); /* NULL is allowed */
/* Copies ask; key: ask's. Not during any other call. */
void ek_reply_requests_add(ek_reply_requests *r, const ek_reply_key *key, const ek_reply_ask *ask);
/* Call it once, after all requests were added. */
void ek_reply_requests_sort(ek_reply_requests *r);

/* Appends "KEY: DIFFERENCE; …" of the nearest request, or nothing if there is none. Any thread. Takes two lookups among
 * n prompts and at most 1,024 comparisons of options. */
void ek_reply_nearest(ek_buf *out, const ek_reply_requests *r, const ek_reply_ask *ask);

/* --- JSON of a cassette. Inside src/replies --- */

/* Appends the signed message of a section. */
void ek_cassette_message(ek_buf *out, const char *identity, size_t entries, const char sum[65]);

/* EFORMAT unless v is an object whose members are all in names (NULL at the end). */
ek_err ek_cassette_only(const json_t *v, const char *what, const char *const *names);
/* EFORMAT unless the member is a whole number from min to max. */
ek_err ek_cassette_int(const json_t *v, const char *key, int64_t min, int64_t max, int64_t *out);

#endif
