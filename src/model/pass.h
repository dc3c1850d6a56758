/* The state of a forward pass: the model, its scratch memory, and the rows of the step. */
#ifndef EK_MODEL_PASS_H
#define EK_MODEL_PASS_H

#include "model/model.h"
#include "model/weights/weights.h"
#include "ops/attn/attn.h"
#include "ops/linear/linear.h"
#include "ops/rows/rows.h"

struct ek_model {
    ek_config config;
    ek_weights w;
    unsigned cpu;
    bool exact;
    ek_activations activations;
    ek_kv_format k_format, v_format;
    int kv_start; /* positions */
    ek_pool *pool;
    ek_linear_ops linear;
    ek_row_ops rows;
    ek_attn *attn[EK_KIND_COUNT]; /* NULL: no layer of that kind */
    int last[EK_KIND_COUNT];      /* the last layer of each kind that owns keys; -1: none */
    float *rope[EK_KIND_COUNT];   /* frequencies */
    int n_rotated[EK_KIND_COUNT];
    ek_kv_layout layout;
    const ek_model *target; /* for a drafter: the model whose keys and values its layers read; else NULL */
    /* The offset of the layer's block in a page of its kind. A layer without own keys has the offset of the layer whose
     * keys it reads. */
    size_t kv_offset[EK_MAX_LAYERS];
    size_t kv_start_offset[EK_MAX_LAYERS]; /* the same for a page of the start kind */
    ek_items *deferred;                    /* the weights of a deferred model; NULL: all are packed */
    ek_pack_opts pack;                     /* for the deferred weights */
    char *packed_dir;                      /* owned; pack points to it */
    bool some;                             /* only a share of the deferred weights is packed */
    char numerics_id[160];
    double bytes_per_token, macs_prompt_row, macs_logit_row;
};

/* A matrix of rows in scratch memory. */
typedef struct ek_buffer {
    float *at;
    ptrdiff_t ld; /* in elements; a multiple of 16 */
} ek_buffer;

static inline float *ek_at(const ek_buffer *b, int row)
{
    return b->at + row * b->ld;
}

struct ek_scratch {
    const ek_model *m;
    int max_rows, max_logits, max_ctx;
    uint8_t *block;
    size_t bytes;
    ek_buffer h, x, q, k, v, o, y, gate, up;
    ek_buffer per_layer_head, per_layer_tail, token; /* token: one row per thread */
    ek_buffer cos[EK_KIND_COUNT], sin[EK_KIND_COUNT];
    ek_attn_row *row[EK_KIND_COUNT]; /* visible ranges of rows, per kind of layer */
    int32_t *id, *pos, *want;        /* tokens (pad for an embedding), positions; rows that want logits */
    const float **embedding;         /* per row; NULL: none */
    const ek_seq **seq;              /* per view */
    ek_kv_view *view;
    int *store; /* first row of each group of rows that share a page */
    void *acts, *attn;
    void *gated; /* gated rows for the next product; lies in the memory of gate and up, which are unused then */
    float *gate_space;
    /* --- experts --- */
    ek_buffer route, sum, pair_gate, pair_up, pair_out;
    int32_t *expert, *pair_row, *pair_self, *row_pair; /* [rows][k], pair -> row, pair -> pair, [rows][k] -> pair */
    float *weight;                                     /* [rows][k] */
    int *first;                                        /* first pair of each expert */
    ek_acts *pick;                                     /* rows of each expert */
    ek_linear_job *job;
    void *pair_gated;         /* gated rows of pairs */
    ek_linear_gate *job_gate; /* one per expert */
};

/* One call of ek_model_forward. */
typedef struct ek_pass {
    const ek_model *m;
    ek_scratch *s;
    const ek_kv_memory *kv;
    int n; /* rows that still run: first all rows, later those that want logits */
    int n_want, n_views, n_store;
    int layer, end;    /* end: later layers run on another device */
    ek_act_form reads; /* the products that read the next rows: see ek_put_row */
} ek_pass;

/* The configuration and the weights of the pass's current layer. */
static inline const ek_layer_config *ek_config_of(const ek_pass *p)
{
    return &p->m->config.layer[p->layer];
}

static inline const ek_layer_weights *ek_weights_of(const ek_pass *p)
{
    return &p->m->w.layer[p->layer];
}

/* Opens a drafter for target, which must outlive it: from dir, or with random weights of config if dir is NULL.
 * EUNSUPPORTED if it is no drafter, EFORMAT with the numbers if it does not fit the target. */
ek_err ek_model_open_drafter(ek_model **out, const char *dir, const ek_config *config, uint64_t seed,
                             const ek_model *target, const ek_model_opts *opts);

/* Runs all layers, from s->h, s->x and the rows of p to s->x, normed for the head. Rows without logits are dropped once
 * no later layer needs them; p->n is the number of remaining rows. */
void ek_run_layers(ek_pass *p);

/* Checks rows before ek_model_forward runs them. Reads only the model and the limits of s. */
ek_err ek_pass_check(const ek_scratch *s, const ek_row *rows, int n_rows, int n_seqs);

/* Minimum number of rows for which row work is spread over the pool. Waking many threads costs some microseconds; two
 * threads are as fast as one from two rows on. */
enum { EK_ROWS_WORTH_WAKING = 6, EK_ROWS_WORTH_TWO = 2 };

static inline bool ek_rows_worth_waking(const ek_pool *pool, int n)
{
    return n >= (ek_pool_threads(pool) <= 2 ? EK_ROWS_WORTH_TWO : EK_ROWS_WORTH_WAKING);
}

/* Calls fn for every row; spreads the rows over the pool if there are enough. */
typedef void ek_row_fn(const ek_pass *p, int row, int worker);
void ek_each_row(const ek_pass *p, ek_row_fn *fn);

/* Rows of x as input of a linear layer, not quantised yet. There is memory for one such input at a time. */
static inline ek_acts ek_read_rows(const ek_pass *p, const ek_buffer *x, int k)
{
    ek_acts a;
    ek_acts_bind(&a, p->s->acts, x->at, x->ld, p->n, k);
    return a;
}

/* Row r of x was just computed and lies in the first-level cache. It is quantised now, for the products that p->reads
 * names. */
static inline void ek_put_row(const ek_pass *p, const ek_buffer *x, int k, int r)
{
    if (!p->reads.group) return;
    ek_acts a;
    ek_acts_bind(&a, p->s->acts, x->at, x->ld, p->n, k);
    ek_acts_quantize_row(p->m->linear.quantize_row, &a, r, p->reads);
}

/* Rows of x as input of a linear layer, after ek_put_row for each row. */
static inline ek_acts ek_read_put_rows(const ek_pass *p, const ek_buffer *x, int k)
{
    ek_acts a = ek_read_rows(p, x, k);
    a.a_group = p->reads.group, a.limbs = p->reads.limbs;
    return a;
}

/* The form that up to three matrices read; any may be NULL. */
static inline ek_act_form ek_readers(const ek_linear *a, const ek_linear *b, const ek_linear *c)
{
    ek_act_form form = {0};
    if (a) ek_acts_add_reader(&form, a);
    if (b) ek_acts_add_reader(&form, b);
    if (c) ek_acts_add_reader(&form, c);
    return form;
}

/* Whether gate and up are gated straight into the rows of the next product. With few rows this is slower: a thread
 * would alternate between two streams of weights, whose beginnings are not prefetched. rows: per matrix; per expert on
 * average. */
enum { EK_ROWS_WORTH_GATING = 16 };
static inline bool ek_gates(int rows, const ek_linear *gate, const ek_linear *up, ek_act_form reads)
{
    return rows >= EK_ROWS_WORTH_GATING && reads.group && (!up || up->a_group == gate->a_group);
}

/* y = x w^T */
static inline void ek_project(const ek_pass *p, const ek_linear *w, ek_acts *x, const ek_buffer *y)
{
    ek_linear_forward(&p->m->linear, p->m->pool, w, x, y->at, y->ld);
}

/* --- before the layers: embeddings, rotations and per-layer inputs of all rows --- */

/* Reads tokens and embeddings. Writes s->h, s->x normed for the first layer, rotations and per-layer inputs. */
void ek_embed_rows(const ek_pass *p);

/* --- attention: the first half of a layer, up to its residual --- */

/* Reads s->x, normed for the layer and quantised for p->reads. Adds the layer's attention to s->h, and leaves s->x
 * normed and quantised for the feed-forward. A layer that owns keys and values stores the keys and values of the rows.
 * The first layer that not every row runs drops the rows without logits; if none is left, p->n is 0 and the function
 * returns. */
void ek_run_attention(ek_pass *p);

/* --- mixture of experts: the feed-forward of a layer that runs top-k experts per row --- */

/* Reads s->h. s->sum = the weighted outputs of the experts that each row's router chose. Uses s->x and the acts memory.
 */
void ek_run_experts(ek_pass *p);

/* Runs the experts of layer i alone, for a device that has the rest of the layer. h: n rows of hidden_size after
 * attention, in order. sum: their sums, likewise. n is at most the scratch memory's rows. The layer's router and
 * experts are packed. */
void ek_model_run_experts(const ek_model *m, ek_scratch *s, int i, const float *h, int n, float *sum);

#endif
