/* A model on several devices, and the interfaces between the files of src/gpu/several: executors, memory of devices,
 * layers on the CPU, rows at borders, and waiting. */
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

/* --- memory of each device */

/* Bytes of whole pages, if the part of `own` bytes per kind takes at most `room`. */
double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room);
/* The bytes of device i's part of pages. A step, a drafter and towers come first, and its limit holds. An executor's
 * `room` is such a number already, so it is no argument. */
double ek_ranks_room(const ek_ranks *r, int i);
/* Sets r->place by ek_fit_plan, and the bytes that the devices keep. gpu: the devices. */
ek_err ek_ranks_place(ek_ranks *r, ek_gpu *const *gpu, const double *room, const ek_fit_opts *o);
/* ENOMEM, as from ek_ranks_place, if m and o->beside do not fit on g, which has no model yet. */
ek_err ek_ranks_check_alone(ek_gpu *g, ek_model *m, const ek_fit_opts *o);
/* ENOMEM with the numbers if an open executor took more of device i than its limit. */
ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run);

/* --- the first layers, on the CPU (the front): their pages in host memory, and steps from tokens to hidden states */

typedef struct ek_front ek_front;

/* Opens layers [0, end) of m, whose weights are packed. page_bytes: their part of a page, at its beginning. */
ek_err ek_front_open(ek_front **out, ek_model *m, int end, const size_t page_bytes[EK_PAGE_KINDS],
                     const ek_executor_sizes *z);
void ek_front_close(ek_front *f); /* NULL is allowed */

/* Computes the hidden states of all rows into h, [n_rows][hidden_size]. */
ek_err ek_front_step(ek_front *f, const ek_step *s, float *h);

/* The front's part of a page. */
uint8_t *ek_front_page(const ek_front *f, ek_layer_kind kind, int32_t page);

/* --- borders between two devices' layers. The hidden states of all rows are copied forward, one float row each. A step
 * that begins before the previous one has ended needs its tokens, which are copied back to the devices that look them
 * up. Copies are queued; devices wait for each other's events, the host for none. */

/* Queues the copies of a step's rows and tokens, after its lists and before its kernels. The device before the border
 * has begun the step, and the device after it has not. */
ek_err ek_gpu_border_take(ek_gpu_run *x, const ek_step *s);

/* --- waiting for devices that wait for each other, and releasing them if one fails */

/* Waits until step number `step` has ended on all n devices. If a device failed, returns its error; the other devices
 * were then released. */
ek_err ek_gpu_await(ek_gpu_run *const *x, int n, uint64_t step);

/* Ends everything queued on n devices, even if it waits for a device that failed. Completely begun steps end first,
 * unless a device is broken. Afterwards exchanges are in their initial state. */
void ek_gpu_release(ek_gpu_run *const *x, int n);

/* Gives a step about to be queued on n devices a number for its exchanges that no earlier step has. */
ek_err ek_gpu_number(ek_gpu_run *const *x, int n);

#endif
