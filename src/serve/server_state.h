/* What the files of the server share; inside serve only. Server thread, except where said. */
#ifndef EK_SERVE_SERVER_STATE_H
#define EK_SERVE_SERVER_STATE_H

#include "serve/mailbox.h"
#include "serve/server.h"

typedef struct ek_session ek_session;

struct ek_server {
    struct event_base *base;
    ek_http *http;
    ek_engine *engine;
    const ek_config *config;
    ek_mailbox *mailbox;
    ek_tokenizer *tokenizer;
    ek_marks marks;
    ek_chat_variant variant;
    char *model_name, *fingerprint;
    int64_t started;      /* seconds since 1970 */
    uint64_t nonce;       /* of this process, for ids */
    ek_session *sessions; /* open ones */
    struct event *signals[2], *tick;
    int n_signals;         /* received */
    double last_step_time; /* when the step counter last moved, or nothing ran */
    uint64_t last_steps;
    uint64_t malformed_calls; /* returned as text */
};

/* Seconds since 1970: for "created" only. */
int64_t ek_unix_time(void);

/* Routes one request. */
void ek_route(void *server, ek_exchange *x);
void ek_reply_json(ek_exchange *x, int status, const ek_buf *body);
void ek_reply_error(ek_exchange *x, int status, const char *message, const char *param, const char *code);
/* The last failure of this thread as a reply. */
void ek_reply_failure(ek_exchange *x, ek_err err, const char *param);

void ek_models_list(ek_server *s, ek_exchange *x);
void ek_models_one(ek_server *s, ek_exchange *x, const char *id);
void ek_health(ek_server *s, ek_exchange *x);

/* One chat completion from request to last byte. */
void ek_session_open(ek_server *s, ek_exchange *x);
void ek_session_mail(const ek_mail *m); /* user is a choice of a session */
void ek_session_tick(ek_session *s);    /* about once a second */
void ek_session_cancel(ek_session *s);  /* the server gives up on it */
ek_session *ek_session_next(ek_session *s);

#endif
