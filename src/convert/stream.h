/* The weights of a layout to their places in the files, by all threads, in pieces. */
#ifndef EK_CONVERT_STREAM_H
#define EK_CONVERT_STREAM_H

#include <signal.h>

#include "base/machine/pool.h"
#include "convert/layout.h"
#include "convert/outdir.h"

/* Memory: below 2 MiB per thread, and 40 bytes per 262144 weights. */
typedef struct ek_stream_opts {
    bool search; /* for better scales */
    uint64_t seed;
    ek_pool *pool;
    const volatile sig_atomic_t *cancel;
} ek_stream_opts;

/* Every plane of l has its file and its place. EFORMAT, with tensor and row, for a value that the format cannot hold;
 * ECANCELLED; what ek_outdir_write says. */
ek_err ek_stream(const ek_layout *l, ek_outdir *to, const ek_stream_opts *o);

#endif
