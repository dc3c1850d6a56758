/* The library for the program's own commands (cli/run/ids.c): they open an engine with options that evenkeel.h lacks
 * (open/opts.h), and use it through evenkeel.h, so that the library's code runs every day. The engine's log lines are
 * the program's own. */
#ifndef EK_CAPI_INSIDE_H
#define EK_CAPI_INSIDE_H

#include <evenkeel.h>

#include "open/open.h"

/* capi_open calls open with *m zeroed, and starts the engine of *m. Errors of open, which then leaves *m empty; *out is
 * NULL. evenkeel_close closes it. Without a tokenizer the events of tokens have no text. */
typedef ek_err capi_open_fn(void *arg, ek_opened *m);
ek_err capi_open(evenkeel **out, capi_open_fn *open, void *arg);
const ek_opened *capi_opened(const evenkeel *e);

/* evenkeel_generate with pictures and sounds, whose soft tokens are in the prompt; borrowed, with their contents.
 * Errors of ek_engine_submit, in its words. */
ek_err capi_generate(evenkeel_queue *queue, const evenkeel_request *request, const ek_part *part, int n_parts,
                     evenkeel_id *id);

#endif
