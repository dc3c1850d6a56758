/* JSON from bytes. Properties: what is accepted, written and read again is the same; jansson's reader
 * accepts what is written; what jansson accepts is read as the same value; and the lenient reader
 * gives the strict one's value for whatever that accepts. */
#include <stdlib.h>
#include <string.h>

#include "text/json/json.h"

static bool has_odd(const json_t *v)
{
    if (ek_json_odd_number(v)) return true;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (has_odd(json_array_get(v, i))) return true;
    json_t *o = (json_t *)v;
    for (void *i = json_object_iter(o); i; i = json_object_iter_next(o, i))
        if (has_odd(json_object_iter_value(i)) || strlen(json_object_iter_key(i)) != json_object_iter_key_len(i))
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    const char *text = (const char *)data;
    /* jansson takes a NUL between tokens for the end. */
    json_t *ours, *again, *strict = memchr(text, 0, n) ? NULL : json_loadb(text, n, flags, NULL);
    ek_err e = ek_json_read_lenient(&ours, text, n, 0), e_strict = ek_json_read(&again, text, n, 0);
    if (strict && e_strict == EK_EPARSE) __builtin_trap();
    if (e_strict == EK_OK && (e != EK_OK || !json_equal(ours, again))) __builtin_trap();
    json_decref(again);
    if (strict && e == EK_OK && !json_equal(strict, ours)) __builtin_trap();
    json_decref(strict);
    if (e != EK_OK) {
        if (ours || strchr(ek_err_text(), '\n')) __builtin_trap();
        return 0;
    }
    ek_buf one = {0}, two = {0};
    ek_json_write(&one, ours);
    if (!has_odd(ours)) {
        strict = json_loadb(one.data, one.len, flags, NULL);
        if (!strict || !json_equal(strict, ours)) __builtin_trap();
        json_decref(strict);
    }
    if (ek_json_read(&again, one.data, one.len, 0) != EK_OK) __builtin_trap();
    ek_json_write(&two, again);
    if (one.len != two.len || memcmp(one.data, two.data, one.len) != 0) __builtin_trap();
    json_decref(ours);
    json_decref(again);
    ek_buf_fini(&one);
    ek_buf_fini(&two);
    return 0;
}
