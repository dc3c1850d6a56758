/* The plan of a body lists what reading the body needs besides its own bytes. The first reading makes the plan. If
 * nothing was missing, there is no second one. Otherwise the missing data is fetched, or computed on another thread,
 * and the body is read once more. Inside src/serve. */
#ifndef EK_SERVE_PLAN_H
#define EK_SERVE_PLAN_H

#include "base/buf.h"

/* Reset before each reading; the first two fields say what the reading thread may do. */
typedef struct ek_body_plan {
    size_t max_beside; /* bytes besides the body that may be read or decoded here */
    bool may_wait;     /* the thread may run other programs and wait for them */
    /* --- found --- */
    size_t n_sum;    /* bytes of all items so far, read or left out */
    size_t n_beside; /* the same once it is above max_beside, else 0 */
    bool too_large;  /* items were left out: ignore an error of this reading */
    bool no_fetched; /* files of URLs were left out and have to be fetched */
    bool no_program; /* files that another program reads were left out */
    int n_pdfs;      /* PDFs, read or left out: each may take seconds of a processor */
} ek_body_plan;

/* Whether n more stored bytes (or a file that takes as long) may be read now. false: the caller leaves them out. A NULL
 * plan, here and below, allows everything. */
bool ek_plan_reads(ek_body_plan *p, size_t n);
/* Records n more bytes that are read now; beyond max_beside they make the prompt a large job. */
void ek_plan_weigh(ek_body_plan *p, size_t n);
/* Whether another program may run now. false: the caller leaves out the program's text or frames. */
bool ek_plan_runs(ek_body_plan *p);
/* Whether the body has to be read again. */
bool ek_plan_lacks(const ek_body_plan *p);

#endif
