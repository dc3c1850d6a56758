/* An executor computes the engine's steps. It has the memory of the pages, the forward pass, and sampling, which takes
 * place where the logits are. There is one for the CPU (below) and one for a CUDA device (gpu/gpu.h); the interface
 * also fits several ranks behind one executor. Tests bring their own or wrap one.
 *
 * The engine decides which requests share a step (plan), assigns page numbers (cache) and delivers the results. An
 * executor owns all memory that a step uses: pages, logits, scratch. open receives every size once, and nothing is
 * allocated later. All calls come from the engine's thread, one at a time.
 *
 * The arithmetic of a row must not depend on anything that describes a step as a whole: its rows, slots, page numbers.
 */
#ifndef EK_ENGINE_EXECUTOR_H
#define EK_ENGINE_EXECUTOR_H

#include "engine/engine.h"
#include "engine/media/encoder.h"
#include "engine/sample/masks.h"

typedef struct ek_executor_sizes {
    int max_rows;               /* per step */
    int max_logits;             /* rows of logits per step */
    int max_ctx;                /* positions per sequence */
    int max_requests;           /* sequences per step; ek_seq.slot is below it */
    int n_pages[EK_PAGE_KINDS]; /* pages [0, n) of each kind */
} ek_executor_sizes;

/* Sets the rows, logits and requests that an engine with these options needs. image: rows of an image that see each
 * other, 0: there are none. Leaves max_ctx and pages unchanged. */
void ek_executor_sizes_of(ek_executor_sizes *out, const ek_engine_opts *o, const ek_config *c, int image);

/* A token to be sampled. A replying request has one. A request whose draft is verified has one per drafted token and
 * one after them, each with its own row and its own history. */
typedef struct ek_draw {
    int logits; /* the row of the logits buffer to sample from */
    int slot;   /* of the request */
    const ek_sampling *sampling;
    const int32_t *tokens;   /* the history: tokens[0..n_tokens); the first n_prompt are the prompt */
    int n_prompt, n_tokens;  /* the sampled token will be at position n_tokens */
    const uint64_t *allowed; /* a row of allowed tokens (ek_mask), borrowed for the step; NULL: all */
    int32_t token;           /* out: an id, or one of the two below */
    uint64_t digest;         /* for the engine: the digest of its row, if requested */
} ek_draw;

enum {
    EK_DRAW_MASKED = -1,    /* every token is masked */
    EK_DRAW_NOT_FINITE = -2 /* the logits hold NaN or infinity */
};

typedef struct ek_step {
    const ek_row *row; /* rows of a sequence are adjacent, as ek_model_forward requires */
    int n_rows;
    const ek_seq *seq;
    int n_seqs;
    int first_logits;     /* the i-th row that wants logits gives row first_logits + i of the logits buffer */
    const bool *shown;    /* per row of the logits buffer: the engine will read it; other rows may stay on a device */
    const bool *digested; /* likewise: the engine will request its digest */
    ek_draw *draw;
    int n_draws;
    /* draw[i] has number first_draw + i, which the following steps use. 0, except in an executor that computes a step
     * in parts, each of which is a step. */
    int first_draw;
    /* For a step begun after an unfinished one, per row: the draw of that step whose token the row has instead of
     * row[].token; -1: the token is known, as in a prompt. NULL: all are known. */
    const int *follows;
    /* For a step begun after an unfinished one: its draws, their masks and shown rows come with ek_executor.draw. */
    bool draws_later;
    /* Call ek_masks_wait before rows of draw[].allowed are read, as late as possible. */
    ek_masks *masks;
} ek_step;

/* Tokens proposed by a drafter to follow tokens[0..n_tokens). The drafts of one call are independent of each other. */
typedef struct ek_draft {
    const ek_seq *seq;     /* pages of the request; positions [0, n_tokens - 1) are written */
    const int32_t *tokens; /* the last one was sampled in the latest step, and has no keys yet */
    int n_tokens;
    int logits;     /* the row of the latest step's logits from which it was sampled */
    int max;        /* maximum number of tokens, at least 1 */
    int32_t *token; /* out: [max] ids of the vocabulary */
    int n;          /* out: 0..max */
} ek_draft;

typedef struct ek_executor {
    const ek_config *config; /* vocab_size, hidden_size, max_position_embeddings, stop, suppress */
    const ek_kv_layout *layout;
    ek_model *model; /* for ek_engine_model; NULL in tests */
    /* A step leaves the host's processors idle most of its time, so that masks are made there meanwhile. */
    bool leaves_host;
    double room; /* bytes for pages in the executor's memory; 0: half of the host's available memory */
    void *arg;
    /* Allocates all memory; ENOMEM with the numbers. Called once. */
    ek_err (*open)(void *arg, const ek_executor_sizes *sizes);
    /* Forward pass and sampling. After an error the same rows may be run again. */
    ek_err (*step)(void *arg, const ek_step *step);
    /* `step` in two halves, for an executor that computes beside the host; NULL: only step. begin queues a step. end
     * waits for the step that was begun first and gives its draws; logits and digests are then those of that step.
     *
     * While one step (the first) has not ended, one more (the second) may be begun. Each row of the second follows a
     * draw of the first or, with begins_prompts, belongs to a prompt. Its rows of logits are not shown, or its draws
     * come later. Copies, writes and poisoning of pages then take effect after both. The second must be harmless
     * whatever tokens the first gives it; its draws are right if these tokens are.
     *
     * If begin fails, nothing of that step was begun, so an executor may refuse a step that follows draws. If end
     * fails, the second step must also be ended (and drawn before, if it draws later), and gives nothing. */
    ek_err (*begin)(void *arg, const ek_step *step);
    ek_err (*end)(void *arg, const ek_step *step);
    /* Queues the draws of a step begun with draws_later. begin reads nothing of draw[] and shown[], because draws need
     * the tokens of the first step (masks, penalties), and shown rows overwrite the first step's logits. Called once,
     * after the first step has ended and before anything else is begun. The step is the same except draw[], shown[] and
     * masks. After an error nothing is left of the step, and it is not ended. NULL: no step has draws_later. */
    ek_err (*draw)(void *arg, const ek_step *step);
    /* Whether a step with rows of prompts may also be begun after an unfinished one. This saves time, because its begin
     * does not idle while the other's end computes. A new request then waits for both. */
    bool begins_prompts;
    /* A shown row of the logits buffer: vocab_size floats after the soft cap, before suppress_tokens; valid until a
     * step writes it again. */
    const float *(*logits)(void *arg, int row);
    /* ek_logits_digest of a digested row of the latest step. */
    uint64_t (*digest)(void *arg, int row);
    /* Proposes tokens for n requests. An error means that there are no drafts, and is not fatal. NULL: there is no
     * drafter. */
    ek_err (*draft)(void *draft_arg, ek_draft *draft, int n);
    void *draft_arg;
    /* Costs in units of the time of a step of one row, which decide only speed: of one more row in a step of few, and
     * of one token of `draft`. 0: free, so everything that can be drafted is drafted. */
    float row_cost, draft_cost;
    /* Rows per tile in products of many rows: a step with at least this many rows takes as long as one of whole tiles.
     * 0: every row counts. */
    int row_tile;
    /* Page `to` = page `from`, before the next step. kind, here and below: one of the EK_PAGE_KINDS. */
    void (*copy_page)(void *arg, ek_layer_kind kind, int32_t from, int32_t to);
    /* Copy a page between memory and the caller's buffer of layout->page_bytes[kind] bytes, for pages on disk and for
     * the audit of cached ones. Call write_page before the next step. A page written with the bytes that were read
     * equals the page read, in this process and in another one on the same kind of machine. NULL: neither is possible.
     */
    void (*read_page)(void *arg, ek_layer_kind kind, int32_t page, void *out);
    void (*write_page)(void *arg, ek_layer_kind kind, int32_t page, const void *in);
    /* Makes the memory of pages [first, first + n) present, with any contents, so that writes to it cause no page
     * fault. Any thread, at any time between open and close. NULL: memory is always present. */
    void (*ready_pages)(void *arg, ek_layer_kind kind, int32_t first, int n);
    /* Fills a page with NaN, for tests. */
    void (*poison_page)(void *arg, ek_layer_kind kind, int32_t page);
    ek_encoder encoder; /* the engine's close closes it */
    /* The sentence of an error after which no step can succeed any more (a lost device); NULL if there is none. The
     * engine calls this after a failed step, and after read_page, which in this state reads nothing. NULL as a
     * function: such errors never happen. */
    const char *(*broken)(void *arg);
    void (*close)(void *arg);
    /* for tests */
    int n_pages[EK_PAGE_KINDS];   /* exactly these if any is set; the context shrinks to fit */
    bool poison;                  /* poison pages whenever they change hands */
    double (*now)(void *now_arg); /* the clock that times steps; NULL: ek_now */
    void *now_arg;
} ek_executor;

/* The CPU, on the model's own pool and instruction set. The engine's close frees it. */
ek_executor ek_executor_cpu(ek_model *m);
/* Before it is opened: uses drafts of d, which drafts for its model and outlives it. */
void ek_executor_cpu_set_drafter(ek_executor *x, ek_drafter *d);

/* ek_engine_open on any executor. x is copied; its pointers are borrowed. x->close is called by ek_engine_close, and if
 * this fails. */
ek_err ek_engine_open_on(ek_engine **out, const ek_executor *x, const ek_engine_opts *opts);

#endif
