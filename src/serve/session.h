/* A session: one request to a dialect's path, from its body to the last byte of its reply. Server thread. */
#ifndef EK_SERVE_SESSION_H
#define EK_SERVE_SESSION_H

#include "serve/api/dialect.h"
#include "serve/http/http.h"
#include "serve/server_state.h"

/* Reads the request of x, whose path is d's, and answers it now or later; errors become replies. Sessions with
 * different salts share no cached prefixes. With salt 0, only the body's salt counts. */
void ek_session_open(ek_server *s, ek_exchange *x, const ek_dialect *d, uint64_t salt);
/* Handles the engine's news about a turn of a session. */
void ek_session_news(const ek_turn_news *news);

/* The limits for reading bodies. */
ek_api_limits ek_session_limits(const ek_server *s);

/* All open sessions. */
void ek_sessions_tick(ek_server *s);   /* several times a second */
void ek_sessions_cancel(ek_server *s); /* at a second signal */

/* --- wishes --- */

/* Options in a request's headers, for clients and proxies that do not change bodies. The body takes precedence.
 *
 * x-evenkeel-resume: true. The stream's events carry states, as with evenkeel.resume true (serve/resume/resume.h).
 *
 * x-evenkeel-role: prefill. Another replica writes the reply, as with kv_transfer_params.do_remote_decode true. decode,
 * both: this replica writes the reply, even if its --role says otherwise.
 *
 * x-evenkeel-batch: ID[ seed=N]. A line of `evenkeel batch` (batch/batch.h). The reply has this id of 24 lower-case hex
 * digits after its prefix, created 0 and cache counts 0. The seed N (below 2^53) is for bodies without one.
 *
 * cache-control, for stored replies (--cache-replies): no-store neither looks up nor keeps a reply, no-cache does not
 * look one up, only-if-cached answers 424 if there is none.
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
    char trace[33]; /* the trace id of traceparent; "" without */
} ek_wishes;

/* EINVAL with a sentence that begins with the header's name. */
ek_err ek_wishes_read(ek_wishes *out, const ek_exchange *x);

/* Whether a list of preferences has this token, in any case, alone or with parameters, outside quotes. */
bool ek_prefers(const char *list, const char *token);

/* --- stored replies --- */

/* Stored replies to a request. The worker that makes the prompt looks them up, because hashing a long prompt, reading a
 * file or asking a server would hold up the event loop. */
typedef struct ek_stored {
    int n; /* choices; 0: the request does not use the store */
    ek_turn_stored *of;
    ek_buf *ask;    /* per choice, if the store keeps requests */
    ek_buf nearest; /* ek_replies_nearest of the first missing choice, if it has to be stored */
} ek_stored;

/* Looks each choice up. *out stays empty if s stores nothing, and for requests that are sampled with a seed of the
 * server, decline, resume a stream, or ask for log-probabilities of the prompt. */
void ek_stored_find(ek_stored *out, ek_server *s, const ek_api_request *req, const ek_turn_prompt *prompt,
                    const ek_wishes *wishes, uint64_t owner);
void ek_stored_fini(ek_stored *s);

/* ENOTFOUND for choice i, which has to be stored and is not; the sentence has its key and the nearest request's
 * differences. The reply gets EK_STATUS_NOT_STORED, because clients retry after other fitting statuses. */
enum { EK_STATUS_NOT_STORED = 424 };
ek_err ek_stored_missing(const ek_stored *s, int i);

/* Queues a hit to be computed again when the engine is idle (stored.c). Takes prompt over unless too many wait.
 * opts: t's. */
void ek_audit_reply(ek_server *s, ek_turn *t, const ek_turn_opts *opts, ek_turn_prompt *prompt);
void ek_audits_tick(ek_server *s);  /* several times a second */
void ek_audits_close(ek_server *s); /* after the engine has stopped */

/* --- preparation: from a body to a request and the tokens of its prompt, on a worker's thread --- */

enum { EK_PER_LOGPROB = 128 }; /* bytes of a log-probability and its token in a reply */

typedef struct ek_preparation ek_preparation;

/* The result. The receiver takes over req, prompt, stored and held, also after a failure. */
typedef struct ek_prepared {
    ek_err err;
    char text[1024]; /* the sentence of a failure */
    ek_api_request req;
    ek_turn_prompt prompt;
    ek_stored stored;
    ek_body body; /* for a request with a summary, whose body is read twice; its bytes stay counted */
    size_t held;  /* bytes of the server's request memory that the request keeps; ek_prepare_release returns them */
} ek_prepared;

typedef void ek_prepared_fn(void *user, ek_prepared *p);

/* Takes the body of x and starts. summary: for the second reading, taken over; NULL: the first reading. ready is called
 * once, later, from the event loop, unless ek_prepare_drop is called first. owner: as in ek_api_limits; client: takes
 * the place in the queue; wishes: the headers'. EBUSY if too many wait. */
ek_err ek_prepare_start(ek_preparation **out, ek_server *s, ek_exchange *x, const ek_dialect *d, ek_prepared_fn *ready,
                        void *user, uint64_t owner, uint64_t client, const ek_wishes *wishes, ek_api_summary *summary);
/* Drops a preparation: ready is not called. */
void ek_prepare_drop(ek_preparation *p);

/* Bytes for a client. When they are sent, they are freed, and the `counted` bytes that were taken for them return to
 * the request memory. bytes is left empty. */
ek_outgoing ek_outgoing_own(ek_server *s, ek_buf *bytes, size_t counted);

/* Frees a request and returns its request memory; a worker frees large ones. */
void ek_prepare_release(ek_server *s, ek_api_request *req, size_t held);

#endif
