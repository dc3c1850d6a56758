/* The insides of replies in the background. Inside src/serve. */
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
    ek_session *session; /* NULL once it has ended, as x and text */
    ek_exchange *x;      /* that the session writes to */
    ek_background_text *text;
    bool streams; /* its events are kept */
    bool lost;    /* they made room for others */
    bool begun;   /* as a client has heard */
    ek_buf log;
    size_t *starts; /* where in log each event begins */
    int n_starts, cap_starts;
    ek_background_reader *readers;
    double ended; /* ek_now(); 0: not yet */
};

void ek_background_free(ek_background *b); /* of one that has ended, or whose session is told otherwise */

/* In background_log.c. */
void ek_background_log_add(ek_background *b, const char *bytes, size_t n); /* whole events */
void ek_background_log_end(ek_background *b);                              /* the last event is there */
void ek_background_log_close(ek_background *b);
/* Answers x with the events from number `first` on, as they come. */
void ek_background_read(ek_background *b, ek_exchange *x, int first);
/* Bytes that keep the connections of readers open, where nothing was written for a while. */
void ek_background_beat(ek_background *b);

#endif
