/* The plan of a body: what reading it needs beside its own bytes. The first reading finds it. Where nothing was missing
 * that reading is all; else what is missing is fetched, or waited for on another thread, and the body is read once more
 * with everything there. Inside src/serve. */
#ifndef EK_SERVE_PLAN_H
#define EK_SERVE_PLAN_H

#include "base/buf.h"

/* Set anew before each reading: where it takes place, and nothing found yet. */
typedef struct ek_body_plan {
    size_t max_beside; /* bytes beside the body that may be read or decoded here */
    bool may_wait;     /* other programs may run here, and be waited for */
    /* --- found --- */
    size_t n_beside; /* of what has more than max_beside bytes, the largest; 0: nothing has */
    bool too_large;  /* some of these were left out: an error of this reading means nothing */
    bool no_fetched; /* files of URLs were left out: they are to be fetched */
    bool no_program; /* files were left out that another program reads */
    int n_pdfs;      /* of them, or read: each may take EK_PDF_CPU_SECONDS */
} ek_body_plan;

/* Whether n stored bytes, or bytes of a file that takes as long, are read now. false: the caller leaves them out. NULL
 * for a plan, here and below: everything is read at once. */
bool ek_plan_reads(ek_body_plan *p, size_t n);
/* n bytes that are read now make the prompt a large job. */
void ek_plan_weigh(ek_body_plan *p, size_t n);
/* Whether another program may run now. false: the caller leaves out its text or frames. */
bool ek_plan_runs(ek_body_plan *p);
/* Is the body to be read again? */
bool ek_plan_lacks(const ek_body_plan *p);

#endif
