/* A turn's record of its request, from which the request can be run again; for the server's journal. */
#ifndef EK_CHAT_RECORD_H
#define EK_CHAT_RECORD_H

#include "engine/engine.h"
#include "text/tokenizer/tokenizer.h"

typedef enum ek_record_mode {
    EK_RECORD_NONE,
    EK_RECORD_FACTS, /* counts, hash and options; no text */
    EK_RECORD_TOKENS /* also the tokens of prompt and reply, unless the prompt has pictures or sounds */
} ek_record_mode;

/* Zero-initialise; ek_record_fini when done. */
typedef struct ek_record {
    ek_record_mode mode;
    int n_prompt;
    uint64_t prompt_hash; /* of ek_prompt_hash, followed by each part's digest */
    int n_parts;          /* pictures and sounds; their bytes are not kept, so with any no tokens are kept either */
    int n_stored;         /* tokens of the reply that came from the store of replies */
    ek_ids prompt, reply; /* EK_RECORD_TOKENS: all of them; otherwise empty */
    ek_sampling sampling; /* the engine's: this turn's own seed; the record owns the bias */
    bool ignore_eos;
    bool forced;      /* a mask (chat/bounds.h), made of the next three fields, also restricted the tokens */
    bool thinking;    /* the prompt has thinking on */
    int max_thinking; /* 0: no limit */
    char *form;       /* EK_RECORD_TOKENS: the grammar's source (chat/bounds.h); owned; NULL: no grammar, or unknown */
    bool same_form;   /* the form equals that of the request's first reply, whose record holds it; form is NULL, or was
                         taken from that record */
    bool has_bounds;  /* EK_RECORD_TOKENS: the three fields are known, so the mask can be made again */
} ek_record;

/* The version of the definition below; lines of a journal name it. */
enum { EK_DIGEST_VERSION = 2 };

/* The digest of a reply chains the digests (ek_logits_digest) of its tokens' rows of logits. h: the chain so far, 0 at
 * first. */
uint64_t ek_digest_row(uint64_t h, uint64_t row);
uint64_t ek_prompt_hash(const int32_t *tokens, int n_tokens);
/* Copies the parts that r->mode asks for from a request about to be submitted. r: zeroed except mode. */
void ek_record_begin(ek_record *r, const ek_request_opts *request);
/* The same for the request's mask. form: NULL without a grammar, or with same_form. */
void ek_record_bounds(ek_record *r, const char *form, bool same_form, bool thinking, int max_thinking);
void ek_record_token(ek_record *r, int32_t token); /* the next one of the reply */
void ek_record_fini(ek_record *r);

#endif
