/* A chat from inside: its body becomes turns (chat.c), and the turns' events are posted (chat_events.c). Inside
 * src/capi. */
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
    char *name;  /* of the current call; NULL: none */
    ek_buf args; /* of the current call, so far */
} chat_choice;

struct chat {
    capi_request base;
    chat *next; /* of the workers' list */
    char *body; /* NULL after it was read */
    size_t n_body;
    atomic_bool dropped; /* cancelled */

    pthread_mutex_t lock; /* guards the turns while the engine has them */
    ek_api_request req;
    ek_turn_prompt prompt;
    ek_api_reply reply;
    char id[EK_RESUME_ID];
    chat_choice *choices;
    const ek_turn_result **results;
    int n_opened, n_submitted, n_ended;
    bool running;   /* no more turns will be submitted */
    ek_err err;     /* the reason why some were not submitted */
    char why[1024]; /* the sentence of err */
    ek_ids tokens;  /* the tokens of a single reply so far */
};

/* Posts the events of a turn's text and calls; arg: the choice. */
void chat_on_reply(void *arg, const ek_reply_event *e);
/* Posts the END of a chat whose turns have ended or never began. */
void chat_post_end(chat *c);

#endif
