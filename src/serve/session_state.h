/* The state of a session, for the files that implement it. Event thread only. Inside src/serve. */
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
    bool replayed;     /* the reply's part before this turn was replayed */
    double last_token; /* ek_now() */
    ek_turn *turn;
} ek_session_choice;

struct ek_session {
    ek_server *server;
    ek_exchange *x; /* NULL once the reply is sent or the client is gone */
    ek_session *next, **link;
    const ek_dialect *dialect;
    ek_preparation *preparing; /* until the prompt is made; nothing below is valid before */
    ek_api_request req;
    size_t held;     /* bytes taken from the server's request memory */
    size_t counted;  /* further bytes taken from it, for `out` */
    size_t promised; /* bytes of held that are meant for `out` */
    size_t grown;    /* bytes by which results grew since they were last counted */
    uint64_t salt;
    uint64_t client;  /* owner of its turns in queues: the key, or else the address */
    ek_wishes wishes; /* the head's wishes */
    ek_api_reply reply;
    char id[64], digest[20];
    char traced[48];                   /* " trace=…" for the log; "" without */
    ek_resume_marks marks;             /* in the events of the stream */
    const ek_signing_key *receipt_key; /* the key when the reply began; NULL: no receipt is wanted */
    ek_seed_from seed_from;
    ek_buf receipt;           /* the receipt, once written */
    char receipt_failed[256]; /* the reason why the receipt, and so the reply, failed */
    ek_session_choice *choices;
    const ek_turn_result **results;
    int n_opened; /* choices with a turn */
    int n_submitted;
    ek_body body;             /* of a request that summarizes; its bytes are counted */
    ek_turn_prompt prompt;    /* until all choices are submitted; with receipts until the end */
    ek_stored stored;         /* the stored reply, until all choices are opened */
    bool storing;             /* the current news come from the store */
    int next_stored;          /* the choice whose stored token is next */
    ek_reply_outcome outcome; /* of all choices */
    bool missing;             /* the reply had to come from the store, which lacks a part of it */
    struct event *more;       /* submits the remaining choices */
    ek_buf out;               /* written but unsent bytes */
    bool writing;   /* a worker writes into out: meanwhile nothing else of the session changes except x, which on_gone
                       sets */
    bool full;      /* a large piece has to be sent before more is written */
    bool done;      /* the whole reply is written */
    bool forgotten; /* a background reply was dropped: bytes that a worker still writes are not kept */
    ek_turn_news *later; /* news from n_taken on that arrived meanwhile; their texts are owned */
    size_t n_later, n_taken, cap_later;
    struct event *go_on; /* takes more of `later` in the next turn */
    struct event *step;  /* writes the dialect's held-back text after the news of a step */
    ek_job freeing;
    int read;                                        /* prompt tokens that the stream has reported as read; -1: none */
    double opened, prepared, first_token, last_sent; /* ek_now(); 0: not yet */
};

/* --- session_out.c --- */
void ek_session_flush(ek_session *s);        /* sends the written part of a stream, and its end once it is done */
void ek_session_sum_outcomes(ek_session *s); /* sets outcome */
void ek_session_send_whole(ek_session *s);   /* sends a reply in one piece */
/* Ends a stream with an error, because the client leaves too much unread, or because there is no memory for it. */
void ek_session_cut(ek_session *s, const char *text);

/* Adds a reply header that lists the ignored parts of schemas. */
void ek_session_put_ignored(ek_session *s);

/* Writes an event that says how many prompt tokens are read, if the number changed or with `again`. Returns whether it
 * wrote one. */
bool ek_session_put_progress(ek_session *s, bool again);
void ek_session_end_progress(ek_session *s); /* writes the last event: the whole prompt is read */

/* --- session_write.c --- */
/* Takes waiting news as far as possible now, and frees the session once it is done. */
void ek_session_go_on(ek_session *s);
void ek_session_on_drained(void *user);

/* session_open.c: a summary has ended; the request is read again with it. */
void ek_session_read_again(ek_session *s);

/* --- session.c --- */
/* Frees a request whose turns have ended (a worker frees a large one); the session's next request follows. */
void ek_session_leave_request(ek_session *s);
/* The client has its reply, or is gone. */
void ek_session_leave_client(ek_session *s, ek_outcome how);
/* Ends a stream with an error. */
void ek_session_end_with(ek_session *s, int index, const char *text);
void ek_session_free(ek_session *s);
void ek_session_free_when_done(ek_session *s); /* frees s when no more news can come */
/* The failure of one choice ends the whole reply: with an HTTP status while the head is unsent. */
void ek_session_failed(ek_session *s, int index, ek_err err, const char *text, ek_outcome how);
/* Ends a session whose reply has not begun: with text, or the last error's sentence. code: as ek_api_request.code. */
void ek_session_refuse(ek_session *s, ek_err err, const char *text, const char *param, const char *code);
void ek_session_on_reply(void *arg, const ek_reply_event *e); /* arg: the choice */
void ek_session_on_gone(void *user);

#endif
