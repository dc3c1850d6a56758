/* Drafts from another server of this program (--drafter-url), by POST /v1/drafts (text/draft_message.h). A separate
 * thread asks, so neither the engine nor the event loop waits for a connection. Questions are small: the server keeps a
 * request's tokens and gets only the new ones.
 *
 * A bad server costs replies only time, and the engine limits that time (engine/planning.h). An answer has at most
 * EK_DRAFT_ANSWER_BYTES and a few seconds; redirects are not followed. After a failure nothing is asked for a second;
 * each further failure doubles that, up to a minute. */
#ifndef EK_OPEN_REMOTE_H
#define EK_OPEN_REMOTE_H

#include "base/err.h"
#include "engine/engine.h"

enum {
    EK_REMOTE_QUESTIONS = 8 /* requests that ask at the same time; others get no drafts from here */
};

typedef struct ek_remote ek_remote;

typedef struct ek_remote_opts {
    const char *url;        /* http(s)://[KEY@]HOST[:PORT][/PREFIX]; copied */
    const char *vocabulary; /* ek_chat_vocabulary_name of the model's tokenizer; copied */
    int n_vocab, max_ctx;   /* token ids; maximum tokens of a request */
} ek_remote_opts;

/* EINVAL for a URL of another form; the sentence leaves out the key. */
ek_err ek_remote_check(const char *url);
/* Starts the thread; asks nothing yet. EINVAL as above; ENOTFOUND without libcurl; ENOMEM, EIO. */
ek_err ek_remote_open(ek_remote **out, const ek_remote_opts *o);
/* Close the engine that uses r first. NULL is allowed. */
void ek_remote_close(ek_remote *r);
/* For one engine; valid until ek_remote_close. */
ek_proposer ek_remote_proposer(ek_remote *r);

#endif
