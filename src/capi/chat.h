/* A chat from the inside: its body becomes turns (chat.c), whose events are posted (chat_events.c). Inside src/capi. */
#ifndef EK_CAPI_CHAT_H
#define EK_CAPI_CHAT_H

#include <stdatomic.h>

#include "capi/state.h"
#include "serve/api/dialect.h"

typedef struct chat chat;

typedef struct chat_choice {
    chat *chat;
    int index;
    ek_turn *turn;
    char *name;  /* of the call that is being written; NULL: none */
    ek_buf args; /* and its arguments so far */
} chat_choice;

struct chat {
    capi_request base;
    chat *next; /* of the workers' list */
    char *body; /* NULL once it was read */
    size_t n_body;
    atomic_bool dropped; /* cancelled */

    pthread_mutex_t lock; /* of the turns, while the engine has them */
    ek_api_request req;
    ek_turn_prompt prompt;
    ek_api_reply reply;
    char id[EK_RESUME_ID];
    chat_choice *choices;
    const ek_turn_result **results;
    int n_opened, n_submitted, n_ended;
    bool running;   /* all are submitted, or no more will be */
    ek_err err;     /* why not all were, */
    char why[1024]; /* and its sentence */
    ek_ids tokens;  /* of a single reply, so far */
};

/* Events of a turn's text and calls; arg: its choice. */
void chat_on_reply(void *arg, const ek_reply_event *e);
/* The END of a chat whose turns have ended, or that has none. */
void chat_post_end(chat *c);

#endif
