/* One reply of an OpenAI-compatible server, read as a stream of events and timed. */
#ifndef EK_CLI_TRAFFIC_REPLY_H
#define EK_CLI_TRAFFIC_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { EK_TRAFFIC_LINE = 1 << 20 }; /* bytes of an event's longest line, and of a refusal that is kept */

typedef struct ek_traffic_reply {
    double begun, first, last; /* seconds of ek_now; first is 0 until a piece of text came */
    double *gap;               /* seconds between pieces; owned */
    int n_gaps, cap_gaps;
    int pieces;
    int64_t prompt_tokens, tokens; /* of `usage`; 0 until it came */
    uint64_t text;                 /* hash of all text so far */
    bool done;                     /* [DONE] came */
    char error[200];               /* "" while all is well */
    ek_buf line;                   /* what came after the last end of line */
} ek_traffic_reply;

/* Zero-initialise, set begun. Takes n bytes of a body of server-sent events that arrived at `now`. A line that is too
 * long, an event that is not JSON and an `error` in an event set `error`; what follows is then ignored. */
void ek_traffic_reply_feed(ek_traffic_reply *r, const char *bytes, size_t n, double now);
void ek_traffic_reply_fini(ek_traffic_reply *r);

#endif
