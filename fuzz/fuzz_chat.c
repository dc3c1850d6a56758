/* A request from bytes. Properties: a rendered prompt is UTF-8, its control offsets rise and
 * each stands on a marker; preparing leaves the client's messages as they were; and what was
 * prepared once is prepared. */
#include <stdlib.h>
#include <string.h>

#include "text/chat.h"
#include "text/json.h"
#include "text/utf8.h"

static const char *const markers[] = {
    "<bos>",        "<|turn>",      "<turn|>",          "<|think|>",        "<|tool>", "<tool|>",
    "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>",  "<|channel>",
    "<channel|>",   "<|image|>",    "<|audio|>",        "<|video|>"};

static void check_prompt(const ek_prompt *p)
{
    if (!ek_utf8_valid(ek_buf_text(&p->text), p->text.len)) __builtin_trap();
    for (size_t i = 0; i < p->n_control; i++) {
        if (p->control[i] >= p->text.len || (i && p->control[i] <= p->control[i - 1])) __builtin_trap();
        bool known = false;
        for (size_t m = 0; m < sizeof markers / sizeof *markers; m++)
            known |= strncmp(p->text.data + p->control[i], markers[m], strlen(markers[m])) == 0;
        if (!known) __builtin_trap();
    }
}

static void check_prepared(const json_t *messages)
{
    json_t *once, *twice;
    ek_buf before = {0}, after = {0}, one = {0}, two = {0};
    ek_json_write(&before, messages);
    ek_err e = ek_chat_prepare(&once, messages, NULL);
    ek_json_write(&after, messages);
    if (before.len != after.len || memcmp(before.data, after.data, before.len) != 0) __builtin_trap();
    if (e == EK_OK) {
        ek_json_write(&one, once);
        /* A first text may hide a second billing line or mark behind the first. */
        bool marked = strstr(before.data, "think|>") || strstr(before.data, "billing");
        if (ek_chat_prepare(&twice, once, NULL) != EK_OK) __builtin_trap();
        ek_json_write(&two, twice);
        if (!marked && (one.len != two.len || memcmp(one.data, two.data, one.len) != 0)) __builtin_trap();
        json_decref(once);
        json_decref(twice);
    } else if (strchr(ek_err_text(), '\n')) {
        __builtin_trap();
    }
    ek_buf_fini(&before);
    ek_buf_fini(&after);
    ek_buf_fini(&one);
    ek_buf_fini(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *v;
    if (ek_json_read_lenient(&v, (const char *)data, n, 0) != EK_OK) return 0;
    ek_prompt p = {0};
    if (ek_chat_render_request(&p, v, EK_CHAT_LARGE) == EK_OK) check_prompt(&p);
    else if (strchr(ek_err_text(), '\n')) __builtin_trap();
    ek_prompt_fini(&p);
    check_prepared(ek_json_get(v, "messages"));
    json_decref(v);
    return 0;
}
