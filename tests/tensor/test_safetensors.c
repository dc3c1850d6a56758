/* Headers of safetensors files, good and damaged, and checkpoints of several files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../support/err_name.h"
#include "../support/safetensors.h"
#include "base/buf.h"
#include "tensor/checkpoint.h"

typedef struct parsed {
    int n;
    char names[256];
    size_t bytes;
} parsed;

static void note(void *arg, const ek_tensor *t)
{
    parsed *s = arg;
    s->n++;
    s->bytes += t->bytes;
    strncat(s->names, t->name, sizeof s->names - strlen(s->names) - 1);
    strncat(s->names, " ", sizeof s->names - strlen(s->names) - 1);
}

static ek_err parse(const char *header, size_t data, parsed *s)
{
    static const uint8_t zeros[256];
    ek_buf file = {0};
    *s = (parsed){0};
    st_bytes(&file, header, zeros, data);
    ek_err err = ek_safetensors_parse((const uint8_t *)file.data, file.len, "x.safetensors", note, s);
    ek_buf_fini(&file);
    return err;
}

#define T(name, type, shape, a, b) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #a "," #b "]}"

static void test_good_headers(void **state)
{
    (void)state;
    parsed s;
    assert_int_equal(parse("{}", 0, &s), EK_OK);
    assert_int_equal(s.n, 0);
    assert_int_equal(parse("{\"__metadata__\":{\"format\":\"mlx\"}," T("a", "F32", "[2,3]", 0, 24) "}   ", 24, &s),
                     EK_OK);
    assert_string_equal(s.names, "a ");
    /* file order is the order of the data, whatever the header's; an empty tensor takes no room */
    assert_int_equal(
        parse("{" T("z", "U32", "[1]", 8, 12) "," T("e", "BF16", "[0,7]", 8, 8) "," T("a", "I64", "[]", 0, 8) "}", 12,
              &s),
        EK_OK);
    assert_string_equal(s.names, "a e z ");
    assert_int_equal(s.bytes, 12);
}

static const struct {
    const char *header;
    size_t data;
    ek_err err;
    const char *says;
} bad[] = {
    {"", 0, EK_EFORMAT, "does not start with {"},
    {"[1]", 0, EK_EFORMAT, "does not start with {"},
    {"{\"a\":", 0, EK_EFORMAT, "header"},
    {"{} {}", 0, EK_EFORMAT, "header"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, EK_EFORMAT, "duplicate"},
    {"{" T("a", "F32", "[2]", 0, 8) "}", 4, EK_EFORMAT, "tensor a: bytes 0 to 8 lie outside the 4 bytes"},
    {"{" T("a", "F32", "[2]", 0, 8) "}", 9, EK_EFORMAT, "take 8 bytes of data, the file holds 9"},
    {"{" T("a", "F32", "[1]", 4, 8) "}", 8, EK_EFORMAT, "tensor a: starts at byte 4, the tensor before it ends at 0"},
    {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, EK_EFORMAT, "tensor b: starts at byte 4"},
    {"{" T("a", "F32", "[3]", 0, 8) "}", 8, EK_EFORMAT, "has 8 bytes, 3 elements of F32 need 12"},
    {"{" T("a", "F6_E2M3", "[8]", 0, 8) "}", 8, EK_EUNSUPPORTED, "element type F6_E2M3 is not supported"},
    {"{" T("a", "F32", "[-1]", 0, 0) "}", 0, EK_EFORMAT, "size 0 of its shape is not a count"},
    {"{" T("a", "F32", "[1.5]", 0, 0) "}", 0, EK_EFORMAT, "size 0 of its shape is not a count"},
    {"{" T("a", "F32", "2", 0, 8) "}", 8, EK_EFORMAT, "shape must be a list"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, EK_EFORMAT, "at most 8 sizes"},
    {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, EK_EFORMAT, "more elements than a file can hold"},
    {"{" T("a", "F32", "[4294967296,2147483648]", 0, 4) "}", 4, EK_EFORMAT, "more elements than a file can hold"},
    {"{" T("a", "F32", "[1]", 4, 0) "}", 4, EK_EFORMAT, "bytes 4 to 0"},
    {"{" T("a", "F32", "[1]", -4, 0) "}", 4, EK_EFORMAT, "bytes -4 to 0"},
    {"{" T("a", "F32", "[1]", 0, 99999999999999999) "}", 4, EK_EFORMAT, "lie outside"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, EK_EFORMAT, "exactly dtype, shape and data_offsets"},
    {"{\"a\":7}", 4, EK_EFORMAT, "exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, EK_EFORMAT, "two byte offsets"},
};

static void test_bad_headers_are_reported(void **state)
{
    (void)state;
    parsed s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_err err = parse(bad[i].header, bad[i].data, &s);
        if (err != bad[i].err || !strstr(ek_err_text(), bad[i].says) || !strstr(ek_err_text(), "x.safetensors"))
            fail_msg("%s: %s \"%s\", wanted \"%s\"", bad[i].header, err_name(err), ek_err_text(), bad[i].says);
        assert_int_equal(s.n, 0); /* nothing is reported before everything was checked */
    }
}

static void test_short_and_long_headers(void **state)
{
    (void)state;
    parsed s;
    uint8_t file[16] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' '};
    assert_int_equal(ek_safetensors_parse(file, 11, "f", note, &s), EK_OK);
    for (size_t n = 0; n < 11; n++) assert_int_equal(ek_safetensors_parse(file, n, "f", note, &s), EK_EFORMAT);
    memset(file, 0xff, 8);
    assert_int_equal(ek_safetensors_parse(file, 16, "f", note, &s), EK_EFORMAT);
    assert_non_null(strstr(ek_err_text(), "18446744073709551615"));
}

static void put_one(const char *dir, const char *file, const char *tensor)
{
    static const float x[4] = {1, 2, 3, 4};
    st_file f = {0};
    st_add(&f, tensor, "F32", 2, (const int64_t[]){2, 2}, x, sizeof x);
    st_save(&f, dir, file);
}

static ek_err reopen(const char *dir, ek_checkpoint **c)
{
    *c = NULL;
    return ek_checkpoint_open(c, dir);
}

static void test_folder_without_index(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_checkpoint *c;
    assert_int_equal(reopen(dir, &c), EK_ENOTFOUND);
    put_one(dir, "model-00001-of-00002.safetensors", "b");
    put_one(dir, "model-00002-of-00002.safetensors", "a");
    put_one(dir, "other.safetensors", "c");
    assert_int_equal(reopen(dir, &c), EK_OK);
    assert_int_equal(ek_checkpoint_count(c), 2);
    assert_string_equal(ek_checkpoint_at(c, 0)->name, "a");
    const ek_tensor *t = ek_checkpoint_find(c, "b");
    assert_non_null(t);
    assert_non_null(strstr(t->file, "model-00001"));
    assert_int_equal(t->n_dims, 2);
    float x[4];
    memcpy(x, t->data, sizeof x);
    assert_true(x[3] == 4);
    assert_null(ek_checkpoint_find(c, "c"));
    ek_checkpoint_close(c);

    put_one(dir, "model-3.safetensors", "a");
    assert_int_equal(reopen(dir, &c), EK_EFORMAT);
    assert_non_null(strstr(ek_err_text(), "tensor a is in "));
    remove_dir(dir);
}

static void test_folder_with_index(void **state)
{
    (void)state;
    static const struct {
        const char *index, *says;
    } wrong[] = {
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\",\"c\":\"model-1.safetensors\"}}",
         "lists tensor c, which no file holds"},
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-1.safetensors\"}}", "says that tensor a is in"},
        {"{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}", "not a file of this folder"},
        {"{\"weight_map\":{\"a\":7}}", "not a file of this folder"},
        {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", "gone.safetensors"},
        {"{\"weight_map\":{}}", "no weight_map"},
        {"{\"weight_map\":", "index.json"},
    };
    char *dir = temp_dir();
    ek_checkpoint *c;
    put_one(dir, "model-1.safetensors", "a");
    put_one(dir, "model-2.safetensors", "b");
    put_one(dir, "model-stray.safetensors", "a");
    put_text(dir, "model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}");
    assert_int_equal(reopen(dir, &c), EK_OK); /* the stray file is not named, so not read */
    assert_int_equal(ek_checkpoint_count(c), 2);
    ek_checkpoint_close(c);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_text(dir, "model.safetensors.index.json", wrong[i].index);
        ek_err err = reopen(dir, &c);
        if (err == EK_OK || !strstr(ek_err_text(), wrong[i].says))
            fail_msg("%s: \"%s\", wanted \"%s\"", wrong[i].index, ek_err_text(), wrong[i].says);
    }
    remove_dir(dir);
}

static void test_one_file(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[256];
    ek_checkpoint *c;
    put_one(dir, "w.safetensors", "a");
    snprintf(path, sizeof path, "%s/w.safetensors", dir);
    assert_int_equal(reopen(path, &c), EK_OK);
    assert_int_equal(ek_checkpoint_count(c), 1);
    ek_checkpoint_close(c);
    put_file(dir, "w.safetensors", "", 0);
    assert_int_equal(reopen(path, &c), EK_EFORMAT);
    strcat(path, "x");
    assert_int_equal(reopen(path, &c), EK_ENOTFOUND);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_headers),           cmocka_unit_test(test_bad_headers_are_reported),
        cmocka_unit_test(test_short_and_long_headers), cmocka_unit_test(test_folder_without_index),
        cmocka_unit_test(test_folder_with_index),      cmocka_unit_test(test_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
