/* An executor computes the engine's steps: it has the memory of the pages, the forward pass, and sampling,
 * which happens where the logits are. There are the CPU's (below) and a CUDA device's (gpu/gpu.h); the interface also
 * fits several ranks behind one executor. Tests bring their own or wrap one.
 *
 * The engine decides which requests share a step (plan), hands out page numbers (cache) and delivers the
 * results. An executor owns all memory that a step touches: pages, logits, scratch; open gives it every size
 * once, and it allocates nothing later. All calls come from the engine's thread, one at a time.
 *
 * What an executor knows of a step as a whole (its rows, slots, page numbers) may not reach the
 * arithmetic of a row. */
#ifndef EK_ENGINE_EXECUTOR_H
#define EK_ENGINE_EXECUTOR_H

#include "engine/engine.h"
#include "engine/media/encoder.h"
#include "engine/sample/masks.h"

typedef struct ek_executor_sizes {
    int max_rows;               /* of a step */
    int max_logits;             /* rows of logits of a step */
    int max_ctx;                /* positions of a sequence */
    int max_requests;           /* sequences of a step; ek_seq.slot is below it */
    int n_pages[EK_PAGE_KINDS]; /* pages [0, n) of each kind */
} ek_executor_sizes;

/* What an engine with these options asks of an executor: rows, logits and requests; image: rows of an image that see
 * each other, 0: there are none. max_ctx and pages are left as they are. */
void ek_executor_sizes_of(ek_executor_sizes *out, const ek_engine_opts *o, const ek_config *c, int image);

/* A token to be sampled. A request that replies has one; one whose draft is verified has one for each
 * drafted token and one behind them, each with its own row and its own history. */
typedef struct ek_draw {
    int logits; /* the row of the logits buffer to sample from */
    int slot;   /* of the request */
    const ek_sampling *sampling;
    const int32_t *tokens;   /* the history: tokens[0..n_tokens), of which the first n_prompt are the prompt */
    int n_prompt, n_tokens;  /* the sampled token will be at position n_tokens */
    const uint64_t *allowed; /* a row of allowed tokens (ek_mask), borrowed for the step; NULL: all */
    int32_t token;           /* out: an id, or one of the two below */
    uint64_t digest;         /* the engine's: of its row, if that is digested */
} ek_draw;

enum {
    EK_DRAW_MASKED = -1,    /* every token is masked */
    EK_DRAW_NOT_FINITE = -2 /* the logits hold NaN or infinity */
};

typedef struct ek_step {
    const ek_row *row; /* rows of a sequence adjacent, as ek_model_forward wants them */
    int n_rows;
    const ek_seq *seq;
    int n_seqs;
    int first_logits;  /* the i-th row that wants logits gives row first_logits + i of the logits buffer */
    const bool *shown; /* of each row of the logits buffer: the engine will read it. Others need not leave a device */
    const bool *digested; /* likewise: the engine will ask for its digest */
    ek_draw *draw;
    int n_draws;
    int first_draw;     /* draw[i] is draw first_draw + i for the steps behind that follow it: 0, but where an executor
                           computes a step in pieces, of which each is one */
    const int *follows; /* of a step begun behind another: per row, the draw of that step whose token it has, instead of
                           row[].token, or -1: its token is known, as in a prompt; NULL: all are */
    bool draws_later; /* of a step begun behind another: draws, their masks and shown rows come with ek_executor.draw */
    ek_masks *masks;  /* ek_masks_wait before the rows of draw[].allowed are read: as late as can be */
} ek_step;

/* Tokens that a drafter proposes to follow tokens[0..n_tokens). Drafts of one call are apart from each other. */
typedef struct ek_draft {
    const ek_seq *seq;     /* pages of the request: positions [0, n_tokens - 1) are written */
    const int32_t *tokens; /* the last one was sampled in the last step, and has no keys yet */
    int n_tokens;
    int logits;     /* the row of the last step's logits that it was sampled from */
    int max;        /* tokens wanted, 1 or more */
    int32_t *token; /* out: [max] ids of the vocabulary */
    int n;          /* out: 0..max */
} ek_draft;

typedef struct ek_executor {
    const ek_config *config; /* vocab_size, hidden_size, max_position_embeddings, stop, suppress */
    const ek_kv_layout *layout;
    ek_model *model;  /* for ek_engine_model; NULL in tests */
    bool leaves_host; /* a step leaves the host's processors to others most of its time: masks are made there meanwhile
                       */
    double room;      /* bytes that pages can take in the executor's memory; 0: half of what the host has available */
    void *arg;
    /* Allocates all memory, or ENOMEM with the numbers. Called once. */
    ek_err (*open)(void *arg, const ek_executor_sizes *sizes);
    /* Forward pass and sampling. After an error the same rows may be run again. */
    ek_err (*step)(void *arg, const ek_step *step);
    /* The same in two halves, for an executor that computes beside the host; NULL: step alone. begin queues a step, end
     * waits for the step that was begun first and gives its draws, and then its logits and digests are those that are
     * read. Behind a step that was not ended one more may be begun, whose rows each follow a draw of it, or with
     * begins_prompts are a prompt's, and whose rows of logits are not shown, or as its draws come later; copies,
     * writes and poisoning of pages then happen behind both. The step behind must be harmless whatever tokens it gets
     * from the step in front; its draws are right if these tokens are. After an error of begin nothing of that step was
     * begun, so an executor may refuse a step that follows draws. After an error of end the step behind it must be
     * ended, too (and drawn before, if it draws later), and gives nothing. */
    ek_err (*begin)(void *arg, const ek_step *step);
    ek_err (*end)(void *arg, const ek_step *step);
    /* Queues the draws of the step that was begun with draws_later: begin read nothing of draw[] and shown[], which
     * need the tokens of the step in front (masks, penalties) or come where its rows of logits are (shown). Called
     * once, after that step was ended and before anything else is begun; the step is the same but for draw[], shown[]
     * and masks. After an error nothing is left of the step, and it is not ended. NULL: no step has draws_later. */
    ek_err (*draw)(void *arg, const ek_step *step);
    bool begins_prompts; /* a step is worth beginning behind another with rows of prompts, too: then its begin is not
                            idle while that one's end computes. A new request waits for both */
    /* A shown row of the logits buffer: vocab_size floats after the soft cap, before suppress_tokens; valid until a
     * step writes it again. */
    const float *(*logits)(void *arg, int row);
    /* ek_logits_digest of a digested row of the last step. */
    uint64_t (*digest)(void *arg, int row);
    /* Proposes tokens for n requests, or NULL: there is no drafter. An error means no drafts, and is not fatal. */
    ek_err (*draft)(void *draft_arg, ek_draft *draft, int n);
    void *draft_arg;
    /* Costs of speed only, in units of the time of a step of one row: one more row in a step of few, and one token
     * of `draft`. 0: free, so that all that can be drafted is. */
    float row_cost, draft_cost;
    /* Rows of a tile of the products of many rows: of so many and more, a step takes as long as one of whole tiles. 0:
     * every row counts. */
    int row_tile;
    /* Page `to` = page `from`, before the next step. kind, here and below: one of the EK_PAGE_KINDS. */
    void (*copy_page)(void *arg, ek_layer_kind kind, int32_t from, int32_t to);
    /* Between memory and the caller's buffer of layout->page_bytes[kind] bytes: for pages on disk and for the audit of
     * cached ones. write_page before the next step. A page that is written with what was read is that page, in this
     * process and in another one on the same kind of machine. NULL: neither is possible. */
    void (*read_page)(void *arg, ek_layer_kind kind, int32_t page, void *out);
    void (*write_page)(void *arg, ek_layer_kind kind, int32_t page, const void *in);
    /* The memory of pages [first, first + n) is there from now on, whatever they hold, so that who writes them waits
     * for no page fault. Any thread, beside everything else, between open and close. NULL: it always is. */
    void (*ready_pages)(void *arg, ek_layer_kind kind, int32_t first, int n);
    /* Fills a page with NaN, for tests. */
    void (*poison_page)(void *arg, ek_layer_kind kind, int32_t page);
    ek_encoder encoder; /* the engine's close closes it */
    /* The sentence of an error after which no step can succeed any more (a device that is lost); NULL while there is
     * none. NULL: it never happens. The engine asks after a step that failed, and after read_page, which then read
     * nothing. */
    const char *(*broken)(void *arg);
    void (*close)(void *arg);
    /* for tests */
    int n_pages[EK_PAGE_KINDS];   /* exactly these if any is set; the context shrinks to fit */
    bool poison;                  /* poison pages whenever they change hands */
    double (*now)(void *now_arg); /* the clock that steps are timed by; NULL: ek_now */
    void *now_arg;
} ek_executor;

/* The CPU, on the model's own pool and instruction set. The engine's close frees it. */
ek_executor ek_executor_cpu(ek_model *m);
/* Before it is opened: drafts come from d, which drafts for its model and outlives it. */
void ek_executor_cpu_set_drafter(ek_executor *x, ek_drafter *d);

/* ek_engine_open on any executor. x is copied; what it points to is borrowed. x->close is called by
 * ek_engine_close, and when this fails. */
ek_err ek_engine_open_on(ek_engine **out, const ek_executor *x, const ek_engine_opts *opts);

#endif
