/* The HTTP server: one thread for sockets and text, one engine thread for tokens. */
#ifndef EK_SERVE_SERVER_H
#define EK_SERVE_SERVER_H

#include "engine/engine.h"
#include "model/weights/digest.h"
#include "serve/api/dialect.h"
#include "serve/events/events.h"
#include "serve/fetch/fetch.h"
#include "serve/http/http.h"

typedef struct ek_server ek_server;
typedef struct ek_journal ek_journal;

/* Limits on requests. 0: the default. */
typedef struct ek_server_limits {
    int max_json_values;    /* values and keys per body */
    int max_messages;       /* objects per list of a body */
    int max_images;         /* pictures per request */
    size_t request_memory;  /* maximum bytes of all requests together while they are read and answered */
    int prepare_threads;    /* threads that turn bodies into prompts */
    int prepare_queue;      /* maximum number of bodies that wait for them */
    double request_timeout; /* seconds from the end of a request to the end of its reply; 0: unlimited */
    double drain_timeout;   /* seconds from the first signal until running requests are cancelled */
    /* Seconds without the end of a step, while requests run, until the server is no longer ready. */
    double stall_timeout;
} ek_server_limits;

typedef struct ek_server_opts {
    ek_http_opts http;
    ek_server_limits limits;
    const ek_model *model;     /* the engine's model, borrowed */
    const ek_chat_model *chat; /* its tokenizer and template, borrowed */
    const char *model_dir;     /* folder of the model, for messages and for clients that ask for it */
    const char *model_name;    /* in /v1/models; copied */
    const char *served_names;  /* further names, separated by commas; NULL: none */
    const char *aliases;       /* names that also mean this model and are not listed; NULL: none */
    bool stop_loops;           /* ends a reply that repeats itself (chat/loops.h) */
    bool strict_model;         /* requests for another name are refused */
    bool on_device;            /* the weights lie on a device: for clients that ask for it */
    const char *api_keys;      /* separated by commas; NULL: none. Without any key everybody may use the API */
    const char *api_key_file;  /* one per line; NULL: none. Read again on SIGHUP */
    const char *open_paths;    /* serve/http/access.h; NULL: the default of --open-paths */
    const char *cors_origins;  /* serve/http/access.h; copied. NULL: none */
    /* serve/http/access.h; copied; always checked. NULL: the names of this machine, which are checked only if
     * strangers could use the server through a browser: on loopback without keys. */
    const char *allowed_hosts;
    /* The digest of the model (model/weights/digest.h) for /v1/fingerprint, computed on a thread of its own. NULL: the
     * path is a 404. */
    ek_err (*digest)(void *arg, char out[EK_MODEL_DIGEST]);
    void *digest_arg;
    const ek_dialect *const *dialects; /* borrowed, at least one, ends with NULL; NULL: ek_dialects */
    ek_journal *journal;               /* borrowed; NULL: none */
    ek_replies *replies;               /* stored replies; borrowed; NULL: none */
    const char *store_dir;   /* folder of files for responses and conversations, which then survive a restart; NULL:
                                memory only */
    double store_age;        /* ek_response_store_keep */
    const char *receipt_key; /* the signing key (receipts/key.h); read again on SIGHUP; NULL: none */
    const char *receipt_log; /* with receipt_key: its log, of receipts/log.h; NULL: none */
    const char *receipt_openings;                  /* with receipt_key: openings (receipts/openings.h); NULL: none */
    bool receipts_hide_lengths;                    /* receipts omit the lengths of prompt and reply */
    const char *weights_sha256, *tokenizer_sha256; /* with receipt_key: ek_model_sha256 */
    bool no_engine;       /* no reply is computed, and the engine cannot step; a reply that is not stored is a 424 */
    const char *numerics; /* the numerics id; copied. NULL: the model's */
    ek_fetch_from media_urls;       /* allowed sources of pictures and sounds that requests name by URLs */
    const char *pdftotext;          /* reads PDFs; borrowed; NULL: PDFs are refused */
    const char *pdftoppm;           /* draws the pages of PDFs; borrowed; NULL: pages are not drawn */
    const struct ek_ffmpeg *ffmpeg; /* reads video files; borrowed; NULL: video files are refused */
    bool whole_calls;               /* ek_api_limits.whole_calls */
    /* The server shares pages with other replicas. A client may ask it to compute only a prompt, for a reply
     * elsewhere. */
    bool shares;
    bool prefill; /* every request ends after its first token, because its reply is generated elsewhere */
    bool decode;  /* prompts are computed elsewhere; the log warns of one that was not */
    /* Addresses for events of cached pages (serve/events/events.h); the engine has tell_held set. NULL: none. Borrowed.
     */
    const ek_events_address *kv_events, *kv_replay;
    bool kv_arrays;
    const char *kv_name; /* HOST:PORT under which routers know this server; NULL: the address on which it listens */
} ek_server_opts;

/* Listens. The engine is borrowed; its thread must not run yet. EIO, ENOTFOUND, EFORMAT, EUNSUPPORTED. */
ek_err ek_server_open(ek_server **out, ek_engine *engine, const ek_server_opts *opts);
int ek_server_port(const ek_server *s); /* the TCP port it listens on */

/* Starts the engine's thread and serves until SIGTERM or SIGINT. Then the server refuses new requests, finishes the
 * running ones (a second signal, or the end of drain_timeout, cancels them), stops the engine and returns EK_OK. SIGHUP
 * reads the API keys again. EIO if the event loop fails. */
ek_err ek_server_run(ek_server *s);
void ek_server_close(ek_server *s);

/* The longest turn of the event loop so far, in seconds of its thread's CPU time. Call after ek_server_run. */
double ek_server_max_turn(const ek_server *s);

/* --- the last signal: ends the process even if a thread, a device or a disk hangs and the server cannot stop. ---
 *
 * Installs a handler before the present handlers of SIGTERM and SIGINT, which are still called. After the first signal
 * the process has `seconds` left. After the second it has 0.4 s, in which streams get their error. Then SIGALRM ends
 * it. The third signal ends it at once. */
void ek_last_signal_watch(double seconds);
/* Starts the same countdown without a signal: `seconds`, or 0.4 s after a second signal. 0: no countdown. */
void ek_last_signal_within(double seconds);

#endif
