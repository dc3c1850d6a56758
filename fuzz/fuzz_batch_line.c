/* A line of a batch from bytes. Properties: what is a request keeps its body's bytes, which the line holds; every line
 * has a result of one line, in its own form, that is JSON with its custom_id; blanks around the line change nothing but
 * where the body stands. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "batch/line.h"

static void check(const ek_batch_line *l, const char *s, size_t n)
{
    static const char id[EK_BATCH_ID] = "0123456789abcdef01234567";
    ek_buf out = {0}, body = {0};
    json_t *v = NULL;
    if (l->dialect && (l->body < s || l->body + l->n_body > s + n || *l->body != '{')) __builtin_trap();
    if (l->dialect && (!l->name || *l->why)) __builtin_trap();
    if (!l->dialect && !*l->why) __builtin_trap();
    ek_buf_str(&body, "{\"x\":1}");
    if (ek_batch_put(&out, l, id, 200, &body) == (l->dialect != NULL)) __builtin_trap();
    if (memchr(out.data, '\n', out.len) || ek_json_read(&v, out.data, out.len, 0)) __builtin_trap();
    size_t n_name = 0;
    const char *name = ek_json_get_text(v, "custom_id", &n_name);
    if (!name != !l->name || (name && (n_name != l->n_name || memcmp(name, l->name, n_name) != 0))) __builtin_trap();
    if (!ek_json_get(v, l->anthropic ? "result" : "id")) __builtin_trap();
    json_decref(v);
    ek_buf_fini(&out);
    ek_buf_fini(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    ek_batch_line one, two;
    ek_buf wide = {0};
    ek_batch_line_read(&one, s, n);
    check(&one, s, n);
    ek_buf_str(&wide, " \t");
    ek_buf_add(&wide, s, n);
    ek_buf_str(&wide, "\r ");
    ek_batch_line_read(&two, wide.data, wide.len);
    if (one.dialect != two.dialect || one.n_body != two.n_body || one.n_name != two.n_name) __builtin_trap();
    ek_batch_line_fini(&one);
    ek_batch_line_fini(&two);
    ek_buf_fini(&wide);
    return 0;
}
