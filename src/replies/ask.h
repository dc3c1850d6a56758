/* What was asked, as text: everything of a content key (replies/key.h) but the identity of model and arithmetic, so
 * that a file of replies shows it and the key can be computed again. One JSON object in one spelling:
 *
 *   {"prompt":[2,105,…],"media":[[3,"image","SHA-256"],…],"options":{…},"mask":null}
 *
 * Options of a draw (seed as text, temperature, top_p, min_p, top_k) stand there where the reply is drawn. A mask is
 * {"program","form","max_thinking","thinking"}. A bias of null masks its token. */
#ifndef EK_REPLIES_ASK_H
#define EK_REPLIES_ASK_H

#include "base/buf.h"
#include "replies/key.h"
#include "text/json/json.h"

/* Appends the object; a->identity is not read. */
void ek_reply_ask_write(ek_buf *out, const ek_reply_ask *a);

/* An ask that was read. Owns all that ask points to, but for its identity. */
typedef struct ek_reply_asked {
    ek_reply_ask ask;
    int32_t *tokens;
    ek_part *part;
    ek_media *media;
    ek_logit_bias *bias;
    ek_sampling sampling;
    ek_buf program, form;
} ek_reply_asked;

/* EFORMAT says what is wrong: also a member that is not known, which may mean other tokens. identity: borrowed.
 * ek_reply_asked_fini also after a failure. */
ek_err ek_reply_ask_read(ek_reply_asked *out, const json_t *v, const char *identity);
void ek_reply_asked_fini(ek_reply_asked *a);

/* --- JSON of a cassette. Inside src/replies --- */

/* Appends what a section's signature is of. */
void ek_cassette_message(ek_buf *out, const char *identity, size_t entries, const char sum[65]);

/* EFORMAT for a value that is no object, or has a member that is none of names (NULL at the end). */
ek_err ek_cassette_only(const json_t *v, const char *what, const char *const *names);
/* EFORMAT unless the member is a whole number from min to max. */
ek_err ek_cassette_int(const json_t *v, const char *key, int64_t min, int64_t max, int64_t *out);

#endif
