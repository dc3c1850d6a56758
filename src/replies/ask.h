/* A request as text: all fields of a content key (replies/key.h) except the identity of model and arithmetic. A file of
 * replies shows it, and the key can be computed from it again. It is one JSON object in canonical spelling:
 *
 *   {"prompt":[2,105,…],"media":[[3,"image","SHA-256"],…],"options":{…},"mask":null}
 *
 * A sampled reply's options include seed (as text), temperature, top_p, min_p and top_k. A mask is
 * {"program","form","max_thinking","thinking"}. A bias of null masks its token. */
#ifndef EK_REPLIES_ASK_H
#define EK_REPLIES_ASK_H

#include "base/buf.h"
#include "replies/key.h"
#include "text/json/json.h"

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

/* --- JSON of a cassette. Inside src/replies --- */

/* Appends the signed message of a section. */
void ek_cassette_message(ek_buf *out, const char *identity, size_t entries, const char sum[65]);

/* EFORMAT unless v is an object whose members are all in names (NULL at the end). */
ek_err ek_cassette_only(const json_t *v, const char *what, const char *const *names);
/* EFORMAT unless the member is a whole number from min to max. */
ek_err ek_cassette_int(const json_t *v, const char *key, int64_t min, int64_t max, int64_t *out);

#endif
