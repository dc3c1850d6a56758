/* The state of one chat completion; used by session.c alone. */
#ifndef EK_SERVE_SESSION_H
#define EK_SERVE_SESSION_H

#include "serve/chat_reply.h"
#include "serve/chat_request.h"
#include "serve/server_state.h"

typedef struct choice {
    ek_session *session;
    int index;
    ek_request_id id;
    bool live; /* the engine has not said its last word */
    bool role_sent, stop_hit;
    ek_reply *reply;
    ek_stop *stop;      /* NULL without stop strings */
    ek_answer answer;   /* unless streaming */
    const char *finish; /* NULL while it goes on */
    int n_tokens, n_reasoning;
    uint64_t digest; /* of the rows of the tokens taken */

    int n_vocab;
    uint64_t hash; /* engine thread only */
} choice;

struct ek_session {
    ek_server *server;
    ek_exchange *x; /* NULL once the reply is out or the client is gone */
    ek_session *next, **link;
    ek_chat_request req;
    ek_ids prompt;
    char id[64], *model;
    ek_chat_head head;
    choice *choices;
    int n_open; /* choices without a finish */
    int n_live; /* choices the engine still knows */
    int n_prompt, n_cached;
    ek_buf out;
    double opened, last_sent;
};

#endif
