/* A session: one request to a dialect's path, from its body to the last byte of its reply. Server thread. */
#ifndef EK_SERVE_SESSION_H
#define EK_SERVE_SESSION_H

#include "serve/api/dialect.h"
#include "serve/http/http.h"
#include "serve/server_state.h"

/* Reads the request of x, whose path must be d's, and answers it, now or later; errors become replies. Sessions with
 * another salt share no cached prefixes; 0: those of the body's salt do. */
void ek_session_open(ek_server *s, ek_exchange *x, const ek_dialect *d, uint64_t salt);
/* Handles news of the engine about a turn of a session. */
void ek_session_news(const ek_turn_news *news);

/* What every body is read with. */
ek_api_limits ek_session_limits(const ek_server *s);

/* All open sessions. */
void ek_sessions_tick(ek_server *s);   /* several times a second */
void ek_sessions_cancel(ek_server *s); /* at a second signal */

/* --- wishes --- */

/* What headers of a request ask for beside its body, for clients and proxies that do not touch bodies. What the body
 * says of the same wins.
 *
 * x-evenkeel-resume: true. The stream's events say how it goes on, as evenkeel.resume true (serve/resume/resume.h).
 *
 * x-evenkeel-role: prefill. Another replica writes the reply, as kv_transfer_params.do_remote_decode true. decode,
 * both: this one writes it, whatever --role says.
 *
 * x-evenkeel-batch: ID[ seed=N]. A line of `evenkeel batch` (batch/batch.h): the reply has this id behind its prefix,
 * 24 lower-case hex digits, created 0, no counts of caches, and the seed N where the body has none, below 2^53.
 * cache-control, for stored replies (--cache-replies): no-store looks none up and keeps none, no-cache looks none up,
 * only-if-cached answers 424 where none is there.
 *
 * traceparent: the trace of the request, for the log, the journal and exemplars of metrics.
 *
 * prefer: if-available. Status 412 unless the prompt's whole pages are cached (RFC 7240; llm-d's coordinator). */
typedef enum ek_wish { EK_WISH_NONE, EK_WISH_YES, EK_WISH_NO } ek_wish;

typedef struct ek_wishes {
    bool resume;
    bool if_available;
    bool no_store, no_cache, only_cached;
    ek_wish prefill;
    char batch[25]; /* the id; "" without */
    bool has_seed;  /* with batch */
    uint64_t seed;
    char trace[33]; /* traceparent: whose span this request is; "" without */
} ek_wishes;

/* EINVAL with a sentence that begins with the header's name. */
ek_err ek_wishes_read(ek_wishes *out, const ek_exchange *x);

/* Whether a list of preferences has this token, in any case, alone or with parameters; not inside of quotes. */
bool ek_prefers(const char *list, const char *token);

/* --- stored replies --- */

/* What the store of replies has for a request, found on the worker that makes its prompt: hashing a long prompt,
 * reading a file or asking a server is too long for the event loop. */
typedef struct ek_stored {
    int n; /* choices; 0: the request has nothing to do with the store */
    ek_turn_stored *of;
    ek_buf *ask;    /* of each choice, where the store keeps it */
    ek_buf nearest; /* of the first choice that is not there and must be: ek_replies_nearest */
} ek_stored;

/* Looks each choice up. Nothing for requests whose tokens are not decided (drawn with a seed of the server), that say
 * no, that continue a stream, or that ask for log-probabilities of the prompt; and where s stores nothing. */
void ek_stored_find(ek_stored *out, ek_server *s, const ek_api_request *req, const ek_turn_prompt *prompt,
                    const ek_wishes *wishes, uint64_t owner);
void ek_stored_fini(ek_stored *s);

/* The failure of a request whose choice i has to be answered from the store and is not, with its key and what the
 * nearest request differs in: ENOTFOUND, for a reply with EK_STATUS_NOT_STORED. Clients ask again after other statuses
 * that would fit. */
enum { EK_STATUS_NOT_STORED = 424 };
ek_err ek_stored_missing(const ek_stored *s, int i);

/* A hit that is to be computed again once the engine is idle (audit_replies.c): takes prompt over, and leaves it where
 * too many wait. opts: of t. */
void ek_audit_reply(ek_server *s, ek_turn *t, const ek_turn_opts *opts, ek_turn_prompt *prompt);
void ek_audits_tick(ek_server *s);  /* several times a second */
void ek_audits_close(ek_server *s); /* once the engine has stopped */

/* --- preparation: from a body to a request and the tokens of its prompt, on a worker's thread --- */

enum { EK_PER_LOGPROB = 128 }; /* bytes: a number and its token in a reply */

typedef struct ek_preparation ek_preparation;

/* What came out. The receiver takes req, prompt, stored and held over, also after a failure. */
typedef struct ek_prepared {
    ek_err err;
    char text[1024]; /* the sentence of a failure */
    ek_api_request req;
    ek_turn_prompt prompt;
    ek_stored stored;
    ek_body body; /* of a request that summarizes: it is read again, and its bytes are still counted */
    size_t held;  /* bytes of the server's request memory that the request keeps; ek_prepare_release gives them back */
} ek_prepared;

typedef void ek_prepared_fn(void *user, ek_prepared *p);

/* Takes the body of x and starts. summary: of a body that is read again, taken over; NULL: it is read the first time.
 * ready is called once, later, from the event loop, unless ek_prepare_drop is called
 * first. owner: as in ek_api_limits; client: whose turn in the queue it takes; wishes: of the head. EBUSY when too many
 * wait. */
ek_err ek_prepare_start(ek_preparation **out, ek_server *s, ek_exchange *x, const ek_dialect *d, ek_prepared_fn *ready,
                        void *user, uint64_t owner, uint64_t client, const ek_wishes *wishes, ek_api_summary *summary);
/* Nobody waits for it any more: ready is not called. */
void ek_prepare_drop(ek_preparation *p);

/* Bytes for a client that are freed, and given back to the request memory, when they are sent: counted bytes of it were
 * taken for them before. bytes is left empty. */
ek_outgoing ek_outgoing_own(ek_server *s, ek_buf *bytes, size_t counted);

/* Frees a request and gives back what it held; a large one on a worker's thread. */
void ek_prepare_release(ek_server *s, ek_api_request *req, size_t held);

#endif
