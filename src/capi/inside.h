/* The library for the program's own commands (cli/run/ids.c): they open an engine by options that evenkeel.h does not
 * have (open/opts.h), and ask it by evenkeel.h, so that what programs over the library run is run every day. Lines of
 * the engine's log are the program's own. */
#ifndef EK_CAPI_INSIDE_H
#define EK_CAPI_INSIDE_H

#include <evenkeel.h>

#include "open/open.h"

/* Opens what the function opens into *m, which is zeroed, and starts its engine. The function's errors; then *m is
 * nothing, and *out NULL. evenkeel_close closes it. Without a tokenizer the events of tokens have no text. */
typedef ek_err capi_open_fn(void *arg, ek_opened *m);
ek_err capi_open(evenkeel **out, capi_open_fn *open, void *arg);
const ek_opened *capi_opened(const evenkeel *e);

/* evenkeel_generate with pictures and sounds, whose tokens hold their places; borrowed, with what they refer to. Errors
 * are those of ek_engine_submit, in its words. */
ek_err capi_generate(evenkeel_queue *queue, const evenkeel_request *request, const ek_part *part, int n_parts,
                     evenkeel_id *id);

#endif
