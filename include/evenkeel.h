/* libevenkeel: an engine for Gemma 4 whose replies are pure functions of model, prompt and options, and operators whose
 * results are pure functions of their operands. Batches, arrivals, threads and the instruction set never change a bit.
 * This header: results, errors, the engine. The operators and their threads: evenkeel_ops.h. C99 and C++; link with
 * `pkg-config --cflags --libs evenkeel`. docs/LIBRARY.md shows programs.
 *
 * Threads: every function may be called from any thread, several at once, unless its comment says otherwise.
 *
 * Process: the library sets no signal handler, takes no signal on its threads, never exits, and writes nothing to
 * standard streams. Two cases end the process with a line on standard error: a broken invariant of the library (abort),
 * and a system without memory for a small allocation. A forked child has no engine: its calls are refused, and closing
 * does nothing there.
 *
 * Errors: nothing aborts on bad input. A call that fails returns a status and sets the message of ek_last_error().
 *
 * Units: sizes are bytes, times are seconds, positions and counts are tokens. */
#ifndef EVENKEEL_H
#define EVENKEEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define EK_API __attribute__((visibility("default")))
#else
#define EK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Operators return only the first five. After EK_NO_MEMORY their outputs may be partly written. */
typedef enum ek_status {
    EK_DONE = 0,
    EK_BAD_ARGUMENT,  /* shapes, types or options do not fit; the message holds the values and the range */
    EK_NOT_SUPPORTED, /* well-formed, but not offered */
    EK_NO_MEMORY,     /* the call needs more memory than is available */
    EK_BAD_MACHINE,   /* this processor or this build does not compute in IEEE binary32 */
    EK_NOT_FOUND,     /* no such model or file */
    EK_BAD_FILE,      /* a file is damaged or of another kind */
    EK_TOO_LONG,      /* a prompt is longer than the context */
    EK_BUSY,          /* max_waiting requests wait already */
    EK_CLOSING,       /* the engine is being closed, or its device failed */
    EK_FAILED         /* the system or a device refused something */
} ek_status;

EK_API const char *ek_version(void);                 /* "0.1.0" */
EK_API const char *ek_status_name(ek_status status); /* "bad argument"; never NULL */

/* The error message of this thread's last failed call; "" before the first. The library owns the string; it is
 * valid until this thread's next failure. */
EK_API const char *ek_last_error(void);

/* --- the engine --- */

/* An open model and its engine, which runs on a thread of its own. */
typedef struct evenkeel evenkeel;
/* A queue in memory, in which requests' events wait until the program takes them. The engine does not wait. */
typedef struct evenkeel_queue evenkeel_queue;
/* A request's number: never 0, unique in its engine. Requests need no freeing: taking the last event ends them. */
typedef uint64_t evenkeel_id;

/* Receives a line of an engine's log, without its newline. Called on any thread, one line at a time; it must not call
 * the library. level: 0 error, 1 warning, 2 events that happen once per machine, 3 the rest. */
typedef void evenkeel_log_fn(void *arg, int level, const char *line);

/* Options of evenkeel_open. Zero is the default of every field, so `evenkeel_options o = {.size = sizeof o};` has all
 * defaults. Texts have the form of the program's options (docs/OPTIONS.md) and are borrowed during evenkeel_open. New
 * versions add fields at the end; size says which fields the caller knows. */
typedef struct evenkeel_options {
    size_t size;         /* sizeof(evenkeel_options) */
    const char *model;   /* a folder, a GGUF file, a short name ("e2b") or ORG/NAME of a repository in the Hub's cache;
                            NULL: the bundled model */
    const char *weights; /* "auto", "exact" or "8" */
    const char *kv;      /* formats of keys and values: "i12", "f16", K:V */
    int kv_start;        /* number of first positions kept in more bits, a multiple of 256 */
    const char *activations;  /* "auto", "8" or "16" bits in products with quantised weights */
    const char *mmproj;       /* the file with the towers of a GGUF model */
    int no_media;             /* 1: refuses pictures and sounds, and opens no towers */
    const char *device;       /* "auto", "cpu", "cuda", "cuda:N", "cuda:0,1" and so on */
    const char *split;        /* of several devices: "auto", "layers" or "outputs" */
    double gpu_bytes;         /* maximum memory on each CUDA device; 0: all free memory */
    int threads;              /* 1 to 1024; 0: the cores of this process */
    const char *isa;          /* an instruction set; NULL: the best of this machine */
    int chunk;                /* maximum prompt tokens per step; 0: 512, on a device up to 2048 */
    double max_gap;           /* maximum seconds of a step beside replies; 0: 0.06, below 0: no limit */
    const char *draft;        /* "auto", "ngram" or "off" */
    const char *drafter;      /* a drafter model */
    int context;              /* maximum tokens of prompt and reply; 0: the model's limit, or as many as memory holds */
    int max_requests;         /* maximum running requests; 0: 16, on a device more */
    int max_waiting;          /* maximum waiting requests, 1 and up; 0: 65536 */
    double kv_bytes;          /* memory for keys and values; 0: chosen */
    double cache_bytes;       /* part of kv_bytes for cached prefixes; 0: all unused memory, below 0: no cache */
    double cache_host_bytes;  /* also keeps cached pages in host memory, up to this size; 0: not */
    const char *cache_dir;    /* a folder that keeps cached pages for the next start; NULL: none */
    double cache_disk_bytes;  /* in cache_dir; 0: 8 GiB */
    const char *cache_shared; /* a server that shares cached pages: redis://HOST:PORT/DB; NULL: none */
    const char *cache_shared_ca;   /* with rediss: PEM file of trusted certificates; NULL: the system's */
    const char *cache_shared_cert; /* with rediss: PEM file with a certificate and its key; NULL: none */
    evenkeel_log_fn *log; /* receives the engine's log until evenkeel_close returns or evenkeel_open fails. Lines of
                             decoders, which all engines of a process share, come too. NULL: no log */
    void *log_arg;
} evenkeel_options;

/* Opens a model and starts its engine. Blocks until it is ready. *out is NULL on failure. EK_BAD_ARGUMENT,
 * EK_NOT_FOUND, EK_BAD_FILE, EK_NOT_SUPPORTED, EK_NO_MEMORY, EK_FAILED. */
EK_API ek_status evenkeel_open(evenkeel **out, const evenkeel_options *options);
/* Cancels all requests, waits for their ends, and frees the engine with its queues and events. No other thread may be
 * in a call with the engine. NULL is allowed. */
EK_API void evenkeel_close(evenkeel *engine);

/* Fetches a model from the Hugging Face Hub into the Hub tools' common cache. model is a short name or
 * ORG/NAME[@REVISION][:FILE] (docs/HUB.md); evenkeel_open finds the model under the same name. progress (may be NULL)
 * is called often, on the calling thread, with the fetched and the total bytes; if it returns 0, the pull ends with
 * EK_CLOSING. Fetched bytes stay for the next pull. Needs libcurl. Except cache_shared, nothing else in the library
 * uses the network. EK_NOT_FOUND, EK_BAD_ARGUMENT, EK_BAD_FILE, EK_NOT_SUPPORTED, EK_FAILED. */
typedef int evenkeel_progress_fn(void *arg, double bytes, double all);
EK_API ek_status evenkeel_pull(const char *model, evenkeel_progress_fn *progress, void *arg);

EK_API int evenkeel_context(const evenkeel *engine); /* maximum tokens of prompt and reply */
EK_API int evenkeel_vocab(const evenkeel *engine);   /* number of token ids, and of floats in a row of logits */
/* The device ("cpu", or the cards' names) and the numerics id: engines with the same weights and id give the same bits.
 * Both texts live as long as the engine. */
EK_API const char *evenkeel_device(const evenkeel *engine);
EK_API const char *evenkeel_numerics(const evenkeel *engine);
/* *out: SHA-256 of the weights in 64 hex digits; it lives as long as the engine. The first call reads the files. */
EK_API ek_status evenkeel_digest(evenkeel *engine, const char **out);

/* --- text and tokens --- */

/* Writes at most `room` tokens of n bytes of text and returns the number of all tokens, at most n. special: texts of
 * control tokens become these tokens. No <bos> is added. Returns 0 with a message for more than 1 GiB. */
EK_API size_t evenkeel_tokenize(const evenkeel *engine, const char *text, size_t n, int special, int32_t *tokens,
                                size_t room);
/* Writes at most `room` bytes of the UTF-8 text of n tokens, without a NUL, and returns the number of all bytes.
 * special: control tokens are written too. */
EK_API size_t evenkeel_detokenize(const evenkeel *engine, const int32_t *tokens, size_t n, int special, char *text,
                                  size_t room);
/* The *n bytes of one token, maybe a part of a character. Never NULL; lives as long as the engine. */
EK_API const char *evenkeel_token(const evenkeel *engine, int32_t token, size_t *n);

/* --- events --- */

typedef enum evenkeel_kind {
    EVENKEEL_TOKEN = 1, /* generate: token, text (its bytes, maybe a part of a character), digest of its row */
    EVENKEEL_TEXT,      /* chat: text that a user sees, whole characters */
    EVENKEEL_REASONING, /* chat: text of thoughts */
    EVENKEEL_CALL,      /* chat: a whole call: call_id, name, text (a JSON object with the arguments) */
    EVENKEEL_END        /* the last event of a request: finish and the fields after it */
} evenkeel_kind;

typedef enum evenkeel_finish {
    EVENKEEL_STOP = 1,  /* the model ended its reply, or a stop string or stop id was found */
    EVENKEEL_CALLS,     /* the model ended its reply with calls and waits for results */
    EVENKEEL_LENGTH,    /* max_tokens, or the context is full */
    EVENKEEL_CANCELLED, /* evenkeel_cancel; counts, digest and text so far are right */
    EVENKEEL_ERROR      /* status and text say why */
} evenkeel_finish;

/* The caller owns the event and frees it by evenkeel_event_free. Further fields may follow in later versions: the
 * library allocates events, programs only read them. */
typedef struct evenkeel_event {
    evenkeel_kind kind;
    evenkeel_id request;
    void *user;       /* the request's */
    int choice;       /* chat: which of n replies, from 0; else 0 */
    int32_t token;    /* TOKEN; else -1 */
    const char *text; /* never NULL; n bytes and a NUL. END: the sentence of an error, or the whole reply of a chat as
                         the server's body; "" if the chat was cancelled */
    size_t n;
    const char *name;    /* CALL: the function; else "" */
    const char *call_id; /* CALL; else "" */
    uint64_t digest;     /* if the request asked for it. TOKEN: of its row of logits; END: of all rows */
    evenkeel_finish finish;
    ek_status status;
    const char *state;                /* END of a cancelled chat with one reply: a JSON object that resumes it
                                         (evenkeel_chat); else "" */
    int prompt_tokens, cached_tokens; /* prompt tokens; the cached ones among them */
    int tokens, reasoning_tokens;     /* reply tokens, stop token included; thoughts among them */
} evenkeel_event;

/* Opens a queue of an engine. EK_FAILED if the system has no descriptor. evenkeel_close closes queues that are still
 * open. */
EK_API ek_status evenkeel_queue_open(evenkeel_queue **out, evenkeel *engine);
/* Cancels the queue's requests, waits for their ends and drops the remaining events. No other thread may be in a call
 * with the queue. NULL is allowed. */
EK_API void evenkeel_queue_close(evenkeel_queue *queue);

/* The next event. Events of one request come in order. Waits for at most `seconds`; 0 does not wait, below 0 has no
 * limit. NULL: the time is over, or the END of every request was taken. */
EK_API evenkeel_event *evenkeel_next(evenkeel_queue *queue, double seconds);
EK_API void evenkeel_event_free(evenkeel_event *event); /* NULL is allowed */
/* The number of requests whose END was not taken. */
EK_API size_t evenkeel_pending(evenkeel_queue *queue);
/* A descriptor that is readable (poll, epoll) while an event waits. The queue owns it: do not read or close it. */
EK_API int evenkeel_fd(const evenkeel_queue *queue);

/* --- requests --- */

typedef struct evenkeel_bias {
    int32_t token;
    float bias; /* -1000 to 1000, added to the logit; -INFINITY: never */
} evenkeel_bias;

/* Decides the allowed next tokens after the n tokens of the reply so far. Sets bit id % 64 of allowed[id / 64], which
 * is zeroed, for each allowed token and returns 1; or returns 0: every token is allowed. The engine's thread calls it
 * and waits, from the start of the request to its END. It must be a pure function of its arguments, because it is also
 * called for guessed tokens. A reply without an allowed token ends with EVENKEEL_ERROR. */
typedef int evenkeel_mask_fn(void *arg, const int32_t *tokens, int n, uint64_t *allowed);
/* Receives the logits after `position` tokens of prompt and reply: vocab floats, valid during the call. The engine's
 * thread calls it and waits. */
typedef void evenkeel_logits_fn(void *arg, int position, const float *logits);

/* A request of tokens. Zero is the default of every field except size, tokens and n_tokens. Everything is copied,
 * except that mask_arg and logits_arg have to stay valid until END. */
typedef struct evenkeel_request {
    size_t size;           /* sizeof(evenkeel_request) */
    const int32_t *tokens; /* the prompt, <bos> included; with n_replied also the reply so far */
    size_t n_tokens;       /* 1 and up, less than the context */
    int max_tokens;        /* of the reply; 0: as many as the context holds */
    int n_replied; /* resumes a reply: this many last tokens belong to it already. Counts are those of the whole reply.
                      With the same options the same tokens follow */
    void *user;    /* comes back in events */
    float temperature;                         /* 0: the most likely token */
    int top_k;                                 /* 0: all */
    float top_p, min_p;                        /* 0: all */
    float repetition_penalty;                  /* over prompt and reply; 0 and 1: none */
    float presence_penalty, frequency_penalty; /* over the reply */
    uint64_t seed;
    const evenkeel_bias *bias;
    size_t n_bias;
    const int32_t *stop; /* further ids that end the reply */
    size_t n_stop;
    uint64_t client;     /* the client's number; clients take turns */
    uint64_t cache_salt; /* only requests of one salt share cached prefixes */
    int ignore_eos;      /* the model's own stop ids are ordinary tokens */
    int digest;          /* events carry digests */
    evenkeel_mask_fn *mask;
    void *mask_arg;
    evenkeel_logits_fn *logits; /* called for every token of the reply */
    void *logits_arg;
    int prompt_logits_from; /* with logits: also called after each prompt token from this index on; 0: none, below 0:
                               all */
} evenkeel_request;

/* Submits a request, whose events come to queue. id may be NULL. EK_BAD_ARGUMENT with field, value and range,
 * EK_TOO_LONG, EK_BUSY, EK_CLOSING; after a failure there are no events. */
EK_API ek_status evenkeel_generate(evenkeel_queue *queue, const evenkeel_request *request, evenkeel_id *id);

/* Submits a chat: n bytes of JSON like a body of the server's /v1/chat/completions (docs/API.md), with messages, tools,
 * pictures and sounds, sampling, response_format, "evenkeel": {"digest": true}. "stream" is ignored,
 * cache_hit_threshold is refused, and without "seed" one is drawn. The text is copied and read on another thread;
 * mistakes in it come as an END with EK_BAD_ARGUMENT. user comes back in events; id may be NULL. EK_TOO_LONG beyond
 * 128 MiB, EK_FAILED without a thread; after a failure there are no events.
 *
 * "evenkeel": {"resume": state} beside the same fields resumes a cancelled reply, also in another process with the same
 * model and options. The events of its text so far come again, then the rest. */
EK_API ek_status evenkeel_chat(evenkeel_queue *queue, const char *json, size_t n, void *user, evenkeel_id *id);
/* Makes the prompt of such a body, for evenkeel_generate: writes at most `room` tokens and sets *n_tokens to the number
 * of all. Works on the calling thread. EK_NOT_SUPPORTED with pictures or sounds. */
EK_API ek_status evenkeel_chat_tokens(evenkeel *engine, const char *json, size_t n, int32_t *tokens, size_t room,
                                      size_t *n_tokens);

/* Ends a request soon; its END still comes. Unknown and ended ids are ignored. */
EK_API void evenkeel_cancel(evenkeel *engine, evenkeel_id id);

/* --- operators: their threads --- */

/* Instruction set in use: "scalar", "avx2", "avxvnni", "avx512" or "amx"; "dotprod" or "i8mm" on Arm. For logs; it
 * changes no result. */
EK_API const char *ek_isa(void);

/* Sets the number of threads per call, the caller's own included: 1 to 1024, or 0 for the number of cores (the
 * default), which this call and the library's first one read. EK_BAD_ARGUMENT outside that range. The function waits
 * for a call in progress; the next call with enough work starts the threads. The number changes speed, never a bit.
 *
 * One call at a time uses the pool; concurrent calls of other threads each run on their own thread alone.
 * Do not call it from inside a task. */
EK_API ek_status ek_set_threads(int n_threads);
EK_API int ek_get_threads(void);

/* Replaces the library's thread pool by the program's own. run() must call task(arg, i) once for every i in
 * [0, n_tasks), in any order, at most `threads` at the same time, and return when all are done;
 * tasks never block on each other. The struct is copied; context must stay valid while the hook is set.
 * NULL restores the library's pool. Do not call it from inside a task. */
typedef void ek_pool_task(void *arg, int i);
typedef struct ek_pool_hook {
    void *context;
    int threads; /* 1 to 1024 */
    void (*run)(void *context, ek_pool_task *task, void *arg, int n_tasks);
} ek_pool_hook;
EK_API ek_status ek_set_pool(const ek_pool_hook *hook);

#ifdef __cplusplus
}
#endif
#endif
