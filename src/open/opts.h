/* How a model is opened: one plain struct for every program over the engine. Zero is the default of every field; texts
 * have the grammar of the program's options (docs/OPTIONS.md) and are borrowed during the calls. */
#ifndef EK_OPEN_OPTS_H
#define EK_OPEN_OPTS_H

#include <stdbool.h>

#include "engine/engine.h"
#include "model/tower/tower.h"

/* For fields where 0 is the default: none at all. */
enum { EK_OPEN_NONE = -1 };

typedef struct ek_open_opts {
    /* The model. May change an answer. */
    const char *model;     /* a folder, a GGUF file, or ORG/NAME[@REVISION][:FILE] of a repository in the Hub's cache;
                              NULL: the bundled model */
    const char *synthetic; /* e2b, e4b, 12b, 26b or 31b: random weights of that shape made in memory; not with model */
    int synthetic_layers;  /* only its first layers; 0: all */
    int synthetic_bits;    /* of its weights: 4 or 8; 0: bf16 */
    const char *weights;   /* "exact": float weights stay float and activations are never quantised; "8": matrices of
                              floats become 8-bit codes; NULL: "auto", as they are */
    const char *kv;        /* formats of keys and values, K or K:V (ops/kv/kv.h); NULL: "i12" */
    int kv_start;          /* positions kept in more bits, a multiple of 256 (ek_model_opts.kv_start) */
    const char *activations; /* "8" or "16" bits in products with quantised weights; NULL: "auto" */
    const char *mmproj; /* beside a GGUF: the file with the towers; NULL: the one that lies there (docs/MEDIA.md) */
    bool media;         /* pictures and sounds too, if the model has towers; they are packed with the first one */
    bool media_now;     /* or when the engine is opened */
    bool chat;          /* tokenizer and chat template too: EK_EFORMAT and others for a model without */

    /* Where and how fast it runs. Never changes an answer. */
    const char *device; /* "cpu", "cuda", "cuda:N"; several: "cuda:0,1", "cuda:0-3", "cuda:all", and with the CPU for
                           what does not fit, "cuda:0,cpu"; NULL: "auto", the first CUDA device if the model fits */
    const char *split;  /* over several CUDA devices: "layers", whole ones on each; "outputs", some of every layer's on
                           each; NULL: "auto", outputs where a reply alone is faster so */
    double gpu_bytes;   /* memory that each CUDA device may give; 0: what is free there */
    const char *tune;   /* which kernels are faster is measured at the first start on a card that is not known, and kept
                           (open/tuning.h): NULL or "auto"; "off": never; "again": now, whatever was kept */
    int threads;        /* 1 to 1024; 0: the cores this process may use */
    const char *isa;    /* a name of ek_cpu_isas(); NULL: the best of this machine */
    const char *packed_dir; /* keeps packed weights for the next start; NULL: nowhere */
    int chunk;              /* prompt tokens per step at most, 1 to 1048576; 0: 512, on a device 2048 where its memory
                               has room for such a step */
    double max_gap; /* seconds of a step beside replies (ek_engine_opts.max_gap), up to 60; 0: 0.06, EK_OPEN_NONE:
                       any */

    /* Guesses at the next tokens. Never change an answer. */
    const char *draft;       /* "off", "ngram"; NULL: "auto", from the request's own text and by a drafter */
    int draft_max;           /* drafted tokens per request and step, 1 to EK_DRAFT_MAX; 0: 8 */
    const char *drafter;     /* a drafter model for the model, written as model is; with "auto" alone. NULL: the bundled
                                model's if model is NULL too, else none */
    const char *drafter_url; /* a server that proposes tokens, http(s)://[KEY@]HOST:PORT (open/remote.h); with chat, and
                                with "auto" alone; then the bundled model's drafter is left out. NULL: none */

    /* Limits of the engine. */
    int ctx_tokens;   /* longest prompt and reply of one request; 0: the model's, or what memory holds */
    int max_requests; /* that run at once, 1 to 65536; 0: 16, on a device ek_budget_max_requests */
    int max_queue;    /* that wait; 0: 256, EK_OPEN_NONE: none */
    double kv_bytes;  /* memory for keys and values; 0: max_requests full contexts or half of what is free */

    /* Prompts that begin like an earlier one. Never changes an answer. */
    double cache_bytes; /* part of kv_bytes for pages of finished requests; 0: all that is not in use, EK_OPEN_NONE:
                           no cache, and none outside of it: host memory, disk, server */
    double cache_host_bytes;  /* keeps pages in host memory besides; 0: not */
    const char *cache_dir;    /* keeps pages in a file of this folder; NULL: not */
    double cache_disk_bytes;  /* pages in cache_dir; 0: 8 GiB */
    double cache_wait;        /* seconds for another process to leave the file in cache_dir, as one that drains does */
    const char *cache_shared; /* shares pages with other processes by a server: redis://HOST:PORT/DB and the like
                                 (cache/shared/link.h); NULL: not */
    const char *cache_shared_ca;   /* PEM file of whom to believe about it, with rediss; NULL: the system's */
    const char *cache_shared_cert; /* PEM file with a certificate and its key to show it; NULL: none */
    double cache_shared_bytes;     /* pages in flight, each way; 0: 256 MiB */
    double cache_shared_rate;      /* bytes per second, each way; 0: any */
    bool cache_shared_read_only;   /* nothing is written there */
    double feature_bytes;          /* features of pictures and sounds that are kept; 0: 256 MiB, EK_OPEN_NONE: none */
    bool tell_held;                /* ek_engine_held says which pages are held, for another thread */
    double cache_audit; /* share of cached prompts computed again in idle time and compared, 0 to 1; 0: none, with
                           cache_shared 0.01; EK_OPEN_NONE: none */
} ek_open_opts;

/* EINVAL for a value that cannot be: field, value and range in one line. Opens nothing; what only the model tells (its
 * context, a format that its heads do not fit) is told when it is opened. */
ek_err ek_open_check(const ek_open_opts *o);

/* What the model is opened with, without a pool; as checked. */
ek_err ek_open_model_opts(const ek_open_opts *o, ek_model_opts *out);

/* What its towers are opened with, beside a model that is opened with m, on the same pool. */
ek_towers_opts ek_open_towers_opts(const ek_open_opts *o, const ek_model_opts *m);

/* What the engine is opened with, without drafter and store; as checked. */
ek_engine_opts ek_open_engine_opts(const ek_open_opts *o);

#endif
