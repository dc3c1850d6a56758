/* Parts of a form lie in it, behind one another, without a boundary in them; and bytes that are sent as a file, between
 * boundaries that they do not have, come out as they were. */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "serve/http/multipart.h"

static void check_any(const char *body, size_t n)
{
    ek_form f;
    const char *at = body;
    const char *why = ek_form_begin(&f, body, n);
    int parts = 0;
    while (!why && !f.done) {
        ek_form_part p;
        if ((why = ek_form_next(&f, &p))) break;
        if (++parts > EK_FORM_MAX_PARTS) __builtin_trap();
        if (p.name < at || p.name + p.n_name > p.data || p.data < at || p.data + p.n > body + n) __builtin_trap();
        if (p.file_name && (p.file_name < at || p.file_name + p.n_file_name > p.data)) __builtin_trap();
        if (memmem(p.data, p.n, "\r\n--", 4)) {
            ek_buf line = {0};
            ek_buf_str(&line, "\r\n");
            ek_buf_add(&line, f.boundary, f.n_boundary);
            if (memmem(p.data, p.n, line.data, line.len)) __builtin_trap();
            ek_buf_fini(&line);
        }
        at = p.data + p.n;
    }
    if (why && (!*why || strchr(why, '\n'))) __builtin_trap();
}

static void check_file(const char *data, size_t n)
{
    ek_buf b = {0};
    ek_form f;
    ek_form_part p;
    if (memmem(data, n, "--b0undary", 10)) return;
    ek_buf_str(&b, "--b0undary\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\nv\r\n--b0undary\r\n");
    ek_buf_str(&b, "Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n");
    ek_buf_add(&b, data, n);
    ek_buf_str(&b, "\r\n--b0undary--\r\n");
    if (ek_form_begin(&f, b.data, b.len) || ek_form_next(&f, &p) || f.done || !ek_form_is(&p, "n")) __builtin_trap();
    if (ek_form_next(&f, &p) || !f.done || !ek_form_is(&p, "file")) __builtin_trap();
    if (p.n != n || memcmp(p.data, data, n) != 0) __builtin_trap();
    ek_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *exact = malloc(n + 1);
    memcpy(exact, data, n);
    check_any(exact, n);
    check_file(exact, n);
    free(exact);
    return 0;
}
