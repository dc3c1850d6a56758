/* A model on several devices, and the interfaces between the files of src/gpu/several: executors, microbatches,
 * memory of devices, and waiting. */
#ifndef EK_GPU_SEVERAL_STATE_H
#define EK_GPU_SEVERAL_STATE_H

#include "engine/executor.h"
#include "gpu/fit/fit.h"
#include "gpu/gpu.h"
#include "gpu/step/run.h"

typedef struct ek_ranks ek_ranks;

struct ek_ranks {
    ek_model *m;
    ek_place place;
    int n; /* devices */
    ek_gpu *gpu[EK_RANKS];
    double max_bytes;
    int min_microbatch;        /* for tests; 0: the default */
    uint64_t turns;            /* for tests: steps whose sequences went through the devices in turns */
    uint64_t prompts_ahead;    /* for tests: steps with prompts begun before the previous step ended */
    ek_gpu_run *run[EK_RANKS]; /* for tests: the latest executor by outputs */
    char text[1024];
};

/* --- executors by layers (whole layers per device) and by outputs (a part of every layer per device) */

ek_executor ek_ranks_by_layers(ek_ranks *r);
ek_executor ek_ranks_by_outputs(ek_ranks *r);

/* --- steps of one device, or of several that share outputs and take a step together */

/* ek_executor.begin, draw and end for n runs. After an error of begin or draw nothing of the step is queued anywhere.
 */
ek_err ek_gpu_begin(ek_gpu_run *const *x, int n, const ek_step *s);
ek_err ek_gpu_draw_late(ek_gpu_run *const *x, int n, const ek_step *s);
ek_err ek_gpu_end(ek_gpu_run *const *x, int n, const ek_step *s);

/* --- a step in microbatches, so that devices compute at the same time: while the second device computes a microbatch,
 * the first computes the next microbatch. Each microbatch is a step of its own. This changes no bit, as chunks change
 * none.
 *
 * A step with many prompt rows has its rows with logits, and all draws, in the last microbatch. A step of replies begun
 * behind another step has some sequences in each microbatch, with their own draws and rows of logits. Such a microbatch
 * waits only for the draws that it follows, so the first device has a microbatch while the last one has the next
 * microbatch of the step in front. */

enum { EK_MICROBATCHES = 4 }; /* maximum */

typedef struct ek_microbatches {
    /* [max_rows]: the rows of all microbatches, one after the other; unused with `turns`, because rows then stay in
     * place. */
    ek_row *row;
    int *follows; /* [max_rows]: likewise, for a step begun after another */
    int first[EK_MICROBATCHES + 1];
    int n;
    bool turns; /* row i has draw i and the i-th row of logits, so each microbatch has its own */
    /* For a step begun after another: the microbatch of that step whose end completes the draws that microbatch i
     * follows. */
    int after[EK_MICROBATCHES];
} ek_microbatches;

void ek_microbatches_open(ek_microbatches *p, int max_rows);
void ek_microbatches_close(ek_microbatches *p);

/* Divides s into at most max microbatches of similar numbers of rows, each at least `min`. One microbatch if too few
 * rows can go first: rows that no earlier row of their sequence's other rows needs, and that want no logits. front: the
 * step before, if s is begun after it; rows of the last microbatch may follow its draws; NULL: none. */
void ek_microbatches_divide(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min);
/* Divides s, which follows draws of the step of `front`, into at most max microbatches of similar numbers of sequences,
 * each at least `min`; one if there are too few, or if sequences have more rows than draws in `front`, or another
 * order. A sequence stays in its microbatch while microbatches have similar sizes. */
void ek_microbatches_follow(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min);
/* Microbatch i of s; borrows from both. */
ek_step ek_microbatches_step(const ek_microbatches *p, const ek_step *s, int i);
/* The microbatch with the step's i-th row of logits. */
int ek_microbatches_with(const ek_microbatches *p, int i);

/* --- memory of each device */

/* Bytes of whole pages, if the part of `own` bytes per kind takes at most `room`. */
double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room);
/* The bytes of device i's part of pages. A step, a drafter and towers come first, and its limit holds. An executor's
 * `room` is such a number already, so it is no argument. */
double ek_ranks_room(const ek_ranks *r, int i);
/* ENOMEM with the numbers and a remedy if m and o->beside do not fit on g, which has no model yet. */
ek_err ek_ranks_check_alone(ek_gpu *g, ek_model *m, const ek_fit_opts *o);
/* ENOMEM with the numbers if an open executor took more of device i than its limit. */
ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run);

/* --- waiting for devices that wait for each other, and releasing them if one fails */

/* Waits until step number `step` has ended on all n devices. If a device failed, returns its error; the other devices
 * were then released. */
ek_err ek_gpu_await(ek_gpu_run *const *x, int n, uint64_t step);

/* Ends everything queued on n devices, even if it waits for a device that failed. Completely begun steps end first,
 * unless a device is broken. Afterwards exchanges are in their initial state. */
void ek_gpu_release(ek_gpu_run *const *x, int n);

/* After an error outside of steps: no step begins any more. why: the reason, unless the device is broken. */
void ek_gpu_fail_later(ek_gpu_run *x, ek_err err, const char *why);

/* Gives a step about to be queued on n devices a number for its exchanges that no earlier step has. */
ek_err ek_gpu_number(ek_gpu_run *const *x, int n);

#endif
