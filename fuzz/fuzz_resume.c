/* Streams that continue. The first byte chooses one of two things.
 *
 * Bytes as the JSON of `evenkeel.resume`: what is taken is within its bounds, what is refused has a sentence of one
 * line.
 *
 * Bytes as a script of tokens and of the events that each causes, with texts that JSON has to escape: events are marked
 * and, without their marks, are as they were; what a client merges up to any event is a body that is taken, and the
 * stream that goes on from there is the rest of this one, byte for byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/dialect.h"
#include "serve/resume/resume.h"
#include "text/json/json.h"

enum { VOCAB = 262144, CTX = 8192, MAX_TOKENS = 24, MAX_EVENTS = 96 };

static void check_body(const char *text, size_t n)
{
    json_t *v;
    ek_resume r = {0};
    if (ek_json_read(&v, text, n, 0)) return;
    ek_err err = ek_resume_read(&r, v, VOCAB, CTX);
    if (err && (err != EK_EINVAL || strncmp(ek_err_text(), "evenkeel.resume", 15) || strchr(ek_err_text(), '\n')))
        __builtin_trap();
    bool ok = r.tokens.len < CTX && r.cached <= CTX && r.events >= 0 && memchr(r.id, 0, sizeof r.id);
    for (size_t i = 0; i < r.tokens.len; i++) ok &= r.tokens.data[i] >= 0 && r.tokens.data[i] < VOCAB;
    if (!ok || (!err && r.tokens.len > 0 && (!r.on || !*r.id))) __builtin_trap();
    ek_resume_fini(&r);
    json_decref(v);
}

/* A script: per token one byte for how many events it causes, and one for the length of their texts. */
typedef struct script {
    const uint8_t *data;
    size_t n;
    bool lines, seed;
} script;

/* Appends what token i causes; false behind the last one. */
static bool write_group(ek_buf *out, const ek_api_reply *r, const script *s, int i)
{
    const size_t at = 2 * (size_t)i;
    if (i >= MAX_TOKENS || at + 1 >= s->n) return false;
    const int n_events = s->data[at] % 4;
    const char *text = (const char *)s->data + at + 1;
    const size_t room = s->n - at - 1, n = s->data[at + 1] % 9 < room ? s->data[at + 1] % 9 : room;
    const bool last = at + 3 >= s->n || i + 1 == MAX_TOKENS;
    for (int k = 0; k < n_events; k++) {
        ek_event_begin(out, r);
        if (!s->lines) ek_buf_str(out, k % 2 ? "event: x\ndata: " : "data: ");
        ek_buf_str(out, "{\"t\":");
        ek_json_quote(out, text, n);
        ek_event_extend(out, r, last && k + 1 == n_events);
        ek_buf_str(out, s->lines ? "}\n" : "}\n\n");
        ek_event_end(out, r);
    }
    if (last && !s->lines) {
        ek_event_begin(out, r);
        ek_buf_str(out, "data: [DONE]\n\n");
        ek_event_end(out, r);
    }
    return true;
}

static const uint64_t drawn = 12;

/* The stream as it goes on from r; NULL: all of it, without marks. */
static ek_buf run(const script *s, const ek_resume *r)
{
    const uint64_t *seed = s->seed ? &drawn : NULL;
    ek_resume_marks m = {.on = true, .id = "cmpl-1", .created = 3, .seed = seed};
    const ek_turn_result result = {.n_cached = 5, .n_images = s->lines, .n_images_kept = 1};
    const ek_turn_result *choices[] = {&result};
    const ek_sampling o = ek_sampling_greedy();
    const ek_turn_opts turn = {0};
    const ek_api_reply reply = {.seed = seed, .choices = choices, .turn = &turn, .marks = r ? &m : NULL};
    ek_buf out = {0};
    if (r) ek_resume_marks_init(&m, r, &o);
    for (int i = m.at;; i++) {
        if (r) ek_resume_marks_token(&m, i * 7);
        if (!write_group(&out, &reply, s, i)) break;
    }
    ek_resume_marks_fini(&m);
    return out;
}

static void merge(json_t *state, const json_t *more)
{
    const char *key;
    json_t *v, *tokens = json_object_get(state, "tokens");
    json_object_foreach((json_t *)(uintptr_t)more, key, v)
    {
        if (!strcmp(key, "tokens")) json_array_extend(tokens, v);
        else json_object_set(state, key, v);
    }
}

/* What follows the event that ends at `at` comes again from what a client knows by then. */
static void go_on(const script *s, const ek_buf *whole, size_t at, const json_t *state)
{
    ek_resume r = {0};
    const ek_sampling o = ek_sampling_greedy();
    if (ek_resume_read(&r, state, VOCAB, CTX)) __builtin_trap();
    uint64_t h = ek_resume_seed(r.begin, &o);
    for (size_t i = 0; i < r.tokens.len; i++) {
        r.before = h;
        h = ek_resume_token(h, r.tokens.data[i]);
    }
    if (h != r.digest) __builtin_trap();
    ek_buf rest = run(s, &r);
    if (rest.len != whole->len - at || (rest.len && memcmp(rest.data, whole->data + at, rest.len))) __builtin_trap();
    ek_buf_fini(&rest);
    ek_resume_fini(&r);
}

static void check_script(const script *s)
{
    const ek_resume none = {0};
    ek_buf whole = run(s, &none), bare = run(s, NULL);
    json_t *state = json_pack("{s:[]}", "tokens");
    const char *p = ek_buf_text(&whole), *b = ek_buf_text(&bare), *ends = s->lines ? "\n" : "\n\n";
    for (int events = 0; *p && events < MAX_EVENTS; events++) {
        const char *end = strstr(p, ends), *bare_end = strstr(b, ends), *open = strchr(p, '{');
        if (!end || !bare_end) __builtin_trap();
        if (open && open < end) {
            json_t *v, *was;
            const char *bare_open = strchr(b, '{');
            if (ek_json_read(&v, open, (size_t)(end - open), 0)) __builtin_trap();
            if (ek_json_read(&was, bare_open, (size_t)(bare_end - bare_open), 0)) __builtin_trap();
            json_t *ours = json_object_get(v, "evenkeel"), *more = json_object_get(ours, "resume");
            if (!json_is_object(more)) __builtin_trap();
            merge(state, more);
            json_object_del(ours, "resume");
            if (json_object_size(ours) == 0) json_object_del(v, "evenkeel");
            if (!json_equal(v, was)) __builtin_trap();
            json_decref(v);
            json_decref(was);
            go_on(s, &whole, (size_t)(end - whole.data) + strlen(ends), state);
        }
        p = end + strlen(ends);
        b = bare_end + strlen(ends);
    }
    json_decref(state);
    ek_buf_fini(&whole);
    ek_buf_fini(&bare);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    if (data[0] == '{') {
        check_body((const char *)data, n);
        return 0;
    }
    const script s = {.data = data + 1, .n = n - 1, .lines = data[0] & 1, .seed = data[0] & 2};
    check_script(&s);
    return 0;
}
