/* A scene: a tiny random model and requests to it, all generated from one seed, so that the seed
 * alone repeats a failure. */
#ifndef TESTS_SAME_SCENE_H
#define TESTS_SAME_SCENE_H

#include "base/machine/pool.h"
#include "engine/executor.h"
#include "engine/trace.h"

enum { MAX_ASKS = 64, LONGEST_PROMPT = 700, MAX_SPANS = 3, LONGEST_SPAN = 48, N_CONTENTS = 8 };

/* A seed with this bit: the scene of the seed without it, but parts of its prompts are embeddings, and some of
 * these spans are mutual, as those of an image. */
#define SCENE_SPANS ((uint64_t)1 << 40)

/* The same with pictures, frames and sounds in its prompts, whose features a made-up tower gives; some prompts differ
 * from another in the picture alone. */
#define SCENE_MEDIA ((uint64_t)1 << 41)
#define SCENE_FLAGS (SCENE_SPANS | SCENE_MEDIA)

typedef struct scene {
    uint64_t seed;
    const char *shape; /* of ek_config_tiny */
    ek_config config;
    int bits;
    ek_model_opts opts;
    int n;
    ek_ask ask[MAX_ASKS];
    int32_t *tokens[MAX_ASKS];
    ek_prompt_span span[MAX_ASKS][MAX_SPANS];
    ek_part part[MAX_ASKS][MAX_SPANS];
    ek_media *media[N_CONTENTS]; /* NULL without SCENE_MEDIA; those of a pair differ in the content alone */
    float *embedding;            /* [MAX_ASKS + LONGEST_SPAN][hidden_size] */
    ek_model *model;             /* one thread, all instruction sets */
} scene;

/* Flags of a seed: a vocabulary of 33,803 tokens instead of the shape's; 8 of 128 experts instead of the shape's; keys
 * and values in formats of a second table. */
#define LARGE_VOCABULARY ((uint64_t)1 << 32)
#define MANY_EXPERTS     ((uint64_t)1 << 33)
#define FEW_KV_BITS      ((uint64_t)1 << 34)

/* Keys and values of attention in integers, from a third table. */
#define WHOLE_CODES ((uint64_t)1 << 36)

/* Experts of 192 columns, which are enough to be cut in whole groups. */
#define WIDE_EXPERTS ((uint64_t)1 << 37)

/* A head of its own beside the embedding. */
#define OWN_HEAD ((uint64_t)1 << 38)

/* The first 256 positions in bf16 (i12 beside i8), where keys or values have fewer bits. */
#define KV_START ((uint64_t)1 << 35)

/* Scene number i of those that `make check` runs and bits.def stores: seeds 0 to 26, then the flagged ones. */
enum { N_CHECK_SCENES = 46 };
uint64_t check_seed(int i);

ek_err scene_open(scene *s, uint64_t seed);
void scene_close(scene *s);
void scene_describe(const scene *s, char *out, size_t room);

/* How the requests of a scene are run. Zero stands for "as alone". */
typedef struct company {
    ek_model *model; /* NULL: the scene's */
    int max_requests, chunk;
    int full_pages, sliding_pages;
    const ek_ask *ask;                       /* the scene's with other arrivals and cancellations; NULL: as they are */
    int n;                                   /* of ask */
    int max_rows;                            /* leave out requests beyond this many rows together */
    bool ahead;                              /* steps are begun before the tokens of the one in front are known */
    bool uneven;                             /* rows of prompts by invented times of steps (ek_engine_opts.max_gap) */
    bool turns;                              /* requests give way as soon as others wait */
    bool remote;                             /* AUTO: from `want` as well, late and sometimes garbage, by a proposer */
    bool drafter;                            /* AUTO: from a random drafter model instead */
    ek_draft_mode draft;                     /* AUTO: from `want`, right and wrong at random; else from the text */
    const ek_trace *want;                    /* of every request of the scene, alone */
    void (*before)(const ek_step *step);     /* called before every step: gives a wrong kernel the step's rows */
    void (*spoil)(ek_model *m);              /* gives `model` the wrong kernel */
    double cache_bytes;                      /* 0: no limit but the pool */
    double feature_bytes;                    /* 0: none are kept beyond their use */
    const ek_store_backend *store;           /* NULL: none */
    uint64_t preempted, steps, hits, waits;  /* out */
    uint64_t yielded;                        /* out: of preempted, those of the case `turns` */
    uint64_t encoded, reused;                /* out: contents; tokens of contents whose features were there */
    uint64_t followed, drawn_late;           /* out: steps begun ahead; of them those that drew later */
    uint64_t drafted, accepted;              /* out */
    uint64_t drafts;                         /* out, with `drafter`: a sum of hashes of its drafts */
    uint64_t masked_drafts, masked_accepted; /* sums of the case `masked` */
} company;

/* Makes the executors of all runs; ek_executor_cpu unless a test of a device sets another. */
extern ek_executor (*scene_executor)(ek_model *m);

/* Has drafts of an executor that scene_executor made come from d. */
extern void (*scene_set_drafter)(ek_executor *x, ek_drafter *d);

/* Runs the requests together; out[0..n) is to be freed with ek_trace_fini. */
ek_err run_in_company(const scene *s, company *c, ek_trace *out);

/* Every request by itself, the whole prompt in one step: what all else is compared with. */
ek_err run_alone(const scene *s, company *c, ek_trace *out);

/* The scene's model once more. */
ek_err model_again(const scene *s, ek_model **out, unsigned cpu, ek_pool *pool);

#endif
