/* Replies in the background (the Responses API). The client gets an answer at once; the session goes on without it and
 * writes events into a log, which clients can read. An ended reply goes to the store of responses. The log is in memory
 * and ends with the process. Event loop's thread. */
#ifndef EK_SERVE_BACKGROUND_H
#define EK_SERVE_BACKGROUND_H

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

#endif
