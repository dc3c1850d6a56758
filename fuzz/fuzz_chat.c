/* A request of the render command from bytes. Properties: a rendered prompt is UTF-8, its control offsets
 * rise, and each stands on a marker. */
#include <stdlib.h>
#include <string.h>

#include "text/template/chat.h"
#include "text/json/json.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *v;
    if (ek_json_read_lenient(&v, (const char *)data, n, 0) != EK_OK) return 0;
    ek_prompt p = {0};
    if (ek_chat_render_request(&p, v, EK_CHAT_LARGE) == EK_OK) check_prompt(&p);
    else if (strchr(ek_err_text(), '\n')) __builtin_trap();
    ek_prompt_fini(&p);
    json_decref(v);
    return 0;
}
