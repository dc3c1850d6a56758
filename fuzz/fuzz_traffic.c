/* A stream of events from another server. Properties: how the bytes are cut changes nothing but times; counts agree
 * with each other; memory stays below a line's maximum. */
#include <stdint.h>
#include <string.h>

#include "base/hash/rng.h"
#include "cli/bench/traffic_reply.h"

static void check(const ek_traffic_reply *r)
{
    if (r->n_gaps != (r->pieces ? r->pieces - 1 : 0)) __builtin_trap();
    if ((r->pieces == 0) != (r->first == 0)) __builtin_trap();
    if (r->line.len > EK_TRAFFIC_LINE) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_traffic_reply whole = {.begun = 1}, cut = {.begun = 1};
    ek_traffic_reply_feed(&whole, (const char *)data, n, 2);
    check(&whole);
    for (size_t i = 0; i < n;) {
        size_t len = 1 + ek_mix64(n + i) % 7;
        if (len > n - i) len = n - i;
        ek_traffic_reply_feed(&cut, (const char *)data + i, len, 2);
        i += len;
    }
    check(&cut);
    if (whole.text != cut.text || whole.pieces != cut.pieces || whole.tokens != cut.tokens || whole.done != cut.done ||
        strcmp(whole.error, cut.error))
        __builtin_trap();
    ek_traffic_reply_fini(&whole);
    ek_traffic_reply_fini(&cut);
    return 0;
}
