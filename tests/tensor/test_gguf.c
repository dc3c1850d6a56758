/* GGUF files, good and damaged, and the parts of split ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../support/err_name.h"
#include "../support/gguf.h"
#include "../support/gguf_memory.h"
#include "../support/safetensors.h"
#include "tensor/checkpoint.h"
#include "tensor/gguf.h"

static const uint8_t zeros[4096];

static ek_err parse(const ek_buf *b, ek_gguf **g)
{
    return gguf_of_memory(g, (const uint8_t *)b->data, b->len, "x.gguf");
}

static void refused(ek_buf *b, ek_err want, const char *says)
{
    ek_gguf *g;
    ek_err err = parse(b, &g);
    if (err != want || !strstr(ek_err_text(), says) || !strstr(ek_err_text(), "x.gguf"))
        fail_msg("%s \"%s\", wanted %s \"%s\"", err_name(err), ek_err_text(), err_name(want), says);
    assert_null(g);
    ek_buf_fini(b);
}

/* Every kind of value, alone and in arrays, in a file with tensors of several types. */
static void good(gguf_file *f)
{
    static const int8_t bytes[] = {-1, 2, -3};
    static const uint16_t words[] = {65535, 1};
    static const int64_t dim[] = {64, 3, 2, 1};
    int16_t i16 = -300;
    int64_t i64 = INT64_MIN;
    uint64_t big = UINT64_MAX;
    double f64 = 0.1;
    ek_buf texts = {0};
    gguf_u32(f, "u32", 4000000000u);
    gguf_f32(f, "f32", 1.5f);
    gguf_bool(f, "bool", 1);
    gguf_text(f, "text", "a\"b");
    gguf_text(f, "", "the key is empty");
    gguf_value(f, "i16", EK_GGUF_I16, &i16, sizeof i16);
    gguf_value(f, "i64", EK_GGUF_I64, &i64, sizeof i64);
    gguf_value(f, "u64", EK_GGUF_U64, &big, sizeof big);
    gguf_value(f, "f64", EK_GGUF_F64, &f64, sizeof f64);
    gguf_array(f, "i8s", EK_GGUF_I8, 3, bytes, sizeof bytes);
    gguf_array(f, "u16s", EK_GGUF_U16, 2, words, sizeof words);
    gguf_array(f, "none", EK_GGUF_STRING, 0, NULL, 0);
    gguf_string(&texts, "one", 3);
    gguf_string(&texts, "", 0);
    gguf_string(&texts, "three", 5);
    gguf_array(f, "texts", EK_GGUF_STRING, 3, texts.data, texts.len);
    ek_buf_fini(&texts);
    gguf_tensor(f, "b", 0, 1, dim, zeros, 256);
    gguf_tensor(f, "a", 2, 3, dim, zeros, 64 / 32 * 18 * 6);
    gguf_tensor(f, "unknown", 77, 1, dim, NULL, 0);
}

static void test_values(void **state)
{
    (void)state;
    gguf_file f = {0};
    ek_buf b = {0};
    ek_gguf *g;
    int64_t i;
    double d;
    const char *s;
    size_t n;
    good(&f);
    gguf_bytes(&f, &b);
    if (parse(&b, &g)) fail_msg("%s", ek_err_text());
    assert_int_equal(gguf_value_count(g), 13);
    assert_true(ek_gguf_int(ek_gguf_find(g, "u32"), 0, &i) && i == 4000000000);
    assert_true(ek_gguf_float(ek_gguf_find(g, "f32"), 0, &d) && d == 1.5);
    assert_false(ek_gguf_int(ek_gguf_find(g, "f32"), 0, &i));
    assert_true(ek_gguf_int(ek_gguf_find(g, "bool"), 0, &i) && i == 1);
    assert_false(ek_gguf_float(ek_gguf_find(g, "bool"), 0, &d));
    assert_true(ek_gguf_int(ek_gguf_find(g, "i16"), 0, &i) && i == -300);
    assert_true(ek_gguf_int(ek_gguf_find(g, "i64"), 0, &i) && i == INT64_MIN);
    assert_false(ek_gguf_int(ek_gguf_find(g, "u64"), 0, &i));
    assert_true(ek_gguf_float(ek_gguf_find(g, "f64"), 0, &d) && d == 0.1);
    assert_true(ek_gguf_int(ek_gguf_find(g, "i8s"), 2, &i) && i == -3);
    assert_false(ek_gguf_int(ek_gguf_find(g, "i8s"), 3, &i));
    assert_true(ek_gguf_float(ek_gguf_find(g, "u16s"), 0, &d) && d == 65535);
    assert_true(ek_gguf_text(ek_gguf_find(g, "text"), &s, &n) && n == 3 && memcmp(s, "a\"b", 3) == 0);
    assert_true(ek_gguf_text_is(ek_gguf_find(g, ""), "the key is empty"));
    assert_false(ek_gguf_text_is(ek_gguf_find(g, "text"), "a\"b "));
    assert_false(ek_gguf_text_is(ek_gguf_find(g, "texts"), "one"));
    assert_null(ek_gguf_find(g, "tex"));
    assert_null(ek_gguf_find(g, "texts "));
    const ek_gguf_value *texts = ek_gguf_find(g, "texts");
    static const char *const want[] = {"one", "", "three"};
    const uint8_t *at = texts->data;
    for (int t = 0; t < 3; t++) {
        assert_true(ek_gguf_next_text(texts, &at, &s, &n) && n == strlen(want[t]));
        assert_memory_equal(s, want[t], n);
    }
    assert_false(ek_gguf_next_text(texts, &at, &s, &n));
    at = ek_gguf_find(g, "none")->data;
    assert_false(ek_gguf_next_text(ek_gguf_find(g, "none"), &at, &s, &n));
    ek_gguf_close(g);
    ek_buf_fini(&b), gguf_fini(&f);
}

static void test_tensors(void **state)
{
    (void)state;
    gguf_file f = {0};
    ek_buf b = {0};
    ek_gguf *g;
    good(&f);
    gguf_bytes(&f, &b);
    for (int version = 2; version <= 3; version++) {
        b.data[4] = (char)version;
        if (parse(&b, &g)) fail_msg("%s", ek_err_text());
        assert_int_equal(ek_gguf_tensor_count(g), 3);
        const ek_gguf_tensor *t = ek_gguf_tensor_find(g, "a");
        assert_ptr_equal(t, ek_gguf_tensor_at(g, 1));
        assert_int_equal(t->bytes, 216);
        assert_true(t->n_dims == 3 && t->dim[0] == 64 && t->dim[1] == 3 && t->dim[2] == 2 && t->dim[3] == 1);
        assert_string_equal(ek_gguf_type_of(t->type)->name, "q4_0");
        assert_int_equal(t->data - ek_gguf_tensor_at(g, 0)->data, 256);
        assert_int_equal((t->data - (const uint8_t *)b.data) % 32, 0);
        assert_null(ek_gguf_type_of(ek_gguf_tensor_find(g, "unknown")->type));
        assert_null(ek_gguf_tensor_find(g, "c"));
        ek_gguf_close(g);
    }
    ek_buf_fini(&b), gguf_fini(&f);
}

/* Cut anywhere, a file is refused in one line; only what pads its end is not missed. */
static void test_cut_short(void **state)
{
    (void)state;
    static const int64_t dim[] = {9};
    gguf_file f = {0};
    ek_buf b = {0};
    ek_gguf *g;
    good(&f);
    gguf_tensor(&f, "last", 0, 1, dim, zeros, 36);
    gguf_bytes(&f, &b);
    size_t end = b.len - 28;
    for (size_t n = 0; n < end; n++) {
        if (gguf_of_memory(&g, (const uint8_t *)b.data, n, "x.gguf") != EK_EFORMAT)
            fail_msg("%zu of %zu bytes", n, end);
        assert_null(strchr(ek_err_text(), '\n'));
    }
    assert_int_equal(gguf_of_memory(&g, (const uint8_t *)b.data, end, "x.gguf"), EK_OK);
    ek_gguf_close(g);
    ek_buf_fini(&b), gguf_fini(&f);
}

static void put_u64(ek_buf *b, size_t at, uint64_t v)
{
    memcpy(b->data + at, &v, sizeof v);
}

static ek_buf file_of(gguf_file *f)
{
    ek_buf b = {0};
    gguf_bytes(f, &b);
    gguf_fini(f);
    return b;
}

static void test_damage(void **state)
{
    (void)state;
    static const int64_t dim[] = {32, INT64_MAX, INT64_MAX, 2, 1}, row[] = {33}, none[] = {32, -1};
    gguf_file f = {0};
    ek_buf b = {0};
    ek_buf_str(&b, "GGML");
    refused(&b, EK_EFORMAT, "is not a GGUF file");
    b = file_of(&f);
    b.data[4] = 1;
    refused(&b, EK_EUNSUPPORTED, "version 1; 2 and 3 can be read");
    b = file_of(&f);
    b.data[4] = 0, b.data[7] = 3;
    refused(&b, EK_EUNSUPPORTED, "big-endian");
    for (size_t at = 8; at <= 16; at += 8) { /* counts beyond the file take no memory */
        b = file_of(&f);
        put_u64(&b, at, UINT64_MAX);
        refused(&b, EK_EFORMAT, "states 18446744073709551615");
    }
    gguf_u32(&f, "k", 1), gguf_u32(&f, "l", 1), gguf_u32(&f, "k", 2);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "metadata k is there twice");
    gguf_value(&f, "k", 13, "", 0);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "metadata k has the type 13");
    gguf_array(&f, "k", EK_GGUF_ARRAY, 1, zeros, 64);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "metadata k has elements of type 9");
    gguf_array(&f, "k", EK_GGUF_F64, (uint64_t)1 << 61, zeros, 64);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "states 2305843009213693952 values of 8 bytes");
    gguf_array(&f, "k", EK_GGUF_STRING, UINT64_MAX / 8, zeros, 64);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "strings");
    gguf_u32(&f, "general.alignment", 24);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "power of two");
    gguf_tensor(&f, "a", 0, 4, dim, zeros, 4);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "tensor a has more elements than a file can hold");
    gguf_tensor(&f, "a", 0, 2, none, zeros, 4);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "more elements");
    gguf_tensor(&f, "a", 2, 1, row, zeros, 36);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "tensor a has rows of 33 weights, blocks of q4_0 have 32");
    gguf_tensor(&f, "a", 0, 5, dim, zeros, 4);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "tensor a has 5 dimensions");
    gguf_tensor(&f, "", 0, 1, dim, zeros, 128);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "name of 0 bytes");
    gguf_tensor(&f, "a", 0, 1, dim, zeros, 128), gguf_tensor(&f, "a", 0, 1, dim, zeros, 128);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "tensor a is in x.gguf and again in x.gguf");
    gguf_tensor(&f, "a", 0, 1, dim, zeros, 32), gguf_tensor(&f, "b", 0, 1, dim, zeros, 128);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "tensors a and b overlap");
    gguf_tensor(&f, "a", 0, 1, dim, zeros, 128);
    put_u64(&f.table, f.table.len - 8, 16);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "byte 16 of the data, which is no multiple of 32");
    gguf_tensor(&f, "a", 0, 1, dim, zeros, 96);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "damaged or was not copied whole");
    gguf_tensor(&f, "a", 0, 1, dim, zeros, 128);
    put_u64(&f.table, f.table.len - 8, UINT64_MAX - 31);
    b = file_of(&f);
    refused(&b, EK_EFORMAT, "damaged or was not copied whole");
}

/* ------------------------------------------------------------------ split files */

static void put_part(const char *dir, const char *name, int no, int n, int total, const char *tensor)
{
    static const int64_t dim[] = {8};
    gguf_file f = {0};
    uint16_t no16 = (uint16_t)no, n16 = (uint16_t)n;
    if (no == 0) gguf_text(&f, "general.architecture", "gemma4");
    gguf_value(&f, "split.no", EK_GGUF_U16, &no16, sizeof no16);
    gguf_value(&f, "split.count", EK_GGUF_U16, &n16, sizeof n16);
    gguf_value(&f, "split.tensors.count", EK_GGUF_I32, &total, sizeof total);
    if (tensor) gguf_tensor(&f, tensor, 0, 1, dim, zeros, 32);
    gguf_save(&f, dir, name);
}

static void open_refused(const char *dir, const char *name, ek_err want, const char *says)
{
    char path[300];
    ek_gguf *g;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ek_err err = ek_gguf_open(&g, path);
    if (err != want || !strstr(ek_err_text(), says))
        fail_msg("%s \"%s\", wanted %s \"%s\"", err_name(err), ek_err_text(), err_name(want), says);
    assert_null(g);
}

static void test_parts(void **state)
{
    (void)state;
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
    char *dir = temp_dir(), path[300];
    put_part(dir, names[0], 0, 3, 2, NULL); /* llama.cpp can leave the first part to metadata */
    put_part(dir, names[1], 1, 3, 2, "b");
    put_part(dir, names[2], 2, 3, 2, "a");
    for (int i = 0; i < 3; i++) {
        ek_gguf *g;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (ek_gguf_open(&g, path)) fail_msg("%s", ek_err_text());
        assert_int_equal(ek_gguf_file_count(g), 3);
        assert_true(ek_gguf_text_is(ek_gguf_find(g, "general.architecture"), "gemma4"));
        assert_int_equal(ek_gguf_tensor_count(g), 2);
        assert_string_equal(ek_gguf_tensor_at(g, 0)->name, "b");
        assert_non_null(strstr(ek_gguf_tensor_find(g, "a")->file, names[2]));
        ek_gguf_close(g);
    }
    put_part(dir, names[2], 2, 3, 2, "b");
    open_refused(dir, names[0], EK_EFORMAT, "tensor b is in");
    put_part(dir, names[2], 2, 3, 2, NULL);
    open_refused(dir, names[1], EK_EFORMAT, "states 2 tensors in 3 parts, they have 1");
    put_part(dir, names[2], 1, 3, 2, "a");
    open_refused(dir, names[0], EK_EFORMAT, "its metadata says part 2 of 3, its name part 3 of 3");
    put_part(dir, names[2], 2, 4, 2, "a");
    open_refused(dir, names[0], EK_EFORMAT, "its metadata says part 3 of 4, its name part 3 of 3");
    snprintf(path, sizeof path, "%s/%s", dir, names[2]);
    remove(path);
    open_refused(dir, names[1], EK_ENOTFOUND, "1 of its 3 parts are missing");
    open_refused(dir, names[1], EK_ENOTFOUND, names[2]);
    put_part(dir, "renamed.gguf", 0, 3, 2, NULL);
    open_refused(dir, "renamed.gguf", EK_EFORMAT, "does not end in -0000N-of-00003.gguf");
    put_part(dir, "n-00001-of-00002.gguf", 0, 3, 2, NULL);
    open_refused(dir, "n-00001-of-00002.gguf", EK_EFORMAT, "does not end in -0000N-of-00003.gguf");
    open_refused(dir, "absent.gguf", EK_ENOTFOUND, "absent.gguf");
    put_file(dir, "empty.gguf", "", 0);
    open_refused(dir, "empty.gguf", EK_EFORMAT, "is not a GGUF file");
    remove_dir(dir);
}

/* ------------------------------------------------------------------ listings */

static void test_listing(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[300];
    gguf_file f = {0};
    st_file st = {0};
    ek_listing *l;
    good(&f);
    gguf_save(&f, dir, "m.gguf");
    for (int folder = 0; folder < 2; folder++) {
        snprintf(path, sizeof path, folder ? "%s" : "%s/m.gguf", dir);
        if (ek_listing_open(&l, path)) fail_msg("%s", ek_err_text());
        assert_int_equal(ek_listing_count(l), 3);
        const ek_listed *a = ek_listing_at(l, 1);
        assert_string_equal(a->name, "a");
        assert_string_equal(a->type, "q4_0");
        assert_true(a->n_dims == 3 && a->dim[0] == 2 && a->dim[1] == 3 && a->dim[2] == 64 && a->bytes == 216);
        assert_string_equal(ek_listing_at(l, 2)->type, "type 77");
        ek_listing_close(l);
    }
    st_add(&st, "x", "BF16", 2, (const int64_t[]){3, 2}, zeros, 12);
    st_save(&st, dir, "model.safetensors");
    assert_int_equal(ek_listing_open(&l, dir), EK_OK); /* now a folder of safetensors */
    assert_int_equal(ek_listing_count(l), 1);
    const ek_listed *x = ek_listing_at(l, 0);
    assert_string_equal(x->type, "BF16");
    assert_true(x->n_dims == 2 && x->dim[0] == 3 && x->dim[1] == 2 && x->bytes == 12);
    ek_listing_close(l);
    put_text(dir, "not.gguf", "GGU");
    snprintf(path, sizeof path, "%s/not.gguf", dir);
    assert_int_equal(ek_listing_open(&l, path), EK_EFORMAT);
    assert_null(l);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_tensors), cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_parts),   cmocka_unit_test(test_listing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
