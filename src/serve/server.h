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

/* Limits of what requests may ask for. 0: the default. */
typedef struct ek_server_limits {
    int max_json_values;    /* values and keys in a body */
    int max_messages;       /* objects in a list of a body */
    int max_images;         /* pictures in a request */
    size_t request_memory;  /* bytes that all requests together may take while they are read and answered */
    int prepare_threads;    /* threads that make prompts of bodies */
    int prepare_queue;      /* bodies that wait for them */
    double request_timeout; /* seconds from a request's end to its reply's; 0: none */
    double drain_timeout;   /* seconds after the first signal until what still runs is cancelled */
    double stall_timeout;   /* seconds without the end of a step, while requests run, after which the server is not
                               ready */
} ek_server_limits;

typedef struct ek_server_opts {
    ek_http_opts http;
    ek_server_limits limits;
    const ek_model *model;     /* the engine's model, borrowed */
    const ek_chat_model *chat; /* its tokenizer and template, borrowed */
    const char *model_dir;     /* where it lies, for messages and what clients ask about it */
    const char *model_name;    /* in /v1/models; copied */
    const char *served_names;  /* further ones, with commas between; NULL: none */
    const char *aliases;       /* names that mean it and are not listed; NULL: none */
    bool stop_loops;           /* a reply that repeats itself ends (chat/loops.h) */
    bool strict_model;         /* requests for another name are refused */
    bool on_device;            /* its weights lie on a device: for clients that ask where it runs */
    const char *api_keys;      /* with commas between; NULL: none. Without any key everybody may use the API */
    const char *api_key_file;  /* one per line; NULL: none. Read again on SIGHUP */
    const char *open_paths;    /* serve/http/keys.h; NULL: the default of --open-paths */
    const char *cors_origins;  /* serve/http/origins.h; copied. NULL: none */
    const char *allowed_hosts; /* serve/http/origins.h; copied. NULL: those of this machine, where strangers could use
                                  the server through a browser: on loopback without keys. Else checked always */
    /* The digest of the model (model/weights/digest.h) for /v1/fingerprint, on a thread of its own; NULL: that path is
     * 404. */
    ek_err (*digest)(void *arg, char out[EK_MODEL_DIGEST]);
    void *digest_arg;
    const ek_dialect *const *dialects; /* borrowed, NULL at the end, at least one; NULL: ek_dialects */
    ek_journal *journal;               /* borrowed; NULL: none */
    ek_replies *replies;               /* stored replies; borrowed; NULL: none */
    const char *store_dir;   /* responses and conversations lie in files of this folder, too; NULL: in memory alone */
    double store_age;        /* ek_response_store_keep */
    const char *receipt_key; /* file that receipts/key.h reads, again on SIGHUP; NULL: no receipts are signed */
    const char *receipt_log; /* with it: a file as of receipts/log.h; NULL: none */
    const char *receipt_openings;                  /* with it: a file as of receipts/openings.h; NULL: none */
    bool receipts_hide_lengths;                    /* they do not say how long prompt and reply are */
    const char *weights_sha256, *tokenizer_sha256; /* with it: ek_model_sha256 */
    bool no_engine;           /* nothing is computed: what is not stored is a 424. The engine is one that cannot step */
    const char *numerics;     /* the numerics id; copied. NULL: the model's */
    ek_fetch_from media_urls; /* from where pictures and sounds are fetched that requests name by URLs */
    const struct ek_pdftotext *pdftotext; /* reads PDFs; borrowed, NULL: none are read */
    const struct ek_pdftoppm *pdftoppm;   /* draws their pages; borrowed, NULL: none are drawn */
    const struct ek_ffmpeg *ffmpeg;       /* reads files of videos; borrowed, NULL: none are read */
    bool whole_calls;                     /* ek_api_limits.whole_calls */
    bool shares;                          /* pages are shared with other replicas: prompts can be computed for them */
    bool prefill;                         /* every request is: its reply ends after the first token */
    bool decode;                          /* prompts are computed elsewhere: one that is not is a warning */
    /* News of cached pages (serve/events/events.h), of an engine opened with tell_held; NULL: none. Borrowed. */
    const ek_events_address *kv_events, *kv_replay;
    bool kv_arrays;
    const char *kv_name; /* HOST:PORT under which routers know this server; NULL: where it listens */
} ek_server_opts;

/* Listens. The engine is borrowed; its thread must not be started yet. EIO, ENOTFOUND, EFORMAT,
 * EUNSUPPORTED. */
ek_err ek_server_open(ek_server **out, ek_engine *engine, const ek_server_opts *opts);
int ek_server_port(const ek_server *s); /* the TCP port it listens on */

/* Starts the engine's thread and serves until SIGTERM or SIGINT. Then it takes no new requests, finishes the running
 * ones (a second signal, or the end of drain_timeout, cancels them), stops the engine and returns EK_OK. SIGHUP reads
 * the API keys again. EIO when the event loop fails. */
ek_err ek_server_run(ek_server *s);
void ek_server_close(ek_server *s);

/* The longest turn of the event loop so far, in seconds of its thread's CPU time. After ek_server_run. */
double ek_server_max_turn(const ek_server *s);

/* An end of the process that needs nobody: where a thread, a device or a disk hangs, the signals that ask a server to
 * stop end it all the same.
 *
 * Stands before the handlers that SIGTERM and SIGINT have now, which are called as before. From the first of them on
 * the process has so many seconds, from the second on 0.4, in which streams get their error; then SIGALRM ends it. The
 * third ends it at once. */
void ek_last_signal_watch(double seconds);
/* The same without a signal: so many seconds, after a second signal 0.4; 0: as many as it takes. */
void ek_last_signal_within(double seconds);

#endif
