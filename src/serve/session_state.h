/* A session's insides, for the files that carry it. Event thread only. Inside src/serve. */
#ifndef EK_SERVE_SESSION_STATE_H
#define EK_SERVE_SESSION_STATE_H

#include <event2/event.h>

#include "base/clock.h"
#include "receipts/statement.h"
#include "serve/journal/journal.h"
#include "serve/session.h"

typedef struct ek_session_choice {
    ek_session *session;
    int index;
    bool begun;        /* its part of a stream */
    bool replayed;     /* what it had before this turn */
    double last_token; /* ek_now() */
    ek_turn *turn;
} ek_session_choice;

struct ek_session {
    ek_server *server;
    ek_exchange *x; /* NULL once the reply is out or the client is gone */
    ek_session *next, **link;
    const ek_dialect *dialect;
    ek_preparation *preparing; /* until the prompt is made; nothing below is valid before */
    ek_api_request req;
    size_t held;     /* of the server's request memory */
    size_t counted;  /* of it too: for `out` */
    size_t promised; /* of held: for `out` */
    size_t grown;    /* bytes that results took since they were counted last */
    uint64_t salt;
    uint64_t client;  /* whose turns it takes: of its key, else of its address */
    ek_wishes wishes; /* of its head */
    ek_api_reply reply;
    char id[64], digest[20];
    char traced[48];                   /* " trace=…" for the log; "" without */
    ek_resume_marks marks;             /* in the events of the stream */
    const ek_signing_key *receipt_key; /* that the reply began with; NULL: no receipt is asked for */
    ek_seed_from seed_from;
    ek_buf receipt;           /* once written */
    char receipt_failed[256]; /* why there is none, and so no reply */
    ek_session_choice *choices;
    const ek_turn_result **results;
    int n_opened; /* choices that have a turn */
    int n_submitted;
    ek_body body;             /* of a request that summarizes; its bytes are counted */
    ek_turn_prompt prompt;    /* until all are submitted, with receipts until the end */
    ek_stored stored;         /* what the store of replies has, until all are opened */
    bool storing;             /* the news that are taken come from there */
    int next_stored;          /* the choice whose stored token is next */
    ek_reply_outcome outcome; /* of all choices */
    bool missing;             /* it had to come from the store, which does not have all of it */
    struct event *more;       /* submits the rest */
    ek_buf out;               /* written and not sent */
    bool
        writing; /* a worker writes into out: nothing else of the session changes meanwhile but x, which on_gone sets */
    bool full;   /* a large piece has to be read before more is written */
    bool done;   /* the whole reply is written */
    bool forgotten;      /* of one in the background: what a worker still writes is not to be kept */
    ek_turn_news *later; /* that came while one of these was so: from n_taken on; their texts are owned */
    size_t n_later, n_taken, cap_later;
    struct event *go_on; /* takes more of them in the next turn */
    struct event *step;  /* writes what the dialect holds back, behind the news of a step */
    ek_job freeing;
    int read;                                        /* of the prompt, as the stream has said; -1: nothing yet */
    double opened, prepared, first_token, last_sent; /* ek_now(); 0: not yet */
};

/* In session_out.c. */
void ek_session_flush(ek_session *s);        /* what is written of a stream, and its end once it is done */
void ek_session_sum_outcomes(ek_session *s); /* sets outcome */
void ek_session_send_whole(ek_session *s);   /* a reply in one piece */
/* The client leaves too much unread, or there is no memory for it: its stream ends with an error. */
void ek_session_cut(ek_session *s, const char *text);

/* A header of the reply: what was left out of schemas. */
void ek_session_put_ignored(ek_session *s);

/* An event that says how far the prompt is read, where there is news of that, or `again`; true if there is one. */
bool ek_session_put_progress(ek_session *s, bool again);
void ek_session_end_progress(ek_session *s); /* the last one: all of it is read */

/* In session_write.c. */
/* Takes the news that wait, as far as that is possible now, and frees the session once it is done. */
void ek_session_go_on(ek_session *s);
void ek_session_on_drained(void *user);

/* In session_open.c: a summary has ended, and the request is read again with it. */
void ek_session_read_again(ek_session *s);

/* In session.c. */
/* A request whose turns have ended is freed, a large one by a worker; another one of the session follows. */
void ek_session_leave_request(ek_session *s);
/* The reply is out, or nobody wants it any more. */
void ek_session_leave_client(ek_session *s, ek_outcome how);
/* Ends a stream with an error. */
void ek_session_end_with(ek_session *s, int index, const char *text);
void ek_session_free(ek_session *s);
void ek_session_free_when_done(ek_session *s); /* once no news of it can come */
/* The failure of one choice ends the whole reply: with a status while that is possible. */
void ek_session_failed(ek_session *s, int index, ek_err err, const char *text, ek_outcome how);
/* Ends a session whose reply has not begun: with text, or the last error's sentence. code: as ek_api_request.code. */
void ek_session_refuse(ek_session *s, ek_err err, const char *text, const char *param, const char *code);
void ek_session_on_reply(void *arg, const ek_reply_event *e); /* arg: the choice */
void ek_session_on_gone(void *user);

#endif
