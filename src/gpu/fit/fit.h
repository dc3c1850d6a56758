/* The placement of a model on devices, its bytes on each, and the sentences about them: from sizes alone, before memory
 * is taken. One planner (plan.c) serves opening, refusing and inspecting. */
#ifndef EK_GPU_FIT_FIT_H
#define EK_GPU_FIT_FIT_H

#include "base/buf.h"
#include "cuda/driver.h"
#include "engine/executor.h"
#include "gpu/step/run.h"
#include "gpu/weights/shard.h"
#include "model/model.h"

/* --- placement: which layers lie on which device, or that outputs are divided over all devices. A device's layers are
 * adjacent, and devices are in the order of their layers. If the CPU takes part, it has the first layers, and a device
 * has the head and the draws.
 *
 * The last layer of each kind that owns keys, and all layers after it, lie on the last device, because layers without
 * keys and drafters read them. */

enum { EK_RANKS = 16 }; /* maximum number of devices */

/* AUTO: ek_fit_plan chooses. */
typedef enum ek_split { EK_SPLIT_LAYERS, EK_SPLIT_OUTPUTS, EK_SPLIT_AUTO } ek_split;

/* The CPU's part of a model that does not fit: the first whole layers, or the first layers' experts. */
typedef enum ek_host_part { EK_HOST_CHOSEN, EK_HOST_LAYERS, EK_HOST_EXPERTS } ek_host_part;

typedef struct ek_place {
    ek_split split;       /* not AUTO */
    bool whole_o;         /* by outputs: every device has all of o (gpu/weights/shard.h) */
    int n;                /* devices with layers; the others were not needed */
    int host_end;         /* layers [0, host_end) are the CPU's */
    int host_experts;     /* router and experts of layers [0, host_experts) are the CPU's; then host_end is 0 */
    int device[EK_RANKS]; /* indices of the given devices */
    ek_model_share share[EK_RANKS];
    double bytes[EK_RANKS]; /* of weights */
    const char *maker;      /* ek_fit_opts.maker */
    char why[512];          /* AUTO: the reason against outputs if they would be faster; else "" */
} ek_place;

/* The i-th device's part of outputs. */
ek_gpu_shard ek_place_shards(const ek_place *p, int i);

/* The maximum fraction of a device's room for weights. */
double ek_place_share(bool host);

/* "layers 0 to 29 on cuda:0 (weights 30.5 GB), 30 to 59 and the head on cuda:1 (30.7 GB)", or "outputs cut over cuda:0
 * and cuda:1 (weights up to 15.60 GB each)". ordinal: the given devices' numbers. */
void ek_place_text(char *out, size_t size, const ek_place *p, const int *ordinal);

/* --- options of a placement */

/* Memory needed besides the weights. */
typedef struct ek_fit_beside {
    ek_executor_sizes step;    /* the largest step; max_rows 0: unknown. n_pages is not read */
    double kv_bytes;           /* minimum for keys and values of all layers */
    double towers;             /* for towers and their largest content, on the first device */
    const ek_drafter *drafter; /* will be added to ek_ranks_drafting; NULL: none */
} ek_fit_beside;

typedef struct ek_fit_opts {
    int n, ordinal[EK_RANKS]; /* devices, in the order of their layers */
    const char *maker;        /* of their names (ek_cuda_maker); NULL: cuda */
    ek_split split;
    const char *apart; /* for AUTO: names devices that do not reach each other's memory; NULL: all do */
    bool host;         /* the CPU takes layers that do not fit; not by outputs */
    double max_bytes;  /* maximum per device; 0: all free memory */
    ek_host_part part; /* with `host`: the CPU's part */
    ek_fit_beside beside;
    bool part_o;     /* for tests: no device has all of o */
    int host_layers; /* for tests: with `host`, the CPU's minimum of layers, or of layers' experts */
} ek_fit_opts;

/* Places the layers or outputs of m by o->split, which is not AUTO, on o->n devices with `room` usable bytes each; a
 * single device has whole layers. Reads only sizes of m. ENOMEM has the numbers.
 *
 * Layers: borders minimise the longest time of a device in a step of a few replies (ek_stage_time), if weights then
 * take at most half of each device's room; otherwise they make the fullest device as empty as possible.
 *
 * With o->host the CPU has the layers that do not fit, or as few layers' experts as leave a quarter of the devices'
 * room for keys, values and a step; EK_HOST_CHOSEN takes the one for which the CPU reads fewer bytes of weights per
 * token. Of layers the last devices take as many as leave that quarter. EUNSUPPORTED: experts of a model without any.
 *
 * Outputs: each device has a part of every layer (gpu/weights/shard.h), and all of o if weights take at most half of
 * each device's room. EUNSUPPORTED: outputs cannot be divided by o->n. */
ek_err ek_place_by(ek_place *out, const ek_model *m, const double *room, const ek_fit_opts *o);

/* --- a model of a step's time on a device's layers, which places layers and divides steps into microbatches. It
 * decides only speed.
 *
 * The unit of time is a byte of weights that the device reads; constants are those of an H200
 * (docs/log/2026-11-27-several-gpus.md#dealt-by-time). */

typedef struct ek_stage {
    struct {
        int layers;
        double dense, experts; /* bytes of weights */
    } part[2];                 /* layers for all rows; layers for rows with logits only (ek_prompt_layers) */
    double head;               /* bytes; 0: another device has it */
    double chosen;             /* the fraction of experts that a row reads; 0: there are none */
} ek_stage;

/* The stage of layers [first, end), with the head if they are the last. Reads only sizes of m. */
ek_stage ek_stage_of(const ek_model *m, int first, int end);

/* The time of a step of `rows` rows, `wanted` of them with logits: reading weights, the chain of kernels, and the rows.
 * It grows with rows. */
double ek_stage_time(const ek_stage *s, int rows, int wanted);

/* Whether outputs over n devices make a step of a few replies faster than whole layers: the reads that a device saves
 * (of dense weights, the head, and the experts of eight rows) take longer than the exchanges of all layers. Without
 * experts these are a single reply's reads. Reads only sizes of m. */
bool ek_stage_prefers_outputs(const ek_model *m, int n);

/* The number of microbatches, at most max, with which a step passes n devices, s[0] to s[n - 1], in the least time.
 * turns: a microbatch of the next step follows its own of this step, so the slowest device is never idle if
 * microbatches return in time. Otherwise the time is the slowest device's for all microbatches, and the other devices'
 * for the last. 1 unless more gain a twentieth. */
int ek_stage_microbatches(const ek_stage *s, int n, int rows, int wanted, bool turns, int max);

/* --- sizes and offsets of a step's buffers on a device */

void ek_gpu_set_sizes(ek_gpu_run *x, const ek_executor_sizes *z);
/* Compute the sizes of all buffers from x->z, before any is taken; then their offsets in x->buf.scratch. */
void ek_gpu_size_step(ek_gpu_run *x);
void ek_gpu_lay_out(ek_gpu_run *x);
/* Makes x a run of the drafter on target's device, with target's sizes and pages. */
void ek_gpu_size_drafter(ek_gpu_run *x, ek_gpu_run *target);
/* Entries of ek_gpu_run.ended (ek_cuda_attn_args): one per tile, or of attention in integers per leaf. */
size_t ek_gpu_max_ended(const ek_gpu_run *x);

/* The bytes of a step of an executor of g, its drafter's included. */
double ek_gpu_step_bytes(ek_gpu *g, const ek_executor_sizes *z);
/* --- a model's bytes on devices, from sizes alone */

/* Bytes of the parts on a device. */
typedef struct ek_fit_parts {
    double weights, table; /* in the device's layout; the table of per-layer embeddings if it lies there */
    double step, keys;     /* the largest step, a drafter's included; minimum of keys and values; 0: unknown */
    double drafter, towers;
} ek_fit_parts;

/* Plans the bytes of an executor of these sizes, with m's drafter d (may be NULL), before memory is taken, and those of
 * its part of pages; keys and towers stay 0. Reads only sizes of the models. Errors: a matrix that the kernels do not
 * support. */
ek_err ek_gpu_plan(ek_fit_parts *out, size_t page_bytes[EK_PAGE_KINDS], ek_cuda *c, ek_model *m,
                   const ek_model_share *share, ek_gpu_shard shard, const ek_executor_sizes *z, const ek_drafter *d);

/* The maximum fraction of a page's bytes that `own` is. */
double ek_fit_part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS]);

/* Plans the placement of m on o->n devices with `room` bytes each, by ek_place_by, so that the weights leave room for
 * o->beside. EK_SPLIT_AUTO takes outputs if ek_stage_prefers_outputs, all devices reach each other (o->apart), the CPU
 * has no part (o->host), and model and drafter can be divided so and fit; otherwise layers. kept: bytes on each device,
 * by index among the given ones. c: the devices. Reads only sizes of m. ENOMEM: ek_fit_refuse has the sentence. */
ek_err ek_fit_plan(ek_place *out, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const double *room,
                   const ek_fit_opts *o);

/* The fraction of memory left by the weights for keys and values; a step gets the rest. */
#define EK_GPU_KEYS_SHARE 0.8

/* Bytes for keys and values out of `left` bytes beside the weights, a drafter's included. */
double ek_fit_keys_within(const ek_fit_parts *k, double left);

/* Room for keys and values on the device that holds the fewest requests. */
typedef struct ek_fit_requests {
    int n;
    double left, each; /* bytes for all of them, and of one */
} ek_fit_requests;

/* Counts requests of ctx tokens; p and kept are a plan's. */
ek_fit_requests ek_fit_count_requests(const ek_place *p, const ek_fit_parts *kept, const ek_model *m,
                                      const double *room, int ctx);

/* After ENOMEM of ek_fit_plan, with the same arguments: returns ENOMEM with one sentence about the model's bytes, the
 * devices' room and a remedy. */
ek_err ek_fit_refuse(ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o);

/* --- sentences of bytes (say.c) */

/* A model's needs on devices with too little room. */
typedef struct ek_fit_need {
    int layers;            /* of the model */
    bool outputs, several; /* by outputs; several devices have a part */
    int host_end;          /* with the CPU: devices must have layers from here on, which stay together */
    int host_experts;      /* above 0: devices must have everything except experts */
    ek_fit_parts max;      /* per part, the bytes of the device with the most */
    double weights, all;   /* of all devices */
    double all_on_one;     /* the sum of `max` */
    int first;             /* layers from here on stay together and have no room */
    double last;           /* the weights of these layers; 0: they do fit */
    double share;          /* maximum fraction of room for weights */
    bool fewer;            /* the weights alone fit, so a smaller remainder would help */
} ek_fit_need;

/* "the weights need 61.39 GB, a step of 2704 rows 2.93 GB and keys and values 3.58 GB, 67.90 GB in all; cuda:0 has room
 * for 64.42 GB" */
void ek_fit_say_need(ek_buf *out, const ek_fit_need *need, const double *room, const ek_fit_opts *o);

/* Remedies for a refused model. */
typedef struct ek_fit_advice {
    int layers;         /* of the model */
    int devices;        /* sufficient number of devices like the smallest one; 0: no number suffices */
    bool by_layers;     /* outputs were requested, so the remedies below need --split layers */
    bool fit_by_layers; /* the same devices suffice by layers */
    int host_layers;    /* number of layers for the CPU; 0: that does not help */
    bool host_experts;  /* only these layers' experts */
} ek_fit_advice;

/* "2 such devices would hold it (--device cuda:0-1), or --device cuda:0,cpu leaves 14 of 60 layers to the CPU"; nothing
 * if there is no way. */
void ek_fit_say_advice(ek_buf *out, const ek_fit_advice *a, const ek_fit_opts *o);

/* Appends to ek_place_text in `out` the memory besides the weights, of the device with the most. ENOMEM, beginning with
 * that text: not a single request of ctx tokens has room. */
ek_err ek_fit_say_beside(char *out, size_t size, const ek_fit_opts *o, const ek_fit_parts *kept,
                         const ek_fit_requests *k, int ctx);

/* --- sentences of ENOMEM */

/* Weights on n devices, limited to a fraction of the room: of all layers (share 1), else of layers from `first` on. */
ek_err ek_fit_fail_weights(int first, double bytes, const double *room, int n, double share);
ek_err ek_fit_fail_experts(double bytes, int n, double share);         /* everything except experts */
ek_err ek_fit_fail_output(int rank, int n, double room, double bytes); /* a device's part of outputs */
/* A device limited to `room` bytes. */
ek_err ek_fit_fail_taken(const ek_cuda *c, double room, const ek_fit_parts *k);
ek_err ek_fit_fail_free(double room, const ek_fit_parts *k, bool drafter); /* a device with `room` free bytes */

#endif
