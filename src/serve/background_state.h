/* Replies in the background from inside. Inside src/serve. */
#ifndef EK_SERVE_BACKGROUND_STATE_H
#define EK_SERVE_BACKGROUND_STATE_H

#include "base/clock.h"
#include "serve/background.h"

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
