/* From a body to a request and the tokens of its prompt, on a worker's thread: parsing, rendering and encoding take
 * from microseconds to a second. Event loop's thread, but for what runs inside. */
#ifndef EK_SERVE_PREPARE_H
#define EK_SERVE_PREPARE_H

#include "serve/api/dialect.h"
#include "serve/http/wishes.h"
#include "serve/server_state.h"

enum { EK_PER_LOGPROB = 128 }; /* bytes: a number and its token in a reply */

typedef struct ek_preparation ek_preparation;

/* What came out. The receiver takes req, prompt and held over, also after a failure. */
typedef struct ek_prepared {
    ek_err err;
    char text[1024]; /* the sentence of a failure */
    ek_api_request req;
    ek_turn_prompt prompt;
    size_t held; /* bytes of the server's request memory that the request keeps; ek_prepare_release gives them back */
} ek_prepared;

typedef void ek_prepared_fn(void *user, ek_prepared *p);

/* Takes the body of x and starts. ready is called once, later, from the event loop, unless ek_prepare_drop is called
 * first. owner: as in ek_api_limits; client: whose turn in the queue it takes; wishes: of the head. EBUSY when too many
 * wait. */
ek_err ek_prepare_start(ek_preparation **out, ek_server *s, ek_exchange *x, const ek_dialect *d, ek_prepared_fn *ready,
                        void *user, uint64_t owner, uint64_t client, const ek_wishes *wishes);
/* Nobody waits for it any more: ready is not called. */
void ek_prepare_drop(ek_preparation *p);

/* Bytes for a client that are freed, and given back to the request memory, when they are sent: counted bytes of it were
 * taken for them before. bytes is left empty. */
ek_outgoing ek_outgoing_own(ek_server *s, ek_buf *bytes, size_t counted);

/* Frees a request and gives back what it held; a large one on a worker's thread. */
void ek_prepare_release(ek_server *s, ek_api_request *req, size_t held);

#endif
