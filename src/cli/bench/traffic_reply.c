#include "cli/bench/traffic_reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/json/json.h"

static void fail(ek_traffic_reply *r, const char *what, const char *detail)
{
    if (!r->error[0]) snprintf(r->error, sizeof r->error, "%s%s", what, detail);
}

static void add_gap(ek_traffic_reply *r, double seconds)
{
    if (r->n_gaps == r->cap_gaps) {
        r->cap_gaps = r->cap_gaps ? 2 * r->cap_gaps : 64;
        r->gap = ek_realloc(r->gap, (size_t)r->cap_gaps * sizeof *r->gap);
    }
    r->gap[r->n_gaps++] = seconds;
}

static void add_piece(ek_traffic_reply *r, const char *kind, const char *text, size_t n, double now)
{
    if (n == 0) return;
    if (r->first == 0) r->first = now;
    else add_gap(r, now - r->last);
    r->last = now;
    r->pieces++;
    /* Byte by byte, so that where a server cuts its pieces does not count. */
    for (size_t i = 0; i < n; i++) r->text = ek_mix64(r->text ^ (uint64_t)(uint8_t)text[i] ^ (uint64_t)*kind << 8);
}

static void take_usage(ek_traffic_reply *r, const json_t *usage)
{
    const json_t *prompt = ek_json_get(usage, "prompt_tokens"), *reply = ek_json_get(usage, "completion_tokens");
    if (json_is_integer(prompt)) r->prompt_tokens = json_integer_value(prompt);
    if (json_is_integer(reply)) r->tokens = json_integer_value(reply);
}

static void take_event(ek_traffic_reply *r, const char *text, size_t n, double now)
{
    /* Servers disagree on the name of the reasoning's field; some say the same under both. */
    static const char *const fields[] = {"content", "reasoning_content", "reasoning"};
    if (n == 6 && !memcmp(text, "[DONE]", 6)) {
        r->done = true;
        return;
    }
    json_t *event;
    if (ek_json_read(&event, text, n, 0)) {
        fail(r, "an event is not JSON: ", ek_err_text());
        return;
    }
    const json_t *error = ek_json_get(event, "error");
    if (error && !json_is_null(error)) {
        const char *message = ek_json_get_text(error, "message", NULL);
        fail(r, "the server reports: ", message ? message : "an error without a message");
    }
    take_usage(r, ek_json_get(event, "usage"));
    const json_t *delta = ek_json_get(json_array_get(ek_json_get(event, "choices"), 0), "delta");
    bool reasoning = false;
    for (int i = 0; i < 3; i++) {
        size_t len;
        const char *piece = ek_json_get_text(delta, fields[i], &len);
        if (!piece || reasoning) continue;
        reasoning = i > 0;
        add_piece(r, fields[i], piece, len, now);
    }
    json_decref(event);
}

static void take_line(ek_traffic_reply *r, const char *line, size_t n, double now)
{
    if (n && line[n - 1] == '\r') n--;
    if (n < 5 || memcmp(line, "data:", 5)) return; /* names of events, comments, blank lines */
    line += 5, n -= 5;
    if (n && *line == ' ') line++, n--;
    take_event(r, line, n, now);
}

void ek_traffic_reply_feed(ek_traffic_reply *r, const char *bytes, size_t n, double now)
{
    while (n && !r->error[0]) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) : n;
        if (r->line.len + len > EK_TRAFFIC_LINE) {
            fail(r, "an event is longer than 1 MiB", "");
            return;
        }
        if (end && r->line.len == 0) {
            take_line(r, bytes, len, now);
        } else {
            ek_buf_add(&r->line, bytes, len);
            if (end) take_line(r, r->line.data, r->line.len, now);
            if (end) ek_buf_clear(&r->line);
        }
        len += end != NULL;
        bytes += len, n -= len;
    }
}

void ek_traffic_reply_fini(ek_traffic_reply *r)
{
    free(r->gap);
    ek_buf_fini(&r->line);
}
