/* Recipes: the kernels of a part of a forward pass, in order, with their grids and arguments. The files beside this one
 * write a recipe once per part and number of rows. It is kept, so that a step only looks it up and queues it: a step
 * allocates nothing, decides nothing, and cannot find a shape that does not fit.
 *
 * Values that only a step knows (offsets in its block, its rows of logits) stay open in a recipe: arguments hold
 * ek_gpu_open_value there, and queuing inserts the step's values. gpu/step/step.h queues the work lists of attention,
 * whose lengths vary. */
#ifndef EK_GPU_RECIPE_RECIPE_H
#define EK_GPU_RECIPE_RECIPE_H

#include "cuda/args.h"
#include "gpu/step/run.h"

/* Values of 8 bytes of a step: addresses in its block, unless stated otherwise. */
typedef enum ek_gpu_value {
    EK_GPU_IDS,        /* token ids */
    EK_GPU_WANT,       /* rows that want logits */
    EK_GPU_TABLE_IDS,  /* rows of the table of per-layer embeddings: of all rows */
    EK_GPU_TABLE_WANT, /* of rows with logits */
    EK_GPU_PLACE,      /* of all rows */
    EK_GPU_TAIL_PLACE, /* of rows with logits, if some rows have none */
    EK_GPU_PAGES,      /* page tables, by kind */
    EK_GPU_PAGES_LAST = EK_GPU_PAGES + EK_KIND_COUNT - 1,
    EK_GPU_LD_PAGES,    /* entries per table */
    EK_GPU_HIDDEN,      /* in scratch memory: the last x, kept for a drafter */
    EK_GPU_LOGITS,      /* of the step's first row of logits */
    EK_GPU_LOGITS_HERE, /* of the first row of logits computed here */
    EK_GPU_LOGITS_AT,   /* bytes before that row in all rows of logits */
    EK_GPU_BAD,
    EK_GPU_DIGEST,  /* 0: none is requested */
    EK_GPU_FROM,    /* for a draft: rows of the target's last x */
    EK_GPU_N_TOKEN, /* number of tokens drafted so far */
    EK_GPU_VALUES
} ek_gpu_value;

/* A NaN that is not a device address, pair of counts or valid float. A synthetic table's 64-bit seed equals one of
 * these with a probability of 19 in 2^64. */
static inline CUdeviceptr ek_gpu_open_value(ek_gpu_value which)
{
    return (CUdeviceptr)0xfff2a7e500000000 + which;
}

/* The part of a pass that a recipe computes. */
typedef enum ek_gpu_section {
    EK_GPU_BEGIN = 1, /* embeddings, rotations, per-layer inputs */
    EK_GPU_KEYS,      /* a layer for which all rows make keys only */
    EK_GPU_LAYER,     /* a layer; in the tail, when other rows leave: from its queries on */
    EK_GPU_HEAD,
    EK_GPU_DRAFT_FIRST, /* for a drafter: once per draft */
    EK_GPU_DRAFT_BEGIN, /* feeding a token */
    EK_GPU_DRAFT_END    /* finding the next token */
} ek_gpu_section;

typedef struct ek_gpu_subject {
    ek_gpu_section section;
    int layer, n; /* number of rows */
    int want;     /* EK_GPU_BEGIN: number of rows with logits, which need more work; else 0 */
    bool drops;   /* the layer before the last that owns keys: rows without logits leave after it */
    bool tail;    /* the rows are those with logits, and some rows have none */
    /* By the layer's list: attention finishes queries, and with `single` stores keys; prompt: there are tiles of
     * prompts. */
    bool finishes, single, prompt;
} ek_gpu_subject;

/* --- writing */

enum { EK_GPU_LINES = 64, EK_GPU_OPENS = 128, EK_GPU_RECIPE_ARGS = 32 << 10 };

/* Entries that are no kernels: attention over the layer's list, and experts on the host (gpu/step/step.h). */
typedef enum ek_gpu_other { EK_GPU_ATTENTION, EK_GPU_HOST_ASK, EK_GPU_HOST_ANSWER } ek_gpu_other;

typedef struct ek_gpu_line {
    ek_gpu_kernel *kernel; /* NULL: another entry */
    ek_gpu_other other;    /* which one */
    ek_cuda_grid grid;
    uint32_t args;    /* offset in the recipe's arguments, in words of 8 bytes */
    uint16_t n_opens; /* number of its open values, which are consecutive in the recipe */
    bool tail;        /* attention: over the tail's list */
    uint8_t kind;     /* kind of layer */
    bool puts;        /* entries after it (or, at the end, it itself) wait for data that other devices put */
} ek_gpu_line;

typedef struct ek_gpu_open_word {
    uint16_t word, value;
} ek_gpu_open_word;

/* A recipe while it is written, and the place of rows at that point: rows are read from one place and written to the
 * other, and each layer begins with the first. */
typedef struct ek_gpu_writer {
    const ek_gpu_run *x; /* without reading anything that a step changes */
    ek_gpu_subject of;
    /* Records; the second are written while the first are read, and then become the first. */
    CUdeviceptr acts, other_acts;
    CUdeviceptr operand[2];
    uint64_t n_inputs, holds[2]; /* numbers given so far; numbers of the rows in the operands */
    int held_group[2];           /* inputs per group */
    int n_exchanges;             /* between devices */
    bool skips;                  /* a vector of y was left out, so its neighbours may not fill the same buffer */
    bool known; /* an earlier launch has waited until jobs and pairs were written (cuda/model_args.h) */
    int n_lines, n_opens;
    size_t n_args; /* in words */
    ek_gpu_line line[EK_GPU_LINES];
    ek_gpu_open_word open[EK_GPU_OPENS];
    uint64_t args[EK_GPU_RECIPE_ARGS / 8];
} ek_gpu_writer;

/* Number of blocks for n items, `by` per block. */
static inline unsigned ek_gpu_over(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

/* Adds a line: a kernel with its arguments, a structure of whole words. */
void ek_gpu_write(ek_gpu_writer *w, const char *kernel, ek_cuda_grid grid, const void *args, size_t bytes);
/* Adds attention over the list of that kind's layers. */
void ek_gpu_write_attention(ek_gpu_writer *w, ek_layer_kind kind, const ek_cuda_attn_args *args);
/* Adds sending rows of the subject's layer to the host, or receiving its experts' sums. */
void ek_gpu_write_host(ek_gpu_writer *w, ek_gpu_other ask, int n);
#define EK_GPU_WRITE(w, kernel, grid, args) ek_gpu_write(w, kernel, grid, &(args), sizeof(args))
/* Resets records and operands to their places at the beginning of a layer, holding nothing. */
void ek_gpu_write_home(ek_gpu_writer *w);

/* --- keeping and queuing */

typedef struct ek_gpu_recipe ek_gpu_recipe;
typedef struct ek_gpu_recipes ek_gpu_recipes;

ek_gpu_recipes *ek_gpu_recipes_open(const ek_gpu_run *x);
void ek_gpu_recipes_close(ek_gpu_recipes *r); /* NULL is allowed */

/* ek_gpu_recipe_find: the recipe of the subject, or NULL. If NULL, get a writer for it, and keep the result. Valid
 * until the next keep. */
const ek_gpu_recipe *ek_gpu_recipe_find(const ek_gpu_recipes *r, const ek_gpu_subject *of);
ek_gpu_writer *ek_gpu_recipe_begin(ek_gpu_recipes *r, const ek_gpu_subject *of);
const ek_gpu_recipe *ek_gpu_recipe_keep(ek_gpu_recipes *r);

/* Sets the present step's values, for everything queued until the next call. */
void ek_gpu_recipes_set(ek_gpu_run *x);
/* Queues a recipe in parts, each up to a wait for data of other devices: begin, then `more` until nothing is left. So
 * each device puts its data before any waits. */
void ek_gpu_queue_begin(ek_gpu_run *x, const ek_gpu_recipe *r);
bool ek_gpu_queue_more(ek_gpu_run *x);
/* For one-time computations: queues the written lines, without attention and open values, and continues with an empty
 * recipe. Records and operands keep their contents. */
void ek_gpu_queue_written(ek_gpu_writer *w);

#endif
