/* Addresses of events and requests for a replay, from bytes. Properties: an address that is taken ends in a port, has
 * no byte that ZeroMQ would read otherwise, and is taken again as it was made; a request is its three frames and
 * nothing else; whatever is asked of a history, numbers follow each other and the answer ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/events/events.h"
#include "serve/events/replay.h"

static void check_address(const uint8_t *data, size_t n)
{
    ek_events_address a, again;
    char *text = ek_alloc(n + 2);
    memcpy(text, data, n);
    if (!ek_events_address_parse(&a, "--kv-events", text, n % 2)) {
        if (strncmp(a.endpoint, "tcp://", 6) != 0 || strpbrk(a.endpoint + 6, " /;,@\n") || !strrchr(a.endpoint, ':'))
            __builtin_trap();
        const char *port = strrchr(a.endpoint, ':') + 1;
        if (!strcmp(port, "*")) {
            if (!a.bind) __builtin_trap();
        } else if (ek_events_address_parse(&again, "--kv-events", a.endpoint, a.bind) ||
                   strcmp(again.endpoint, a.endpoint) != 0) {
            __builtin_trap();
        }
    }
    free(text);
}

#ifdef EK_HAVE_EVENTS

typedef struct reader {
    uint64_t want;
    int n;
    bool ended;
    const uint8_t *late; /* who is slow, by these bytes */
    size_t n_late;
} reader;

static ek_replay_sent take(void *arg, ek_events_frame peer, uint64_t number, ek_events_frame payload)
{
    reader *r = arg;
    (void)peer;
    if (r->n_late > 0 && r->n_late-- && *r->late++ % 4 == 0) return EK_REPLAY_LATER;
    if (r->ended) __builtin_trap();
    if (!payload.data) {
        r->ended = true;
        return EK_REPLAY_SENT;
    }
    if (number != r->want++ || payload.n < 12) __builtin_trap();
    r->n++;
    return EK_REPLAY_SENT;
}

static void check_request(const uint8_t *data, size_t n)
{
    static ek_history history;
    static ek_mirror mirror;
    ek_events_frame frame[4] = {{0}};
    uint64_t from = 0;
    int n_frames = 0;
    const uint8_t *p = data, *end = data + n;
    while (p < end && n_frames < 4) { /* a length and so many bytes */
        size_t k = *p++;
        if (k > (size_t)(end - p)) k = (size_t)(end - p);
        frame[n_frames++] = (ek_events_frame){p, k};
        p += k;
    }
    if (!ek_replay_parse(frame, n_frames, &from)) return;
    if (n_frames != 3 || frame[2].n != 8) __builtin_trap();
    if (history.next == 0)
        for (int i = 0; i < EK_HISTORY_BATCHES + 50; i++) {
            ek_held_change c = {.came = true, .page = {.hash = (uint64_t)i + 1, .first = true}};
            ek_buf b = {0};
            if (i % 64 == 0) ek_mirror_apply(&mirror, &c);
            ek_events_write(&b, false, 1, i == 0, &c, i % 64 == 0);
            ek_history_add(&history, &b);
        }
    reader r = {.want = from, .late = p, .n_late = (size_t)(end - p)};
    ek_replays replays = {.history = &history, .mirror = &mirror, .send = take, .arg = &r};
    ek_replays_ask(&replays, frame[0], from, 0);
    for (int i = 0; !r.ended && replays.n > 0; i++) ek_replays_go_on(&replays, 0, 1);
    uint64_t should = from < history.next ? history.next - from : 0;
    if (!r.ended || (uint64_t)r.n != should || replays.n != 0) __builtin_trap();
}

#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_address(data, n);
#ifdef EK_HAVE_EVENTS
    check_request(data, n);
#endif
    return 0;
}
