/* What a turn keeps of its request, so that it can be run again: for the server's journal. */
#ifndef EK_CHAT_RECORD_H
#define EK_CHAT_RECORD_H

#include "engine/engine.h"
#include "text/tokenizer/tokenizer.h"

typedef enum ek_record_mode {
    EK_RECORD_NONE,
    EK_RECORD_FACTS, /* counts, hash and options: nothing of what was said */
    EK_RECORD_TOKENS /* also the tokens of prompt and reply, of prompts that are text alone */
} ek_record_mode;

/* Zero-initialise; ek_record_fini when done. */
typedef struct ek_record {
    ek_record_mode mode;
    int n_prompt;
    uint64_t prompt_hash; /* ek_prompt_hash, and of each part its digest behind it */
    int n_parts;          /* pictures and sounds: their bytes are not kept, and so neither are the tokens */
    int n_stored;         /* tokens of the reply that came from the store of replies */
    ek_ids prompt, reply; /* EK_RECORD_TOKENS: all of them; otherwise empty */
    ek_sampling sampling; /* as the engine got it: this turn's own seed, bias owned by the record */
    bool ignore_eos;
    bool forced; /* more than logits, sampling and ignore_eos decided on the tokens: a mask (chat/bounds.h) of the next
                    three */
    bool thinking;    /* the prompt has thinking on */
    int max_thinking; /* 0: no limit */
    char
        *form; /* EK_RECORD_TOKENS: what the grammar was made of (chat/bounds.h); owned; NULL: no grammar, or unknown */
    bool same_form;  /* the form is that of the request's first reply, whose record has it; form is NULL, or was found
                        there */
    bool has_bounds; /* EK_RECORD_TOKENS: the three are known, so that the mask can be made again */
} ek_record;

/* Of the definition below; a journal's lines name it. */
enum { EK_DIGEST_VERSION = 2 };

/* The digest of a reply chains those of the rows of logits (ek_logits_digest) that its tokens were sampled from: h of
 * the rows before, 0 at first. */
uint64_t ek_digest_row(uint64_t h, uint64_t row);
uint64_t ek_prompt_hash(const int32_t *tokens, int n_tokens);
/* Copies what r->mode asks for from a request that is about to be submitted. r: zeroed but for mode. */
void ek_record_begin(ek_record *r, const ek_request_opts *request);
/* The same of its mask. form: NULL where there is no grammar, or with same_form. */
void ek_record_bounds(ek_record *r, const char *form, bool same_form, bool thinking, int max_thinking);
void ek_record_token(ek_record *r, int32_t token); /* the next one of the reply */
void ek_record_fini(ek_record *r);

#endif
