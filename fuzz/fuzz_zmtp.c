/* What a peer sends over ZMTP, from bytes. Properties: where the bytes are cut makes no difference to what comes of
 * them, to the answers, and to the end; nothing that is taken stays in the buffer, and a refused peer has a reason;
 * what this side writes is taken by the same reader as it was meant. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "serve/events/peers.h"

typedef struct outcome {
    ek_buf news; /* a byte for each, a request with its number behind it */
    ek_buf out;
    ek_buf why; /* it was refused */
} outcome;

static void fini(outcome *o)
{
    ek_buf_fini(&o->news), ek_buf_fini(&o->out), ek_buf_fini(&o->why);
}

/* Takes what is there, as far as it goes. False: refused. */
static bool take(ek_zmtp *z, outcome *o)
{
    for (;;) {
        const size_t before = z->n;
        ek_zmtp_news news;
        if (ek_zmtp_next(z, &news, &o->out)) {
            ek_buf_str(&o->why, ek_err_text());
            if (o->why.len == 0) __builtin_trap();
            return false;
        }
        if (z->n > before) __builtin_trap();
        if (news == EK_ZMTP_NOTHING) return true;
        if (z->n == before) __builtin_trap(); /* it would never end */
        ek_buf_char(&o->news, (char)('0' + news));
        if (news == EK_ZMTP_REQUEST) ek_buf_add(&o->news, z->number, sizeof z->number);
    }
}

/* Pieces of `piece` bytes, or by the seed where piece is 0; never more than there is room for. */
static void run(outcome *o, bool router, const uint8_t *data, size_t n, size_t piece, uint64_t seed)
{
    ek_zmtp *z = ek_alloc(sizeof *z); /* with ends that a sanitizer sees */
    *z = (ek_zmtp){.router = router, .topic = "kv-events"};
    for (size_t at = 0; at < n;) {
        size_t k = piece ? piece : 1 + (seed = ek_mix64(seed)) % 97;
        if (k > n - at) k = n - at;
        if (k > sizeof z->in - z->n) k = sizeof z->in - z->n;
        if (k == 0) __builtin_trap(); /* a whole frame fits, so it was taken */
        memcpy(z->in + z->n, data + at, k);
        z->n += k, at += k;
        if (!take(z, o)) break;
    }
    free(z);
}

static bool same(const ek_buf *a, const ek_buf *b)
{
    return a->len == b->len && (a->len == 0 || !memcmp(a->data, b->data, a->len));
}

static void cut_anywhere(bool router, const uint8_t *data, size_t n, uint64_t seed)
{
    outcome whole = {0};
    run(&whole, router, data, n, EK_ZMTP_ROOM, 0);
    for (int i = 0; i < 4; i++) {
        outcome cut = {0};
        run(&cut, router, data, n, i == 0 ? 1 : i == 1 ? 7 : 0, seed + (uint64_t)i);
        if (!same(&whole.news, &cut.news) || !same(&whole.out, &cut.out) || !same(&whole.why, &cut.why))
            __builtin_trap();
        fini(&cut);
    }
    fini(&whole);
}

/* A peer that greets as this side does and then sends two frames of a message: a router reads a request if it is one.
 */
static void written_and_read(const uint8_t *data, size_t n)
{
    static const char asks[] = "\5READY\13Socket-Type\0\0\0\6DEALER";
    if (n > EK_ZMTP_FRAME_MAX) n = EK_ZMTP_FRAME_MAX;
    ek_buf text = {0};
    outcome o = {0};
    ek_zmtp_greet(&text, true);
    text.len = 64; /* its READY is a router's */
    ek_buf_char(&text, 4), ek_buf_char(&text, sizeof asks - 1);
    ek_buf_add(&text, asks, sizeof asks - 1);
    ek_zmtp_frame(&text, "", 0, true);
    ek_zmtp_frame(&text, data, n, false);
    run(&o, true, (const uint8_t *)text.data, text.len, EK_ZMTP_ROOM, 0);
    const char want[] = {'0' + EK_ZMTP_READY, '0' + EK_ZMTP_OTHER,
                         '0' + (n == 8 ? EK_ZMTP_REQUEST : EK_ZMTP_BAD_REQUEST)};
    if (o.why.len || o.news.len != (n == 8 ? 11 : 3) || memcmp(o.news.data, want, 3)) __builtin_trap();
    if (n == 8 && memcmp(o.news.data + 3, data, 8)) __builtin_trap();
    ek_buf_fini(&text);
    fini(&o);
}

/* The first byte: whether a good greeting and READY stand before the others. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    const bool router = data[0] & 1;
    const char *const ready = router ? "\4\34\5READY\13Socket-Type\0\0\0\6DEALER"
                                     : "\4\31\5READY\13Socket-Type\0\0\0\3SUB";
    ek_buf text = {0};
    if (data[0] & 2) {
        ek_zmtp_greet(&text, router);
        text.len = 64;
        ek_buf_add(&text, ready, 2 + (size_t)ready[1]);
    }
    ek_buf_add(&text, data + 1, n - 1);
    if (text.len) cut_anywhere(router, (const uint8_t *)text.data, text.len, data[0]);
    written_and_read(data + 1, n - 1);
    ek_buf_fini(&text);
    return 0;
}
