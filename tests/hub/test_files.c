/* The API's list of files, and which of them a model needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "hub/cache.h"

#define SHA   "\"0123456789012345678901234567890123456789\""
#define BLOB  "\"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd\""
#define LARGE "\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddaaaaaaaaaabbbbbbbbbb0123\""

static void a_reply_is_read(void **state)
{
    (void)state;
    static const char reply[] = "{\"sha\":" SHA ",\"other\":[1],\"siblings\":["
                                "{\"rfilename\":\"x/model.safetensors\",\"size\":135,\"blobId\":" BLOB
                                ",\"lfs\":{\"sha256\":" LARGE ",\"size\":5000000000,\"pointerSize\":135}},"
                                "{\"rfilename\":\"config.json\",\"size\":7,\"blobId\":" BLOB ",\"lfs\":null}]}";
    ek_hub_files f;
    assert_int_equal(ek_hub_files_parse(&f, reply, sizeof reply - 1), EK_OK);
    assert_int_equal(f.n, 2);
    assert_string_equal(f.commit, "0123456789012345678901234567890123456789");
    assert_string_equal(f.v[0].path, "config.json");
    assert_int_equal(f.v[0].size, 7);
    assert_int_equal(strlen(f.v[0].hash), 40);
    assert_true(f.v[1].size == 5000000000);
    assert_int_equal(strlen(f.v[1].hash), 64);
    assert_ptr_equal(ek_hub_files_find(&f, "x/model.safetensors"), &f.v[1]);
    assert_null(ek_hub_files_find(&f, "x"));
    ek_hub_files_fini(&f);
}

/* Short in text, large once it is read. Before, such a list of 60 MB took 2.2 GB. */
static void large_lists_are_refused_unread(void **state)
{
    (void)state;
    static const char *const one[] = {"{},", "[[],", "0,", "\"\","};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        ek_buf b = {0};
        ek_hub_files f;
        ek_buf_str(&b, "{\"sha\":" SHA ",\"siblings\":[");
        while (b.len < 6 << 20) ek_buf_str(&b, one[i]);
        ek_buf_str(&b, "0]}");
        assert_int_equal(ek_hub_files_parse(&f, b.data, b.len), EK_EFORMAT);
        if (!strstr(ek_err_text(), "at most 60000 with 600000 are read")) fail_msg("%s: %s", one[i], ek_err_text());
        ek_buf_fini(&b);
    }
}

static void what_is_no_list_is_refused(void **state)
{
    (void)state;
#define LIST(sibling) "{\"sha\":" SHA ",\"siblings\":[" sibling "]}"
#define FILE_(name)   "{\"rfilename\":\"" name "\",\"size\":1,\"blobId\":" BLOB "}"
    static const struct {
        const char *reply, *says;
    } bad[] = {
        {"", "byte 0"},
        {"[]", "no commit"},
        {"{\"sha\":\"main\",\"siblings\":[]}", "no commit"},
        {"{\"sha\":" SHA "}", "no list"},
        {LIST("1"), "without a name"},
        {LIST(FILE_("../x")), "../x, which would be put outside"},
        {LIST(FILE_("/etc/x")), "outside"},
        {LIST(FILE_("a/../../b")), "outside"},
        {LIST(FILE_("a\\nb")), "outside"},
        {LIST(FILE_("x") "," FILE_("x")), "x twice"},
        {LIST("{\"rfilename\":\"x\",\"blobId\":" BLOB "}"), "no size for x"},
        {LIST("{\"rfilename\":\"x\",\"size\":-1,\"blobId\":" BLOB "}"), "no size for x"},
        {LIST("{\"rfilename\":\"x\",\"size\":1}"), "no hash for x"},
        {LIST("{\"rfilename\":\"x\",\"size\":1,\"blobId\":\"../../../../../../../../../../../etc/passwd\"}"),
         "no hash"},
        {LIST("{\"rfilename\":\"x\",\"lfs\":{\"size\":1,\"sha256\":" BLOB "}}"), "no hash for x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_hub_files f;
        if (ek_hub_files_parse(&f, bad[i].reply, strlen(bad[i].reply)) != EK_EFORMAT)
            fail_msg("%s is taken", bad[i].reply);
        if (!strstr(ek_err_text(), bad[i].says)) fail_msg("%s: %s", bad[i].reply, ek_err_text());
        assert_int_equal(f.n, 0);
    }
}

/* Names apart by blanks; the wanted ones in the order of their names, then what to open. */
static const char *chosen(const char *names, const char *which)
{
    static char out[2000];
    ek_hub_files f = {0};
    const char *main;
    char name[100];
    int took;
    for (const char *p = names; sscanf(p, "%99s%n", name, &took) == 1; p += took)
        ek_hub_files_add(&f, name, 5000000000, "");
    ek_hub_files_sort(&f);
    out[0] = '\0';
    if (ek_hub_choose(&f, "a/b", which, &main)) {
        snprintf(out, sizeof out, "%s", ek_err_text());
    } else {
        for (int i = 0; i < f.n; i++)
            if (f.v[i].wanted) snprintf(out + strlen(out), sizeof out - strlen(out), "%s ", f.v[i].path);
        snprintf(out + strlen(out), sizeof out - strlen(out), "-> %s", main ? main : "folder");
    }
    ek_hub_files_fini(&f);
    return out;
}

static void a_folder_of_safetensors(void **state)
{
    (void)state;
    assert_string_equal(
        chosen("config.json model.safetensors README.md tokenizer.json tokenizer.model x/y.json a.bin", ""),
        "config.json model.safetensors tokenizer.json -> folder");
    assert_string_equal(chosen("config.json model.safetensors tokenizer.model m.gguf", ""),
                        "config.json model.safetensors tokenizer.model -> folder");
    assert_string_equal(chosen("model.safetensors.index.json model-00001-of-00002.safetensors "
                               "model-00002-of-00002.safetensors model.safetensors",
                               ""),
                        "model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
                        "model.safetensors.index.json -> folder");
    assert_string_equal(chosen("model-00002-of-00002.safetensors config.json", ""),
                        "a/b: model-00001-of-00002.safetensors is missing, a part of 2");
    assert_string_equal(chosen("model-00001-of-00003.safetensors model-00003-of-00003.safetensors", ""),
                        "a/b: model-00002-of-00003.safetensors is missing, a part of 3");
    assert_string_equal(chosen("README.md", ""), "a/b holds neither safetensors nor a GGUF model");
}

static void a_gguf_file_by_its_quantisation(void **state)
{
    (void)state;
    static const char many[] = "m-Q4_K_M.gguf m-Q4_K_S.gguf m.Q4_0.gguf mmproj-Q4_0.gguf m-assistant-Q4_0.gguf "
                               "b/m-Q8_0-00001-of-00002.gguf b/m-Q8_0-00002-of-00002.gguf config.json";
    assert_string_equal(chosen(many, "q4_k_m"), "m-Q4_K_M.gguf -> m-Q4_K_M.gguf");
    assert_string_equal(chosen(many, "Q4_0"), "m.Q4_0.gguf -> m.Q4_0.gguf");
    assert_string_equal(chosen(many, "Q8_0"), "b/m-Q8_0-00001-of-00002.gguf b/m-Q8_0-00002-of-00002.gguf -> "
                                              "b/m-Q8_0-00001-of-00002.gguf");
    assert_string_equal(chosen(many, "mmproj-Q4_0.gguf"), "mmproj-Q4_0.gguf -> mmproj-Q4_0.gguf");
    assert_string_equal(chosen(many, "b/m-Q8_0-00002-of-00002.gguf"),
                        "b/m-Q8_0-00001-of-00002.gguf b/m-Q8_0-00002-of-00002.gguf -> b/m-Q8_0-00001-of-00002.gguf");
    assert_non_null(
        strstr(chosen(many, "Q4"), "no quantisation Q4; there are b/m-Q8_0-00001-of-00002.gguf (10.0 GB), "));
    assert_non_null(strstr(chosen(many, ""), "a/b:Q4_K_M or by file: b/m-Q8_0"));
    assert_string_equal(chosen("only.gguf mmproj-f16.gguf README.md", ""), "only.gguf -> only.gguf");
    assert_string_equal(chosen("m-assistant-Q4_0.gguf", ""), "m-assistant-Q4_0.gguf -> m-assistant-Q4_0.gguf");
    assert_string_equal(chosen("m-Q4_0-00001-of-00003.gguf m-Q4_0-00002-of-00003.gguf", "Q4_0"),
                        "a/b: m-Q4_0-00003-of-00003.gguf is missing, a part of 3");
    assert_string_equal(chosen("m-Q4_0-00002-of-00003.gguf m-Q4_0-00003-of-00003.gguf", "m-Q4_0-00002-of-00003.gguf"),
                        "a/b: m-Q4_0-00001-of-00003.gguf is missing, a part of 3");
    assert_string_equal(chosen("x.bin model.safetensors", "x.bin"), "x.bin -> x.bin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_is_read),
        cmocka_unit_test(large_lists_are_refused_unread),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(a_folder_of_safetensors),
        cmocka_unit_test(a_gguf_file_by_its_quantisation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
