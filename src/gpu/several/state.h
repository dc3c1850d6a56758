/* What is open over several devices, and the interfaces between the files of src/gpu/several: executors, the room that
 * devices give, the layers in front of them, rows at borders, and devices that wait for each other. */
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
    int min_microbatch;        /* for tests; 0: as it is */
    uint64_t turns;            /* for tests: steps whose sequences went through the devices in turns */
    uint64_t prompts_ahead;    /* for tests: steps with prompts begun behind others */
    ek_gpu_run *run[EK_RANKS]; /* for tests: by outputs, of the executor that was made last */
    char text[1024];
};

/* The executors over devices: of whole layers on each, and of outputs cut over all. */

ek_executor ek_ranks_by_layers(ek_ranks *r);
ek_executor ek_ranks_by_outputs(ek_ranks *r);

/* Steps of the executor of a device, and of several whose outputs are cut, which take them together. */

/* ek_executor.begin, draw and end of n runs. Behind begin's and draw's error nothing of the step is queued anywhere. */
ek_err ek_gpu_begin(ek_gpu_run *const *x, int n, const ek_step *s);
ek_err ek_gpu_draw_late(ek_gpu_run *const *x, int n, const ek_step *s);
ek_err ek_gpu_end(ek_gpu_run *const *x, int n, const ek_step *s);

/* How much of its memory each of several devices gives. */

/* Bytes of whole pages of which a part of `own` bytes of each kind takes at most `room`. */
double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room);
/* The same of what device i has of pages, of `free` bytes that it has, less what it may not give. */
double ek_ranks_room(const ek_ranks *r, int i, double free);
/* r->place, by ek_fit_plan. gpu: the devices. Sets what they keep. */
ek_err ek_ranks_place(ek_ranks *r, ek_gpu *const *gpu, const double *room, const ek_fit_opts *o);
/* ENOMEM, as ek_ranks_place, where m and what o->beside takes have no room on g, which has no model yet. */
ek_err ek_ranks_check_alone(ek_gpu *g, ek_model *m, const ek_fit_opts *o);
/* ENOMEM with the numbers, where an executor that was opened took more of device i than it may give. */
ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run);

/* The layers in front of the first device, on the CPU: their pages in host memory, and steps from tokens to hidden
 * states. */

typedef struct ek_front ek_front;

/* Layers [0, end) of m, whose weights are packed. page_bytes: what they have of a page, from its begin. */
ek_err ek_front_open(ek_front **out, ek_model *m, int end, const size_t page_bytes[EK_PAGE_KINDS],
                     const ek_executor_sizes *z);
void ek_front_close(ek_front *f); /* NULL is allowed */

/* Hidden states of all rows to h, [n_rows][hidden_size]. */
ek_err ek_front_step(ek_front *f, const ek_step *s, float *h);

/* What the front has of a page. */
uint8_t *ek_front_page(const ek_front *f, ek_layer_kind kind, int32_t page);

/* Where the layers of one device end and those of the next begin: hidden states of all rows are copied, one float row
 * each, and the tokens that a step begun behind another follows go back to the devices that look them up. The copies
 * are queued; devices wait for each other's events, the host for none. */

/* Queued behind a step's lists and in front of its kernels: its rows, and its tokens. The device in front has begun the
 * step, and the one behind has not. */
ek_err ek_gpu_border_take(ek_gpu_run *x, const ek_step *s);

/* Devices that wait for each other: how the host waits for them, and how they are released where one does not come. */

/* Waits until step number `step` has ended on all n. The error of one that failed; then the others were released. */
ek_err ek_gpu_await(ek_gpu_run *const *x, int n, uint64_t step);

/* Ends all that is queued on n devices, whatever of it waits for one that does not come: of steps that were begun whole
 * first, unless a device is broken. What is queued behind that finds exchanges as they were at first. */
void ek_gpu_release(ek_gpu_run *const *x, int n);

/* Gives a step that is about to be queued on n devices a number for its exchanges, which none that was begun before
 * has, ended or not. */
ek_err ek_gpu_number(ek_gpu_run *const *x, int n);

#endif
