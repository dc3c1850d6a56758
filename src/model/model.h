/* Gemma 4's text decoder: weights bound to shapes, and one forward pass over a batch of rows.
 *
 * A row is one token of one sequence at an absolute position, or a vector in place of a token (a part of an image).
 * Rows of a step are independent except for the keys and values that they read, which all lie in pages. Nothing else of
 * the step reaches a row's arithmetic. */
#ifndef EK_MODEL_MODEL_H
#define EK_MODEL_MODEL_H

#include "base/machine/pool.h"
#include "model/weights/role.h"
#include "model/config/config.h"
#include "ops/kv/kv.h"

typedef struct ek_model ek_model;

typedef struct ek_model_opts {
    ek_kv_format k_format, v_format;
    int kv_start;  /* positions [0, kv_start) use ek_kv_start_format of the two formats; a multiple of EK_SEGMENT; 0:
                      none */
    bool exact;    /* quantised weights are widened to f32, and activations are never quantised */
    bool quantise; /* float matrices are packed as 8-bit codes; not with exact */
    ek_activations activations; /* limbs of activations in quantised products; ignored if exact */
    unsigned cpu;               /* EK_CPU_* */
    ek_pool *pool;              /* borrowed until close; NULL: one thread */
    double memory_limit;        /* maximum bytes of weights; 0: the memory that the system has available */
    const char *packed_dir;     /* folder that keeps packed weights for the next start; NULL: none */
    bool deferred; /* reads no weight at open; ek_model_pack reads them share by share, ek_model_pack_all at once */
} ek_model_opts;

/* Opens the model at dir (any container of model/source/source.h). Logs the needed memory before it is taken; ENOMEM
 * with both numbers if it does not fit. Every tensor is bound by name and checked against the configuration: EFORMAT
 * with tensor and file for a missing, unknown or misshapen tensor or a wrong type. */
ek_err ek_model_open(ek_model **out, const char *dir, const ek_model_opts *opts);

/* A model of the given configuration with random weights, made in memory. bits: 0 for bf16 floats, 4 or 8 for affine
 * codes with groups of 64. For bench and tests: the value of weight i of tensor NAME is a hash of (seed, NAME, i), so
 * two calls make the same model. */
ek_err ek_model_synthetic(ek_model **out, const ek_config *config, int bits, uint64_t seed, const ek_model_opts *opts);

/* The memory that a model takes, or that a deferred model will take. */
typedef struct ek_model_need {
    ek_config config;
    ek_kv_layout layout;
    double weight_bytes;    /* packed weights in memory */
    double mapped_bytes;    /* tables that stay in the file */
    double bytes_per_token; /* bytes of weights that one decoded token reads */
    char numerics_id[160];
} ek_model_need;
void ek_model_measure(ek_model_need *out, const ek_model *m);

/* EINVAL if kv_start is no multiple of EK_SEGMENT, or if it would change neither of the two formats. */
ek_err ek_model_check_start(int kv_start, ek_kv_format k, ek_kv_format v);

void ek_model_close(ek_model *m);

struct ek_rows_wanted; /* model/weights/weights.h */

/* The part of a model on one of several devices: layers [first, end), the vectors outside layers, and with `embed` the
 * table of embeddings, for lookups or logits. Only this device reads its layers' matrices. */
typedef struct ek_model_share {
    int first, end;
    bool embed;
    const struct ek_rows_wanted *rows; /* selects rows of matrices; NULL: all */
    int host_experts; /* layers [first, host_experts) have router and experts on another device; ek_model_pack asks
                         `rows` for them */
    bool quiet;       /* ek_model_pack logs nothing, because it is one call of many */
} ek_model_share;

/* For a deferred model: reads and packs the weights of the share, which replace the share packed before, so host memory
 * holds one share at a time. packed_dir is used only for a share of all weights. */
ek_err ek_model_pack(ek_model *m, const ek_model_share *share);
/* Reads and packs all weights, unless they are packed. */
ek_err ek_model_pack_all(ek_model *m);
bool ek_model_is_deferred(const ek_model *m);
bool ek_model_is_packed(const ek_model *m);    /* all weights are in memory */
bool ek_model_keeps_packed(const ek_model *m); /* deferred, and with a packed_dir */

/* Frees the packed weights of a model that were copied to a device. Tables that stay in the file are still read from
 * there. Scratch memory can no longer be opened, so nothing computes on the CPU. */
void ek_model_release_weights(ek_model *m);
const ek_config *ek_model_config(const ek_model *m);
const ek_kv_layout *ek_model_kv_layout(const ek_model *m);
/* Number of parameters of a model of this configuration, embeddings and experts included. */
uint64_t ek_model_parameters(const ek_config *config);
ek_pool *ek_model_pool(const ek_model *m); /* for work between forward passes; NULL: one thread */
unsigned ek_model_cpu(const ek_model *m);  /* the EK_CPU_* bits for which its kernels were chosen */

/* Bytes of packed weights: all matrices of layer i; all matrices outside layers, with or without the table of
 * embeddings. */
double ek_model_layer_bytes(const ek_model *m, int i);
double ek_model_common_bytes(const ek_model *m, bool embed);
/* Bytes of layer i's router and `experts` of its experts; 0 without experts. */
double ek_model_experts_bytes(const ek_model *m, int i, int experts);
/* Bytes of weights that one decoded token reads: the head included, one row of each embedding table. */
double ek_model_bytes_per_token(const ek_model *m);
/* Multiply-adds of one prompt row over the layers that it runs, and of one row through all layers and the head, without
 * attention over keys. */
double ek_model_macs_prompt_row(const ek_model *m);
double ek_model_macs_logit_row(const ek_model *m);
/* An id of everything besides the tokens that decides bits: formats, exactness, arithmetic version. */
const char *ek_model_numerics_id(const ek_model *m);

/* Positions [lo, end). */
typedef struct ek_range {
    int32_t lo, end;
} ek_range;

typedef struct ek_row {
    int32_t token; /* an id of the vocabulary; ignored if embedding is set */
    int32_t pos;
    int32_t seq; /* index into seqs */
    bool wants_logits;
    /* NULL: the token's own. Otherwise hidden_size floats as they enter the first layer, already scaled; borrowed
     * during the call. Per-layer inputs are then those of the pad token, as in transformers, modeling_gemma4.py. */
    const float *embedding;
    ek_range visible[EK_KIND_COUNT]; /* per kind of layer: the row itself, and positions of its sequence that earlier
                                        steps or this step write */
} ek_row;

/* A row of text: it sees its own position and all before it; in sliding layers `window` positions in all. */
static inline ek_row ek_text_row(int32_t token, int pos, int seq, bool wants_logits, int window)
{
    ek_row row = {.token = token, .pos = pos, .seq = seq, .wants_logits = wants_logits};
    row.visible[EK_FULL] = (ek_range){0, pos + 1};
    row.visible[EK_SLIDING] = (ek_range){pos < window ? 0 : pos - window + 1, pos + 1};
    return row;
}

/* The page tables of a sequence: page[kind][i] is the number of the page of positions [64 i, 64 i + 64), for first <= i
 * < end; other entries may be EK_NO_PAGE. */
typedef struct ek_seq {
    const int32_t *page[EK_KIND_COUNT];
    int first[EK_KIND_COUNT], end[EK_KIND_COUNT];
    int slot; /* slot of the request, below the executor's max_requests, constant while it runs */
} ek_seq;

typedef struct ek_scratch ek_scratch; /* all memory that a step writes, besides pages and logits */

/* Scratch memory for steps of at most max_rows rows, max_logits of them with logits, over contexts of at most max_ctx
 * tokens. A forward pass allocates nothing. */
ek_err ek_scratch_open(ek_scratch **out, const ek_model *m, int max_rows, int max_logits, int max_ctx);
void ek_scratch_close(ek_scratch *s);
/* The last hidden state, after the final norm, of the i-th row that wanted logits: hidden_size floats, for a drafter.
 * Valid until the next pass. */
const float *ek_scratch_hidden(const ek_scratch *s, int i);

/* Writes the keys and values of all rows to their pages, and the logits of the rows that want them (after the soft cap,
 * before suppress_tokens) to logits[0], logits[1], … in row order, vocab_size each, ld elements apart.
 *
 * Rows of one sequence are adjacent, at ascending consecutive positions. Their pages and all pages in their windows are
 * present, with every earlier position written. Rows without logits run only the layers that own keys and values, and
 * of the last of these only keys and values.
 *
 * EINVAL changes nothing: a token id out of range, positions not in order, a visible range that is not written. */
ek_err ek_model_forward(const ek_model *m, ek_scratch *s, const ek_kv_memory *kv, const ek_row *rows, int n_rows,
                        const ek_seq *seqs, int n_seqs, float *logits, ptrdiff_t ld);

/* Runs layers [0, end) alone, for a device that runs the rest: writes the hidden states of all rows, as they enter
 * layer `end`, to h, hidden_size each, ld elements apart. kv holds only these layers' parts of a page. end is at most
 * the index of the last layer that owns keys. */
ek_err ek_model_forward_front(const ek_model *m, ek_scratch *s, const ek_kv_memory *kv, const ek_row *rows, int n_rows,
                              const ek_seq *seqs, int n_seqs, int end, float *h, ptrdiff_t ld);

#endif
