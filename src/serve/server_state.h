/* State of the server, shared by its files. Inside src/serve. Server thread. */
#ifndef EK_SERVE_SERVER_STATE_H
#define EK_SERVE_SERVER_STATE_H

#include "chat/prompt.h"
#include "serve/api/model_card.h"
#include "serve/events/events.h"
#include "serve/fetch/fetch.h"
#include "serve/http/access.h"
#include "serve/http/http.h"
#include "serve/threads/threads.h"
#include "serve/status.h"
#include "serve/server.h"

typedef struct ek_session ek_session;
typedef struct ek_reply_audit ek_reply_audit;
typedef struct ek_receipts ek_receipts;

/* --- tokens of requests on other servers that ask for drafts here (drafts.c) ---
 *
 * A question has only the tokens since the previous question. At most EK_DRAFT_SESSIONS sessions of max_tokens each;
 * the owner with the most sessions makes room, by the least recently used. Any thread. */

enum { EK_DRAFT_SESSIONS = 64 };

typedef struct ek_draft_sessions ek_draft_sessions;

ek_draft_sessions *ek_draft_sessions_open(int max_tokens);
void ek_draft_sessions_close(ek_draft_sessions *s); /* NULL is allowed */

/* Keeps the session's first `from` tokens and appends these n. *out is a copy of all its tokens, *n_out of them; the
 * caller frees it. False: the owner has no such session with at least `from` tokens. 0 <= from, 1 <= n,
 * from + n <= max_tokens. */
bool ek_draft_sessions_put(ek_draft_sessions *s, uint64_t owner, const char *name, int from, const int32_t *tokens,
                           int n, int32_t **out, int *n_out);

/* --- the server --- */

struct ek_server {
    struct event_base *base;
    ek_loop loop; /* the turns of base */
    ek_http *http;
    ek_engine *engine;
    const ek_config *config;
    const ek_dialect *const *dialects;
    ek_mailbox *mailbox;
    struct { /* drafts.c */
        ek_mailbox *mailbox;
        ek_draft_sessions *sessions;
        char vocabulary[EK_CHAT_NAME]; /* the tokenizer's hash; kept here because hashing takes milliseconds */
    } drafts;
    struct ek_response_store *responses;
    ek_journal *journal;           /* NULL: none */
    ek_replies *replies;           /* NULL: none */
    struct ek_reply_audit *audits; /* waiting audits; the first may run */
    ek_receipts *receipts;         /* receipts.h; NULL: none */
    bool stop_loops;
    bool whole_calls, shares, prefill, decode, no_engine;
    double decode_warned; /* ek_now(); 0: never */
    ek_workers *workers;
    ek_workers *fetchers; /* NULL with EK_FETCH_OFF */
    ek_fetch_from fetch_from;
    ek_workers *decoders; /* for preparations that wait for external programs; NULL: none */
    const struct ek_ffmpeg *ffmpeg;
    const char *pdftotext;
    const char *pdftoppm;
    ek_server_limits limits; /* without zeros: defaults are filled in */
    ek_request_memory memory;
    const ek_chat_model *chat; /* borrowed */
    ek_model_card card;
    char *model_name, *fingerprint, *cors_origins;
    char *allowed_hosts; /* NULL: not given */
    ek_keys *keys;
    ek_open_paths open_paths;
    ek_events *events; /* NULL: no --kv-events */
    ek_metrics metrics;
    ek_canary *canary;
    struct ek_fingerprint_state *identity; /* fingerprint.c */
    struct { /* ready.c: the state that a supervisor last received, and when by ek_now(); 0: never */
        ek_readiness said;
        bool ready; /* READY=1 was sent */
        int running, waiting;
        double said_at, alive_at, watchdog; /* watchdog: seconds between signs of life; 0: the supervisor wants none */
    } supervised;
    bool stalled;
    size_t reserve_spent;              /* ek_reserve_times_spent() at the latest tick */
    int64_t started;                   /* seconds since 1970 */
    uint64_t nonce;                    /* random number of this process, for ids */
    ek_session *sessions;              /* the open sessions */
    struct ek_background *backgrounds; /* background.c; the newest first */
    int n_backgrounds;
    size_t background_bytes; /* bytes of their events */
    struct event *signals[2], *hangup, *tick;
    int n_signals;         /* received SIGTERM and SIGINT; 1 once the device is lost */
    char broken[256];      /* why the engine broke; "": it works */
    double signalled;      /* ek_now() of the first signal */
    double run_since;      /* ek_now() at the start of ek_server_run */
    double last_step_time; /* ek_now() when the step counter last changed, or nothing ran */
    uint64_t last_steps;
};

/* The router: ek_handler_fn and ek_http_error_fn; arg is the ek_server. */
void ek_route(void *server, ek_exchange *x);
/* False without a key, so that strangers take no memory. */
bool ek_route_takes_body(void *server, const ek_exchange *x);
/* Whether x is answered even if too many connections are open. */
bool ek_route_always(void *server, const ek_exchange *x);
void ek_route_error(void *server, ek_buf *out, const char *path, int status, const char *text);

/* The dialect that writes errors and lists of models: of the path's API, or else of the client's. */
const struct ek_dialect *ek_route_form(const ek_server *s, const ek_exchange *x);

void ek_models_list(ek_server *s, ek_exchange *x, const char *rest);
void ek_models_one(ek_server *s, ek_exchange *x, const char *id);
/* The owner of a request: a number for its API key; 0 without keys. */
uint64_t ek_route_owner(const ek_server *s, const ek_exchange *x);
void ek_responses_get(ek_server *s, ek_exchange *x, const char *rest);       /* rest: ID or ID/input_items */
void ek_conversations_route(ek_server *s, ek_exchange *x, const char *rest); /* rest: ID, ID/items, ID/items/ITEM, "" */
void ek_responses_delete(ek_server *s, ek_exchange *x, const char *id);
void ek_health(ek_server *s, ek_exchange *x, const char *rest);
void ek_readiness_reply(ek_server *s, ek_exchange *x, const char *rest);
void ek_load_reply(ek_server *s, ek_exchange *x, const char *rest);
void ek_version_reply(ek_server *s, ek_exchange *x, const char *rest);
void ek_debug_reply(ek_server *s, ek_exchange *x, const char *rest);
void ek_props_reply(ek_server *s, ek_exchange *x, const char *rest);
void ek_tokenizer_info_reply(ek_server *s, ek_exchange *x, const char *rest); /* tokenize.c */
/* GET /v1/fingerprint (fingerprint.c). The first request starts the computation of the model's digest; replies follow
 * when it is known. */
void ek_fingerprint_reply(ek_server *s, ek_exchange *x, const char *rest);
/* Adds the fingerprint's SHA-256 to x as the header x-evenkeel-fingerprint, once it is known. */
void ek_fingerprint_header(ek_server *s, ek_exchange *x);
void ek_supervised_open(ek_server *s);
void ek_supervised_tick(ek_server *s); /* call after ek_ready_tick */
void ek_fingerprint_open(ek_server *s, const ek_server_opts *o);
void ek_fingerprint_close(ek_server *s); /* call after the workers have stopped */
void ek_slots_reply(ek_server *s, ek_exchange *x, const char *rest);
/* POST /v1/drafts (drafts.c), and the news of its requests. */
void ek_drafts_route(ek_server *s, ek_exchange *x, const char *rest);
void ek_drafts_news(const ek_turn_news *news);
/* For Ollama's API. */
void ek_models_tags(ek_server *s, ek_exchange *x, const char *rest);
void ek_models_ps(ek_server *s, ek_exchange *x, const char *rest);
void ek_models_version(ek_server *s, ek_exchange *x, const char *rest);

#endif
