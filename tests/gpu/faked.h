/* Models on the driver of tests/support/fake_cuda.h, whose kernels compute nothing, and two requests to them. */
#ifndef EK_TESTS_GPU_FAKED_H
#define EK_TESTS_GPU_FAKED_H

#include "../support/fake_cuda.h"
#include "engine/trace.h"
#include "gpu/gpu.h"

enum { REPLY = 6 }; /* tokens that each request asks for */

/* The driver, begun anew, with so many devices. */
ek_gpu_driver faked(int devices);

/* A tiny model, with 4 bits where its name begins with Q; its weights are read later if they are deferred. */
ek_model *open_tiny(const char *shape, ek_kv_format k, ek_kv_format v, bool deferred);
/* Of m; centroids 0: a dense head. */
ek_drafter *open_drafter(const ek_model *m, int centroids);

ek_err try_two(ek_engine *e, ek_trace out[2], bool digests); /* digests: so that steps begin ahead */
/* Both have their whole replies. */
void check_replies(ek_engine *e, bool digests);

/* Two requests while calls may fail, from call *from of the driver to call *to; after an error that stays (*refused) no
 * further one is accepted. */
void ask_failing(ek_engine *e, ek_trace out[2], bool *refused, int *from, int *to);
/* Each of them has its whole reply, or ended with a sentence; whether one did. */
bool check_failing(ek_trace out[2]);
/* Of an opening that failed: it says why in one line. */
void check_refusal(void);

/* What is read of a page is what a page that it is written to holds, and its neighbours stay. */
void check_pages(ek_executor *on);

#endif
