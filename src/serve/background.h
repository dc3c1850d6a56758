/* Replies that are made in the background (the Responses API): the client is answered at once, the session goes on
 * without it and writes into a log, from which clients read the events again. Once the reply has ended, the store of
 * responses has it. All of it is in memory and ends with the process. Event loop's thread. */
#ifndef EK_SERVE_BACKGROUND_H
#define EK_SERVE_BACKGROUND_H

#include "serve/session.h"

typedef struct ek_background ek_background;

enum {
    EK_BACKGROUND_MAX = 1024,    /* replies, those among them whose events are kept */
    EK_BACKGROUND_SECONDS = 600, /* that events are kept after the end of a reply */
};
#define EK_BACKGROUND_BYTES ((size_t)64 << 20) /* of all events: the oldest that ended, then the longest, make room */

/* Makes room for one more. EBUSY when as many run. */
ek_err ek_background_room(ek_server *s);
/* The turns of s are with the engine: answers its client, whose going away it does not notice any more. */
void ek_background_begin(ek_session *s);

/* Answers a GET: of one that runs its state, and with stream=true its events, from the one behind starting_after. False
 * where the store answers. input: its input items are asked for. */
bool ek_background_get(ek_server *s, ek_exchange *x, const char *id, bool input);
/* POST /v1/responses/ID/cancel. */
void ek_background_cancel(ek_server *s, ek_exchange *x, const char *rest);
/* Ends it and forgets its events. False where there is none. */
bool ek_background_delete(ek_server *s, uint64_t owner, const char *id);

void ek_background_tick(ek_server *s); /* several times a second; once a signal has come, ends those without a reader */
void ek_background_close(ek_server *s);

#endif
