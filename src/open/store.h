/* Where pages of the prefix cache are kept besides the pool. Inside src/open. */
#ifndef EK_OPEN_STORE_H
#define EK_OPEN_STORE_H

#include "open/open.h"

/* Opens what o asks for: host memory, disk and server, in this order; *any is false if nothing is. The store is the
 * caller's to hand to the engine, which closes it. */
ek_err ek_open_store(ek_store_backend *out, bool *any, ek_opened *m, const ek_open_opts *o, bool on_device);

#endif
