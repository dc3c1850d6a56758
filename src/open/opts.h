/* Options of opening a model: one plain struct for all programs over the engine. Zero is the default of every field;
 * texts have the form of the program's options (docs/OPTIONS.md) and are borrowed during the calls. */
#ifndef EK_OPEN_OPTS_H
#define EK_OPEN_OPTS_H

#include <stdbool.h>

#include "engine/engine.h"
#include "model/tower/tower.h"

/* Means none, for fields whose 0 is the default. */
enum { EK_OPEN_NONE = -1 };

typedef struct ek_open_opts {
    /* The model. May change an answer. */
    const char *model;     /* a folder, a GGUF file, or ORG/NAME[@REVISION][:FILE] of a repository in the Hub's cache;
                              NULL: the bundled model */
    const char *synthetic; /* e2b, e4b, 12b, 26b or 31b: random weights of that shape, made in memory; not with model */
    int synthetic_layers;  /* only the first layers; 0: all */
    int synthetic_bits;    /* bits of synthetic weights, 4 or 8; 0: bf16 */
    const char *weights;   /* "exact": float weights stay float and activations are never quantised; "8": float
                              matrices become 8-bit codes; NULL: "auto", no change */
    const char *kv;        /* formats of keys and values, K or K:V (ops/kv/kv.h); NULL: "i12" */
    int kv_start;          /* positions kept in more bits, a multiple of 256 (ek_model_opts.kv_start) */
    const char *activations; /* "8" or "16" bits in products with quantised weights; NULL: "auto" */
    const char *mmproj;      /* the file with the towers of a GGUF; NULL: one beside the GGUF (docs/MEDIA.md) */
    bool media;              /* take pictures and sounds, if the model has towers; the first one packs the towers */
    bool media_now;          /* pack the towers when the engine is opened */
    bool chat;               /* open tokenizer and chat template; EK_EFORMAT and others for a model without them */

    /* Device and speed. Never changes an answer. */
    const char *device; /* "cpu", "cuda", "cuda:N", "vulkan"; several: "cuda:0,1", "cuda:0-3", "cuda:all"; with the CPU
                           for layers that do not fit: "cuda:0,cpu"; NULL: "auto" (open/device.h) */
    const char *split;  /* for several CUDA devices: "layers", whole layers per device; "outputs", a part of every layer
                           per device; NULL: "auto", outputs if that makes a step of several replies faster */
    double gpu_bytes;   /* maximum memory on each CUDA device; 0: all free memory */
    const char *tune;   /* measuring which kernels are faster (open/card.h): NULL or "auto", at the first start on an
                           unknown card; "off", never; "again", now */
    int threads;        /* 1 to 1024; 0: the cores this process may use */
    const char *isa;    /* a name of ek_cpu_isas(); NULL: the best of this machine */
    const char *packed_dir; /* keeps packed weights for the next start; NULL: nowhere */
    int chunk;              /* maximum prompt tokens per step, 1 to 1048576; 0: 512, on a device 2048 if its memory
                               suffices */
    double max_gap;         /* maximum seconds of a step beside replies (ek_engine_opts.max_gap), up to 60; 0: 0.06,
                               EK_OPEN_NONE: no limit */

    /* Drafts. Never change an answer. */
    const char *draft;       /* "off", "ngram"; NULL: "auto", from the request's own text and by a drafter */
    int draft_max;           /* maximum drafted tokens per request and step, 1 to EK_DRAFT_MAX; 0: 8 */
    const char *drafter;     /* the model's drafter, in the form of `model`; only with "auto". NULL: the bundled model's
                                if model is NULL too, else none */
    const char *drafter_url; /* a server that drafts, http(s)://[KEY@]HOST:PORT (open/remote.h); only with chat and
                                "auto"; replaces the bundled model's drafter. NULL: none */

    /* Limits of the engine. */
    int ctx_tokens;   /* maximum prompt + reply of one request; 0: the model's limit, or as many as memory holds */
    int max_requests; /* maximum running requests, 1 to 65536; 0: 16, on a device ek_budget_max_requests */
    int max_queue;    /* maximum waiting requests; 0: 256, EK_OPEN_NONE: none */
    double kv_bytes;  /* memory for keys and values; 0: max_requests full contexts or half of what is free */

    /* The prefix cache. Never changes an answer. */
    double cache_bytes; /* part of kv_bytes for pages of finished requests; 0: all unused memory, EK_OPEN_NONE: no cache
                           at all, nor in host memory, on disk or on a server */
    double cache_host_bytes;     /* also keeps pages in host memory, up to this size; 0: not */
    const char *cache_dir;       /* also keeps pages in a file of this folder; NULL: not */
    double cache_disk_bytes;     /* maximum size in cache_dir; 0: 8 GiB */
    double cache_wait;           /* seconds to wait for another process, such as one that drains, to leave that file */
    const char *cache_shared;    /* shares pages with other processes by a server: redis://HOST:PORT/DB and the like
                                    (cache/shared/link.h); NULL: not */
    const char *cache_shared_ca; /* with rediss: PEM file of authorities; NULL: the system's */
    const char *cache_shared_cert; /* with rediss: PEM file with a client certificate and its key; NULL: none */
    double cache_shared_bytes;     /* queued pages, each way; 0: 256 MiB */
    double cache_shared_rate;      /* bytes per second, each way; 0: no limit */
    bool cache_shared_read_only;   /* writes nothing to the server */
    double feature_bytes;          /* kept features of pictures and sounds; 0: 256 MiB, EK_OPEN_NONE: none */
    bool tell_held;                /* ek_engine_held reports held pages to another thread */
    double cache_audit; /* fraction of hits recomputed in idle time and compared, 0 to 1; 0: none, with cache_shared
                           0.01; EK_OPEN_NONE: none */
} ek_open_opts;

/* EINVAL for an invalid value, with field, value and range in one line. Opens nothing; limits of the model, such as its
 * context, are checked when it is opened. */
ek_err ek_open_check(const ek_open_opts *o);

/* The model's options, without a pool; o was checked. */
ek_err ek_open_model_opts(const ek_open_opts *o, ek_model_opts *out);

/* The towers' options, for a model with options m, on the same pool. */
ek_towers_opts ek_open_towers_opts(const ek_open_opts *o, const ek_model_opts *m);

/* The engine's options, without drafter and store; o was checked. */
ek_engine_opts ek_open_engine_opts(const ek_open_opts *o);

#endif
