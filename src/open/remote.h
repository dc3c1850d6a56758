/* Drafts from another server of this program (--drafter-url), by POST /v1/drafts (text/draft_message.h).
 *
 * A thread asks, so that neither the engine's nor the event loop's waits for a connection. Questions are few and small:
 * the server keeps what it was told of a request, and gets the tokens since. Whatever the server does costs the replies
 * nothing but time that the engine bounds (engine/planning.h): an answer has at most EK_DRAFT_ANSWER_BYTES and some
 * seconds, redirects are not followed, and after a failure nothing is asked for a second, after each further one for
 * twice as long, at most a minute. */
#ifndef EK_OPEN_REMOTE_H
#define EK_OPEN_REMOTE_H

#include "base/err.h"
#include "engine/proposer.h"

enum {
    EK_REMOTE_QUESTIONS = 8 /* requests whose drafts are asked for at the same time; others have none */
};

typedef struct ek_remote ek_remote;

typedef struct ek_remote_opts {
    const char *url;        /* http(s)://[KEY@]HOST[:PORT][/PREFIX]; copied */
    const char *vocabulary; /* ek_chat_vocabulary_name of the model's tokenizer; copied */
    int n_vocab, max_ctx;   /* ids, and tokens of a request at most */
} ek_remote_opts;

/* EINVAL: a URL of another form, in one line without the key. */
ek_err ek_remote_check(const char *url);
/* Starts the thread; asks nothing yet. EINVAL as above; ENOTFOUND without libcurl; ENOMEM, EIO. */
ek_err ek_remote_open(ek_remote **out, const ek_remote_opts *o);
/* After the engine that it proposes to; NULL is fine. */
void ek_remote_close(ek_remote *r);
/* For one engine; valid until ek_remote_close. */
ek_proposer ek_remote_proposer(ek_remote *r);

#endif
