/* Recipes: the kernels of a part of a forward pass, in order, with their grids and arguments. A recipe is written once
 * for each part and number of rows, by the files beside this one, and then kept, so that a step looks it up and queues
 * it: it allocates nothing, decides nothing, and no call can find that a shape does not fit.
 *
 * What a step alone knows (its block's places, its rows of logits) a recipe leaves open: arguments hold
 * ek_gpu_open_value there, and queuing puts the step's values in. The work lists of attention, of which there are more
 * or fewer, are queued by gpu/step/step.h. */
#ifndef EK_GPU_RECIPE_RECIPE_H
#define EK_GPU_RECIPE_RECIPE_H

#include "cuda/args.h"
#include "gpu/step/run.h"

/* Values of 8 bytes that a step has: places in its block, unless another thing is said. */
typedef enum ek_gpu_value {
    EK_GPU_IDS,        /* of the tokens */
    EK_GPU_WANT,       /* rows that want logits */
    EK_GPU_TABLE_IDS,  /* rows of the table of per-layer embeddings: of all rows, */
    EK_GPU_TABLE_WANT, /* of those that want logits */
    EK_GPU_PLACE,      /* of all rows */
    EK_GPU_TAIL_PLACE, /* of those that want logits, where some do not */
    EK_GPU_PAGES,      /* page tables, by kind */
    EK_GPU_PAGES_LAST = EK_GPU_PAGES + EK_KIND_COUNT - 1,
    EK_GPU_LD_PAGES,    /* how many entries each has */
    EK_GPU_HIDDEN,      /* in scratch memory: where the last x is kept for a drafter, */
    EK_GPU_LOGITS,      /* and what belongs to a step's first row of logits; */
    EK_GPU_LOGITS_HERE, /* the first that is computed here, */
    EK_GPU_LOGITS_AT,   /* and bytes in front of it in all rows of logits */
    EK_GPU_BAD,
    EK_GPU_DIGEST,  /* 0: none is asked for */
    EK_GPU_FROM,    /* of a draft: rows of the target's last x, */
    EK_GPU_N_TOKEN, /* and tokens drafted so far */
    EK_GPU_VALUES
} ek_gpu_value;

/* No device address, no pair of counts, and no float but a NaN; a synthetic table's seed, of 64 bits, is one of these
 * by a chance of 19 in 2^64. */
static inline CUdeviceptr ek_gpu_open_value(ek_gpu_value which)
{
    return (CUdeviceptr)0xfff2a7e500000000 + which;
}

/* What a recipe is of. */
typedef enum ek_gpu_section {
    EK_GPU_BEGIN = 1, /* embeddings, rotations, per-layer inputs */
    EK_GPU_KEYS,      /* of a layer whose keys alone all rows make */
    EK_GPU_LAYER,     /* a layer; of the tail, where the others leave: from its queries on */
    EK_GPU_HEAD,
    EK_GPU_DRAFT_FIRST, /* of a drafter: once, */
    EK_GPU_DRAFT_BEGIN, /* what a token is fed by, */
    EK_GPU_DRAFT_END    /* and how the next one is found */
} ek_gpu_section;

typedef struct ek_gpu_subject {
    ek_gpu_section section;
    int layer, n; /* rows */
    int want;     /* EK_GPU_BEGIN, which does more for them: rows that want logits; else 0 */
    bool drops;   /* of the layer in front of the last that owns keys: some rows, which want no logits, leave there */
    bool tail;    /* the rows are those that want logits, where some do not */
    /* of the layer's list: attention finishes queries, and where it is single stores keys; there are tiles of prompts
     */
    bool finishes, single, prompt;
} ek_gpu_subject;

/* --- writing */

enum { EK_GPU_LINES = 64, EK_GPU_OPENS = 128, EK_GPU_RECIPE_ARGS = 32 << 10 };

/* What is not a kernel's: attention, over the layer's list, and experts on the host (gpu/step/step.h). */
typedef enum ek_gpu_other { EK_GPU_ATTENTION, EK_GPU_HOST_ASK, EK_GPU_HOST_ANSWER } ek_gpu_other;

typedef struct ek_gpu_line {
    ek_gpu_kernel *kernel; /* NULL: another thing, */
    ek_gpu_other other;    /* which this says */
    ek_cuda_grid grid;
    uint32_t args;    /* their place in the recipe's, in words of 8 bytes */
    uint16_t n_opens; /* of the recipe's, one after the other */
    bool tail;        /* attention: of the tail's list, */
    uint8_t kind;     /* of layers of this kind */
    bool puts;        /* what is behind it, or itself in the end, waits for what other devices put */
} ek_gpu_line;

typedef struct ek_gpu_open_word {
    uint16_t word, value;
} ek_gpu_open_word;

/* A recipe while it is written, and where rows lie then: they are read from one place and written to the other, for
 * layers always beginning with the first. */
typedef struct ek_gpu_writer {
    const ek_gpu_run *x; /* of which nothing is read that a step changes */
    ek_gpu_subject of;
    CUdeviceptr acts, other_acts; /* records; the second are written while the first are read, and become the first */
    CUdeviceptr operand[2];
    uint64_t n_inputs, holds[2]; /* numbers given so far; whose rows the operands are, */
    int held_group[2];           /* in groups of how many inputs */
    int n_exchanges;             /* between devices */
    bool skips;                  /* one of y was left out, so that those beside it may not fill the same buffer */
    bool known; /* a launch has held what is behind it until jobs and pairs were there (cuda/model_args.h) */
    int n_lines, n_opens;
    size_t n_args; /* words */
    ek_gpu_line line[EK_GPU_LINES];
    ek_gpu_open_word open[EK_GPU_OPENS];
    uint64_t args[EK_GPU_RECIPE_ARGS / 8];
} ek_gpu_writer;

/* Blocks for n things, `by` in each. */
static inline unsigned ek_gpu_over(int n, int by)
{
    return (unsigned)((n + by - 1) / by);
}

/* Adds a line: a kernel with its arguments, a structure of whole words. */
void ek_gpu_write(ek_gpu_writer *w, const char *kernel, ek_cuda_grid grid, const void *args, size_t bytes);
/* Attention over the list of layers of that kind. */
void ek_gpu_write_attention(ek_gpu_writer *w, ek_layer_kind kind, const ek_cuda_attn_args *args);
/* Rows of the subject's layer go to the host, or its experts' sums come back. */
void ek_gpu_write_host(ek_gpu_writer *w, ek_gpu_other ask, int n);
#define EK_GPU_WRITE(w, kernel, grid, args) ek_gpu_write(w, kernel, grid, &(args), sizeof(args))
/* Records and operands lie where a layer begins with them, and hold nothing. */
void ek_gpu_write_home(ek_gpu_writer *w);

/* --- keeping and queuing */

typedef struct ek_gpu_recipe ek_gpu_recipe;
typedef struct ek_gpu_recipes ek_gpu_recipes;

ek_gpu_recipes *ek_gpu_recipes_open(const ek_gpu_run *x);
void ek_gpu_recipes_close(ek_gpu_recipes *r); /* NULL is allowed */

/* The recipe of the subject, or NULL: then a writer for it, and what it wrote. Valid until the next keep. */
const ek_gpu_recipe *ek_gpu_recipe_find(const ek_gpu_recipes *r, const ek_gpu_subject *of);
ek_gpu_writer *ek_gpu_recipe_begin(ek_gpu_recipes *r, const ek_gpu_subject *of);
const ek_gpu_recipe *ek_gpu_recipe_keep(ek_gpu_recipes *r);

/* The values of the step at hand, for all that is queued until the next call. */
void ek_gpu_recipes_set(ek_gpu_run *x);
/* Queues it in pieces, each up to where what other devices put is waited for: begin, then `more` until it says that
 * nothing is left. So each device puts before any waits. */
void ek_gpu_queue_begin(ek_gpu_run *x, const ek_gpu_recipe *r);
bool ek_gpu_queue_more(ek_gpu_run *x);
/* Of what is computed once: queues the lines as they are written, without attention and open values, and begins anew
 * behind them. Records and operands stay what they hold. */
void ek_gpu_queue_written(ek_gpu_writer *w);

#endif
