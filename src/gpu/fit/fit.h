/* Where a model lies on devices, the bytes that it takes of each, and the sentences that say so: from sizes alone,
 * before anything is taken. One planner (plan.c) decides for opening, refusing and inspecting alike. */
#ifndef EK_GPU_FIT_FIT_H
#define EK_GPU_FIT_FIT_H

#include "base/buf.h"
#include "cuda/driver.h"
#include "engine/executor.h"
#include "gpu/step/run.h"
#include "gpu/weights/shard.h"
#include "model/model.h"

/* Which layers of a model lie on which device, or that its outputs are cut over all. Layers of a device are adjacent,
 * and devices are in the order of their layers. The CPU, where it takes part, has the first ones: the head and the
 * draws are then a device's.
 *
 * The last layer of each kind that owns keys, and all behind it, lie on the last device, for layers without keys, and
 * drafters, read them. */

enum { EK_RANKS = 16 }; /* devices at most */

/* AUTO: ek_fit_plan chooses. */
typedef enum ek_split { EK_SPLIT_LAYERS, EK_SPLIT_OUTPUTS, EK_SPLIT_AUTO } ek_split;

/* What the CPU has of a model that does not fit: whole layers, or the experts of some. Either way the first ones. */
typedef enum ek_host_part { EK_HOST_CHOSEN, EK_HOST_LAYERS, EK_HOST_EXPERTS } ek_host_part;

typedef struct ek_place {
    ek_split split;       /* not AUTO */
    bool whole_o;         /* outputs are cut, and every device has all of o (gpu/weights/shard.h) */
    int n;                /* devices that have layers; the others were not needed */
    int host_end;         /* layers [0, host_end) are the CPU's */
    int host_experts;     /* of layers [0, host_experts) router and experts are; then host_end is 0 */
    int device[EK_RANKS]; /* which of those given */
    ek_model_share share[EK_RANKS];
    double bytes[EK_RANKS]; /* of weights */
    const char *maker;      /* ek_fit_opts.maker */
    char why[512];          /* AUTO: outputs, which would be faster, are not cut, and why; else "" */
} ek_place;

/* room: bytes that each of n devices may take for all. With `host` the last devices take as many layers as leave a
 * quarter of their room for keys, values and a step, and the CPU the rest. Without, borders lie so that a few replies'
 * step takes no device longer than it must (ek_stage_time), where weights then take half of each one's room at
 * most; else so that the fullest device is as empty as can be. ENOMEM has the numbers. Only sizes of m are read. */
ek_err ek_place_layers(ek_place *out, const ek_model *m, const double *room, int n, bool host);

/* With the CPU: layers, or as few layers' experts as leave a quarter of the devices' room, or of the two what lets the
 * CPU read fewer bytes of weights for a token. EUNSUPPORTED: experts are asked for of a model that has none. */
ek_err ek_place_with_host(ek_place *out, const ek_model *m, const double *room, int n, ek_host_part part);

/* Outputs cut over n devices, of which each has a share of every layer (gpu/weights/shard.h), and all of o where
 * weights take half of each one's room at most. EUNSUPPORTED: so many cannot share them; ENOMEM has the numbers. */
ek_err ek_place_outputs(ek_place *out, const ek_model *m, const double *room, int n);

/* The one or the other, not AUTO; a device alone has whole layers. part: with `host`. */
ek_err ek_place_by(ek_place *out, const ek_model *m, const double *room, int n, ek_split split, bool host,
                   ek_host_part part);

/* How the outputs of the i-th device are cut. */
ek_gpu_shard ek_place_shards(const ek_place *p, int i);

/* Of a device's room what weights take at most. */
double ek_place_share(bool host);

/* "layers 0 to 29 on cuda:0 (weights 30.5 GB), 30 to 59 and the head on cuda:1 (30.7 GB)", or "outputs cut over cuda:0
 * and cuda:1 (weights up to 15.60 GB each)"; ordinal: of the devices given. */
void ek_place_text(char *out, size_t size, const ek_place *p, const int *ordinal);

/* Gives the CPU layers [0, end), if it had fewer, or the experts of so many. The last device keeps the layers that it
 * must have. */
void ek_place_give_host(ek_place *p, const ek_model *m, int end);
void ek_place_give_host_experts(ek_place *p, const ek_model *m, int end);

/* How a model is to lie on several devices, and what is to have room there beside it. */

/* What is to have room beside the weights. */
typedef struct ek_fit_beside {
    ek_executor_sizes step;    /* the largest step; max_rows 0: it is not known. n_pages is not read */
    double kv_bytes;           /* of keys and values of all layers, at least */
    double towers;             /* bytes that towers, and what they encode, take of the first device */
    const ek_drafter *drafter; /* that will be added to ek_ranks_drafting; NULL: none */
} ek_fit_beside;

typedef struct ek_fit_opts {
    int n, ordinal[EK_RANKS]; /* devices, in the order of their layers */
    const char *maker;        /* of their names (ek_cuda_maker); NULL: cuda */
    ek_split split;
    const char *apart; /* by AUTO: which devices do not reach each other's memory; NULL: all do */
    bool host;         /* layers that do not fit are the CPU's; not by outputs */
    double max_bytes;  /* of each device; 0: what is free there */
    ek_host_part part; /* of them, with `host` */
    ek_fit_beside beside;
    bool part_o;     /* for tests: nobody has all of o, whatever room there is */
    int host_layers; /* for tests: with `host`, the CPU has at least so many, or so many layers' experts */
} ek_fit_opts;

/* What a device's layers cost a step: a model of the time, by which layers are dealt and steps cut in microbatches. It
 * decides speed alone, and never a bit.
 *
 * Time is counted in bytes of weights that the device could read meanwhile, and the constants are those of an H200
 * (docs/log/2026-11-27-several-gpus.md#dealt-by-time). */

typedef struct ek_stage {
    struct {
        int layers;
        double dense, experts; /* bytes of weights */
    } part[2];                 /* of all rows; of those that want logits alone (ek_prompt_layers) */
    double head;               /* bytes; 0: another device has it */
    double chosen;             /* of experts, what a row reads; 0: there are none */
} ek_stage;

/* Of layers [first, end), with the head if they are the last. Only sizes of m are read. */
ek_stage ek_stage_of(const ek_model *m, int first, int end);

/* A step of so many rows, of which `wanted` want logits: what is read of the weights, what a chain of kernels takes
 * beside reading, and what rows take. It grows with rows. */
double ek_stage_time(const ek_stage *s, int rows, int wanted);

/* Whether a step of some replies is faster with outputs cut over n devices than with whole layers on each: what it need
 * not read any more on a device, of dense weights, the head and the experts that eight rows choose, takes longer than
 * the exchanges of all layers do. Without experts that is what a reply alone reads. Only sizes of m are read. */
bool ek_stage_prefers_outputs(const ek_model *m, int n);

/* In how many microbatches, max at most, a step goes through n devices, s[0] to s[n - 1], in the least time. In turns,
 * each microbatch of the next step behind its own of this one, the device that takes longest is never idle, if a
 * microbatch is back by then; else it computes all microbatches, and the others the last. 1 unless more gain a
 * twentieth. */
int ek_stage_microbatches(const ek_stage *s, int n, int rows, int wanted, bool turns, int max);

/* What a step's buffers on a device take, and where in its memory each begins. */

void ek_gpu_set_sizes(ek_gpu_run *x, const ek_executor_sizes *z);
/* Sizes of all buffers, of x->z, before any is taken; then where in x->buf.scratch they begin. */
void ek_gpu_size_step(ek_gpu_run *x);
void ek_gpu_lay_out(ek_gpu_run *x);
/* Makes x a run of the drafter of target's device, with its sizes; pages are the target's. */
void ek_gpu_size_drafter(ek_gpu_run *x, ek_gpu_run *target);
/* Entries of ek_gpu_run.ended (ek_cuda_attn_args): one per tile, or of attention in integers per leaf. */
size_t ek_gpu_max_ended(const ek_gpu_run *x);

/* Bytes that a share of a model takes of a device. */
typedef struct ek_gpu_planned {
    double weights, step;         /* without the table: */
    double table;                 /* of per-layer embeddings, where it lies on the device */
    double drafter, drafter_step; /* weights; 0: there is none */
    size_t page_bytes[EK_PAGE_KINDS];
} ek_gpu_planned;

/* Those of a step of an executor of g, with its drafter's. */
double ek_gpu_step_bytes(ek_gpu *g, const ek_executor_sizes *z);
/* The same bytes as of an executor of these sizes, with d, which drafts for m, or NULL, before anything is taken: of
 * models only sizes are read. Errors: a matrix that the kernels do not take. */
ek_err ek_gpu_plan(ek_gpu_planned *out, ek_cuda *c, ek_model *m, const ek_model_share *share, ek_gpu_shard shard,
                   const ek_executor_sizes *z, const ek_drafter *d);

/* What a model takes of devices, from sizes alone, before anything is taken, and how that is said. */

/* Bytes of a device that has a part. */
typedef struct ek_fit_parts {
    double weights, table; /* as they are laid out there; the table of per-layer embeddings, where it lies there */
    double step, keys;     /* of the largest step, a drafter's with it; of keys and values at least; 0: not known */
    double drafter, towers;
} ek_fit_parts;

/* Where m lies on o->n devices that have `room` bytes each for weights: ek_place_by with the options' split. */
ek_err ek_fit_place_by(ek_place *p, const ek_model *m, const double *room, const ek_fit_opts *o);

/* Of part i of p, on device c with `room` bytes: what it takes, with what o->beside says of the rest. */
ek_err ek_fit_keep(ek_fit_parts *out, const ek_place *p, int i, ek_model *m, ek_cuda *c, double room,
                   const ek_fit_opts *o);

/* Where m lies on devices that have room for anything, so that layers take about as long on each; with the CPU, where
 * it has all that it can. o->split is not AUTO. */
ek_err ek_fit_measure(ek_place *out, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const ek_fit_opts *o);

/* Of the bytes of a page what `own` is at most. */
double ek_fit_part_of_pages(const ek_kv_layout *l, const size_t own[EK_PAGE_KINDS]);

/* What lies where, so that a step and all else beside the weights has room: from sizes alone, before anything is taken.
 */

/* Where m lies on o->n devices that have `room` bytes each, by ek_place_by, so that the weights leave what o->beside
 * takes. EK_SPLIT_AUTO: outputs where ek_stage_prefers_outputs, all devices reach each other (o->apart), the CPU has no
 * part (o->host) and the model, and the drafter, can be cut for so many and fit; else layers. kept: of those that have
 * a part, by their number among those given. c: the devices; of m only sizes are read. ENOMEM: ek_fit_refuse says
 * why. */
ek_err ek_fit_plan(ek_place *out, ek_fit_parts *kept, ek_model *m, ek_cuda *const *c, const double *room,
                   const ek_fit_opts *o);

/* Of what weights leave, keys and values get this share, and a step the rest. */
#define EK_GPU_KEYS_SHARE 0.8

/* What keys and values may take of `left` bytes that weights and a drafter's leave. */
double ek_fit_keys_within(const ek_fit_parts *k, double left);

/* Keys and values beside the rest, on the device that holds fewest requests. */
typedef struct ek_fit_requests {
    int n;
    double left, each; /* bytes for all of them, and of one */
} ek_fit_requests;

/* Of requests of ctx tokens, where p and kept are a plan's. */
ek_fit_requests ek_fit_count_requests(const ek_place *p, const ek_fit_parts *kept, const ek_model *m,
                                      const double *room, int ctx);

/* What is said of a model that devices have no room for: what it takes, what they have, and what would hold it. */

/* For o->n devices whose ek_fit_plan gave ENOMEM, with its arguments: ENOMEM with one sentence. */
ek_err ek_fit_refuse(ek_model *m, ek_cuda *const *c, const double *room, const ek_fit_opts *o);

/* --- sentences of bytes (say.c) */

/* What a model takes of devices that have too little, as ek_fit_measure finds it. */
typedef struct ek_fit_need {
    int layers;            /* of the model */
    bool outputs, several; /* outputs are cut; several devices have a part */
    int host_end;          /* with the CPU: layers from here on stay together, and are all that devices must have; or */
    int host_experts;      /* above 0: all but experts is */
    ek_fit_parts max;      /* of each part what the device takes that has most of it */
    double weights, all;   /* of all devices */
    double all_on_one;     /* what `max` sums to */
    int first;             /* layers from here on stay together, and are what has no room: */
    double last;           /* their weights; 0: they are not */
    double share;          /* of room what weights take at most */
    bool fewer;            /* weights alone would have room: less beside them would do */
} ek_fit_need;

/* "the weights need 61.39 GB, a step of 2704 rows 2.93 GB and keys and values 3.58 GB, 67.90 GB in all; cuda:0 has room
 * for 64.42 GB" */
void ek_fit_say_need(ek_buf *out, const ek_fit_need *need, const double *room, const ek_fit_opts *o);

/* What would hold a model that was refused. */
typedef struct ek_fit_advice {
    int layers;         /* of the model */
    int devices;        /* as many like the one that has least; 0: no number would */
    bool by_layers;     /* outputs were asked for, so what follows needs --split layers: */
    bool fit_by_layers; /* the same devices would; else */
    int host_layers;    /* the CPU has so many layers, or */
    bool host_experts;  /* their experts alone; 0: it does not help */
} ek_fit_advice;

/* "2 such devices would hold it (--device cuda:0-1), or --device cuda:0,cpu leaves 14 of 60 layers to the CPU"; nothing
 * if there is no way. */
void ek_fit_say_advice(ek_buf *out, const ek_fit_advice *a, const ek_fit_opts *o);

/* Adds to ek_place_text in `out` what lies beside the weights, of the device that has most of it. ENOMEM, which begins
 * with that text: not one request of ctx tokens has room. */
ek_err ek_fit_say_beside(char *out, size_t size, const ek_fit_opts *o, const ek_fit_parts *kept,
                         const ek_fit_requests *k, int ctx);

/* ENOMEM of weights on n devices, of whose room they get a share: 1, of all layers; else of those from `first` on. */
ek_err ek_fit_fail_weights(int first, double bytes, const double *room, int n, double share);
ek_err ek_fit_fail_experts(double bytes, int n, double share);         /* of all but experts */
ek_err ek_fit_fail_output(int rank, int n, double room, double bytes); /* of a device's part of outputs */
/* Of a device that may give so much. */
ek_err ek_fit_fail_taken(const ek_cuda *c, double room, const ek_fit_parts *k);
ek_err ek_fit_fail_free(double room, const ek_fit_parts *k, bool drafter); /* of one where so much is free */

#endif
