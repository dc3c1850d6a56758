/* Engine events on their way to the server thread: one locked list and one wake-up.
 *
 * post may be called from any thread; everything else belongs to the event loop's thread. */
#ifndef EK_SERVE_MAILBOX_H
#define EK_SERVE_MAILBOX_H

#include "engine/engine.h"

struct event_base;

typedef struct ek_mail {
    void *user;    /* of the request */
    int32_t token; /* -1 without */
    ek_finish finish;
    ek_err err;
    char *text; /* EK_FINISH_ERROR: why; freed after the call */
    int n_prompt, n_cached, n_tokens;
    uint64_t digest; /* of the logits rows so far, if asked for */
} ek_mail;

typedef struct ek_mailbox ek_mailbox;
typedef void ek_mail_fn(void *arg, const ek_mail *m);

/* fn is called from the event loop for every mail, in the order of posting. */
ek_err ek_mailbox_open(ek_mailbox **out, struct event_base *base, ek_mail_fn *fn, void *arg);
void ek_mailbox_post(ek_mailbox *b, const ek_mail *m); /* takes m->text */
void ek_mailbox_deliver(ek_mailbox *b);                /* what is there, now */
void ek_mailbox_close(ek_mailbox *b);                  /* nobody posts any more */

#endif
