/* Gemma 4's text decoder: weights bound to shapes, and one forward pass over a batch of rows.
 *
 * A row is one token of one sequence at an absolute position, or a vector in a token's place (a part of
 * an image). Rows of a step are independent apart from the keys and values they read, all of which lie
 * in pages; nothing else of the step reaches a row's arithmetic. */
#ifndef EK_MODEL_MODEL_H
#define EK_MODEL_MODEL_H

#include "base/machine/pool.h"
#include "model/weights/role.h"
#include "model/config/config.h"
#include "ops/kv/kv.h"

typedef struct ek_model ek_model;

typedef struct ek_model_opts {
    ek_kv_format k_format, v_format;
    int kv_start;  /* positions [0, kv_start) in ek_kv_start_format of the two; a multiple of EK_SEGMENT, 0: none */
    bool exact;    /* quantised weights are widened to f32: activations are never quantised */
    bool quantise; /* float matrices become 8-bit codes when they are packed; not with exact */
    ek_activations activations; /* limbs of quantised products; ignored by an exact model */
    unsigned cpu;               /* EK_CPU_* */
    ek_pool *pool;              /* borrowed for the model's life; NULL: one thread */
    double memory_limit;        /* bytes the weights may take; 0: what the system has available */
    const char *packed_dir;     /* folder that keeps packed weights for the next start; NULL: none */
    bool deferred;              /* no weight is read: ek_model_pack does, share by share, or ek_model_pack_all */
} ek_model_opts;

/* Loads a directory (Hugging Face or MLX safetensors). Logs the memory needed before it is
 * taken; ENOMEM with both numbers when it cannot fit. Every tensor is bound by name and
 * checked against the configuration: missing, extra, of wrong shape or type is EFORMAT with
 * tensor and file. */
ek_err ek_model_open(ek_model **out, const char *dir, const ek_model_opts *opts);

/* A model of the given configuration with random weights made in memory: bits 0 float (bf16),
 * 4 or 8 affine group 64. For bench and tests: the value of weight i of tensor NAME is a hash
 * of (seed, NAME, i), so two calls make the same model. */
ek_err ek_model_synthetic(ek_model **out, const ek_config *config, int bits, uint64_t seed, const ek_model_opts *opts);

/* The memory that a model takes, or, if it was opened deferred, will take. */
typedef struct ek_model_need {
    ek_config config;
    ek_kv_layout layout;
    double weight_bytes;    /* packed, in memory */
    double mapped_bytes;    /* tables that stay in the file */
    double bytes_per_token; /* weights one decoded token reads */
    char numerics_id[160];
} ek_model_need;
void ek_model_measure(ek_model_need *out, const ek_model *m);

/* EINVAL for a kv_start that is no multiple of EK_SEGMENT, and for formats that it leaves as they are. */
ek_err ek_model_check_start(int kv_start, ek_kv_format k, ek_kv_format v);

void ek_model_close(ek_model *m);

struct ek_rows_wanted; /* model/weights/weights.h */

/* What one of several devices has of a model: layers [first, end), the vectors that belong to no layer, and, if it
 * looks tokens up or makes logits, their table. Layers' matrices are read by that device alone. */
typedef struct ek_model_share {
    int first, end;
    bool embed;
    const struct ek_rows_wanted *rows; /* of matrices; NULL: all */
    int host_experts; /* layers [first, host_experts) have router and experts elsewhere; ek_model_pack asks `rows` */
    bool quiet;       /* ek_model_pack says nothing: one of many */
} ek_model_share;

/* For a model opened with `deferred`: reads and packs the weights of the share, in place of those packed before. So
 * host memory holds one share at a time. packed_dir is used for a share that is everything. */
ek_err ek_model_pack(ek_model *m, const ek_model_share *share);
/* All of them, unless they are. */
ek_err ek_model_pack_all(ek_model *m);
bool ek_model_is_deferred(const ek_model *m);
bool ek_model_is_packed(const ek_model *m);    /* all weights are in memory */
bool ek_model_keeps_packed(const ek_model *m); /* deferred, with a packed_dir */

/* Frees the packed weights, for a model whose weights were copied to a device. What stays in the file is still
 * read from there; scratch memory can no longer be opened, so nothing computes on the CPU. */
void ek_model_release_weights(ek_model *m);
const ek_config *ek_model_config(const ek_model *m);
const ek_kv_layout *ek_model_kv_layout(const ek_model *m);
/* Numbers in all weights of a model of this configuration, embeddings and experts included. */
uint64_t ek_model_parameters(const ek_config *config);
ek_pool *ek_model_pool(const ek_model *m); /* for work between forward passes; NULL: one thread */
unsigned ek_model_cpu(const ek_model *m);  /* EK_CPU_* that its kernels were chosen for */

/* Bytes of packed weights: of all matrices of layer i; of all matrices outside layers, with or without the table of
 * embeddings. */
double ek_model_layer_bytes(const ek_model *m, int i);
double ek_model_common_bytes(const ek_model *m, bool embed);
/* Of these of layer i its router and `experts` of its experts: 0 without any. */
double ek_model_experts_bytes(const ek_model *m, int i, int experts);
/* Bytes of weights one decoded token reads (head included, embedding tables one row). */
double ek_model_bytes_per_token(const ek_model *m);
/* Multiply-adds of one prompt row over the layers it runs, and of one row through all layers
 * and the head; attention's keys not counted. */
double ek_model_macs_prompt_row(const ek_model *m);
double ek_model_macs_logit_row(const ek_model *m);
/* Names everything that the bits depend on besides the tokens: formats, exactness, arithmetic version. */
const char *ek_model_numerics_id(const ek_model *m);

/* Positions [lo, end). */
typedef struct ek_range {
    int32_t lo, end;
} ek_range;

typedef struct ek_row {
    int32_t token; /* an id of the vocabulary; ignored where embedding is set */
    int32_t pos;
    int32_t seq; /* index into seqs */
    bool wants_logits;
    const float *embedding;          /* NULL: the token's own. hidden_size floats as they enter the first layer,
                                        scaled already; borrowed during the call. Per-layer inputs are then those
                                        of the pad token, as in transformers, modeling_gemma4.py. */
    ek_range visible[EK_KIND_COUNT]; /* in layers of a kind: itself, and of its sequence only what
                                        is written before the step or by it */
} ek_row;

/* A row of text: visible are its own position and those before it, in sliding layers `window` in all. */
static inline ek_row ek_text_row(int32_t token, int pos, int seq, bool wants_logits, int window)
{
    ek_row row = {.token = token, .pos = pos, .seq = seq, .wants_logits = wants_logits};
    row.visible[EK_FULL] = (ek_range){0, pos + 1};
    row.visible[EK_SLIDING] = (ek_range){pos < window ? 0 : pos - window + 1, pos + 1};
    return row;
}

/* The page tables of one sequence: page[kind][i] is the number of the page that holds positions
 * [64 i, 64 i + 64), for entries first <= i < end; other entries may be EK_NO_PAGE. */
typedef struct ek_seq {
    const int32_t *page[EK_KIND_COUNT];
    int first[EK_KIND_COUNT], end[EK_KIND_COUNT];
    int slot; /* of the request, below the executor's max_requests, the same while it runs */
} ek_seq;

typedef struct ek_scratch ek_scratch; /* everything a step writes besides pages and logits */

/* For steps of at most max_rows rows, max_logits of them wanting logits, over contexts of at
 * most max_ctx tokens. A forward pass allocates nothing. */
ek_err ek_scratch_open(ek_scratch **out, const ek_model *m, int max_rows, int max_logits, int max_ctx);
void ek_scratch_close(ek_scratch *s);
/* After a forward pass: hidden_size floats, the last hidden state after the final norm of the i-th row that wanted
 * logits, which a drafter reads. Valid until the next pass. */
const float *ek_scratch_hidden(const ek_scratch *s, int i);

/* Writes the keys and values of all rows to their pages and the logits (after the soft cap,
 * before suppress_tokens) of the rows that want them to logits[0], logits[1], … in row order,
 * vocab_size each, ld elements apart.
 *
 * Rows of one sequence are adjacent and have ascending consecutive positions; their pages are
 * present, as are all pages their windows reach back to, with every earlier position written.
 * Rows that want no logits run only the layers that own keys and values, and of the last of
 * these only keys and values.
 * EINVAL (token id out of range, positions not in order, a visible range that is not written)
 * changes nothing. */
ek_err ek_model_forward(const ek_model *m, ek_scratch *s, const ek_kv_memory *kv, const ek_row *rows, int n_rows,
                        const ek_seq *seqs, int n_seqs, float *logits, ptrdiff_t ld);

/* The same for layers [0, end) alone, for a device behind: hidden states of all rows, as they enter layer `end`, to h,
 * hidden_size each, ld elements apart. kv holds what these layers have of a page. end is at most the index of the last
 * layer that owns keys. */
ek_err ek_model_forward_front(const ek_model *m, ek_scratch *s, const ek_kv_memory *kv, const ek_row *rows, int n_rows,
                              const ek_seq *seqs, int n_seqs, int end, float *h, ptrdiff_t ld);

#endif
