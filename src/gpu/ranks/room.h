/* How much of its memory each of several devices gives. */
#ifndef EK_GPU_RANKS_ROOM_H
#define EK_GPU_RANKS_ROOM_H

#include "gpu/ranks/opts.h"
#include "gpu/ranks/state.h"
#include "gpu/step/run.h"

/* Bytes of whole pages of which a part of `own` bytes of each kind takes at most `room`. */
double ek_ranks_pages_for(const ek_ranks *r, const size_t own[EK_PAGE_KINDS], double room);
/* The same of what device i has of pages, of `free` bytes that it has, less what it may not give. */
double ek_ranks_room(const ek_ranks *r, int i, double free);
/* r->place, by ek_ranks_plan. gpu: the devices. Sets what they keep. */
ek_err ek_ranks_place(ek_ranks *r, ek_gpu *const *gpu, const double *room, const ek_ranks_opts *o);
/* ENOMEM, as ek_ranks_place, where m and what o->beside takes have no room on g, which has no model yet. */
ek_err ek_ranks_check_alone(ek_gpu *g, ek_model *m, const ek_ranks_opts *o);
/* ENOMEM with the numbers, where an executor that was opened took more of device i than it may give. */
ek_err ek_ranks_check_taken(const ek_ranks *r, int i, const ek_gpu_run *run);

#endif
