/* Replies in the background (the Responses API). The client gets an answer at once; the session goes on without it and
 * writes events into a log, which clients can read. An ended reply goes to the store of responses. The log is in memory
 * and ends with the process. Event loop's thread. */
#ifndef EK_SERVE_BACKGROUND_H
#define EK_SERVE_BACKGROUND_H

#include "base/clock.h"
#include "serve/session.h"

typedef struct ek_background ek_background;

enum {
    EK_BACKGROUND_MAX = 1024,    /* replies, ended ones with kept events included */
    EK_BACKGROUND_SECONDS = 600, /* events are kept so long after the end of a reply */
};
#define EK_BACKGROUND_BYTES                                                                   \
    ((size_t)64 << 20) /* of all events; the oldest ended reply, then the longest, makes room \
                        */

/* Makes room for one more reply. EBUSY if EK_BACKGROUND_MAX run. */
ek_err ek_background_room(ek_server *s);
/* Puts s, whose turns were submitted, into the background: answers its client and no longer depends on it. */
void ek_background_begin(ek_session *s);

/* Answers a GET for a reply in the background with its state or, with stream=true, with its events after number
 * starting_after. False: the store has to answer. input: the GET asks for the input items. */
bool ek_background_get(ek_server *s, ek_exchange *x, const char *id, bool input);
/* POST /v1/responses/ID/cancel. */
void ek_background_cancel(ek_server *s, ek_exchange *x, const char *rest);
/* Ends a reply and forgets its events. False: there is none. */
bool ek_background_delete(ek_server *s, uint64_t owner, const char *id);

void ek_background_tick(ek_server *s); /* several times a second; after a signal it ends replies without a reader */
void ek_background_close(ek_server *s);

/* --- from inside --- */

typedef struct ek_background_text ek_background_text;
typedef struct ek_background_reader ek_background_reader;

struct ek_background {
    ek_server *server;
    ek_background *next, **link;
    uint64_t owner;
    char id[64];
    ek_session *session; /* NULL after its end, like x and text */
    ek_exchange *x;      /* the session writes to it */
    ek_background_text *text;
    bool streams; /* events are kept */
    bool lost;    /* events were dropped to make room */
    bool begun;   /* the status is in_progress */
    ek_buf log;
    size_t *starts; /* offset in log of each event */
    int n_starts, cap_starts;
    ek_background_reader *readers;
    double ended; /* ek_now(); 0: not yet */
};

void ek_background_free(ek_background *b); /* only after its session has ended or was detached */

/* In background_log.c. */
void ek_background_log_add(ek_background *b, const char *bytes, size_t n); /* whole events */
void ek_background_log_end(ek_background *b);                              /* after the last event */
void ek_background_log_close(ek_background *b);
/* Sends x the events from number `first` on, as they come. */
void ek_background_read(ek_background *b, ek_exchange *x, int first);
/* Sends a heartbeat to readers that got nothing for a while. */
void ek_background_beat(ek_background *b);

#endif
