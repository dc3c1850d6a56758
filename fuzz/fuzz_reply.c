/* Model output from bytes. Properties: the events do not depend on how the output was cut; the
 * fragments of a call that ended are one JSON object, and with what closes it those of a call that was cut; texts are
 * whole characters. */
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"
#include "text/reply/reply.h"
#include "text/utf8.h"

/* Bytes below the number of these stand for them, so that the fuzzer finds calls. */
static const char *const crumbs[] = {"<|tool_call>",
                                     "<tool_call|>",
                                     "<|\"|>",
                                     "<|channel>",
                                     "<channel|>",
                                     "<turn|>",
                                     "<|tool_response>",
                                     "<|tool_call>call:f{",
                                     "}<tool_call|>",
                                     "call:",
                                     "thought\n",
                                     "<|turn>",
                                     "<eos>",
                                     "True",
                                     "é",
                                     "a:"};
enum { N_CRUMBS = sizeof crumbs / sizeof *crumbs };

typedef struct trace {
    ek_buf text;
    int last;
} trace;

static void add(void *arg, const ek_reply_event *e)
{
    trace *t = arg;
    bool joins = e->kind == EK_REPLY_CONTENT || e->kind == EK_REPLY_REASONING || e->kind == EK_REPLY_CALL_ARGS;
    if (joins && e->n == 0) __builtin_trap();
    if (e->kind == EK_REPLY_CALL_DROP) __builtin_trap(); /* what was sent is never taken back */
    if (!ek_utf8_valid(e->text, e->n)) __builtin_trap();
    if (!joins || t->last != (int)e->kind) ek_buf_fmt(&t->text, "\n%d ", (int)e->kind);
    ek_buf_add(&t->text, e->text, e->n);
    t->last = (int)e->kind;
}

static const json_t *tools(void)
{
    static json_t *v;
    static const char text[] =
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"number\"},"
        "\"l\":{\"items\":{\"type\":\"integer\"}}}}}}]";
    if (!v && ek_json_read(&v, text, sizeof text - 1, 0) != EK_OK) __builtin_trap();
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    uint8_t how = data[0];
    ek_buf in = {0};
    for (size_t i = 1; i < n; i++) {
        if (data[i] < N_CRUMBS && data[i] != '\n' && data[i] != '\t') ek_buf_str(&in, crumbs[data[i]]);
        else ek_buf_char(&in, (char)data[i]);
    }
    trace whole = {.last = -1}, parts = {.last = -1};
    ek_answer a = {0};
    ek_reply_opts o = {.tools_active = !(how & 1),
                       .one_call = how & 2,
                       .ignore_eos = how & 4,
                       .lenient_start = how & 8,
                       .tools = how & 16 ? tools() : NULL,
                       .sink = add};
    bool truncated = how & 32;
    size_t step = how >> 6 ? how >> 6 : 7;

    o.arg = &whole;
    ek_reply *r = ek_reply_open(NULL, &o);
    ek_reply_feed_text(r, ek_buf_text(&in), in.len);
    ek_reply_end(r, truncated);
    ek_reply_close(r);

    o.arg = &parts;
    r = ek_reply_open(NULL, &o);
    for (size_t at = 0; at < in.len; at += step)
        ek_reply_feed_text(r, in.data + at, in.len - at < step ? in.len - at : step);
    ek_reply_end(r, truncated);
    ek_reply_close(r);
    if (whole.text.len != parts.text.len ||
        memcmp(ek_buf_text(&whole.text), ek_buf_text(&parts.text), whole.text.len) != 0)
        __builtin_trap();

    o.sink = ek_reply_collect;
    o.arg = &a;
    r = ek_reply_open(NULL, &o);
    ek_reply_feed_text(r, ek_buf_text(&in), in.len);
    ek_reply_end(r, truncated);
    bool cut = a.n_calls > 0 && a.calls[a.n_calls - 1].closing.len > 0;
    if (a.open || a.n_calls != ek_reply_calls(r) + cut || (cut && !truncated)) __builtin_trap();
    ek_reply_close(r);
    for (int i = 0; i < a.n_calls; i++) {
        json_t *ours;
        ek_buf_add(&a.calls[i].args, ek_buf_text(&a.calls[i].closing), a.calls[i].closing.len);
        if (ek_json_read(&ours, a.calls[i].args.data, a.calls[i].args.len, 0) != EK_OK || !json_is_object(ours))
            __builtin_trap();
        json_decref(ours);
    }
    json_decref(ek_answer_json(&a));
    ek_answer_fini(&a);
    ek_buf_fini(&whole.text);
    ek_buf_fini(&parts.text);
    ek_buf_fini(&in);
    return 0;
}
