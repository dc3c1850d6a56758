/* Names of models, the addresses and folders made of them, and where the cache is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../support/files.h"
#include "hub/client.h"
#include "hub/name.h"

static void a_name_has_three_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *repo, *revision, *file;
    } good[] = {
        {"google/gemma-4-E2B-it", "google/gemma-4-E2B-it", "main", ""},
        {"a/b:Q4_K_M", "a/b", "main", "Q4_K_M"},
        {"a/b@v1.0", "a/b", "v1.0", ""},
        {"a/b@refs/pr/7:BF16/x-00001-of-00002.gguf", "a/b", "refs/pr/7", "BF16/x-00001-of-00002.gguf"},
        {"a/b:x@y.gguf", "a/b", "main", "x@y.gguf"},
        {"a_b.c/d.e_f", "a_b.c/d.e_f", "main", ""},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ek_hub_name n;
        ek_buf again = {0};
        assert_int_equal(ek_hub_name_parse(&n, good[i].text), EK_OK);
        assert_string_equal(n.repo, good[i].repo);
        assert_string_equal(n.revision, good[i].revision);
        assert_string_equal(n.file, good[i].file);
        ek_hub_name_text(&again, &n);
        assert_string_equal(again.data, good[i].text);
        ek_buf_fini(&again);
    }
}

static void what_is_no_name_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",         "a",       "a/",       "/a",      "a/b/c",    "../a",
                                      "a/..",     "a/b--c",  "-a/b",     "a/b-",    "a./b",     "a b/c",
                                      "a/b@",     "a/b:",    "a/b@../x", "a/b@/x",  "a/b:.",    "a/b:../x",
                                      "a/b:/etc", "a/b:x//", "a/b:x\\y", "a/b@x\n", "a/b:\x7f", "a/\xc3\xa9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_hub_name n;
        if (ek_hub_name_parse(&n, bad[i]) != EK_EINVAL) fail_msg("%s is taken", bad[i]);
    }
    char longer[3000] = "a/b:";
    memset(longer + 4, 'x', sizeof longer - 5);
    ek_hub_name n;
    assert_int_equal(ek_hub_name_parse(&n, longer), EK_EINVAL);
    memset(longer + 2, 'x', sizeof longer - 3);
    assert_int_equal(ek_hub_name_parse(&n, longer), EK_EINVAL);
}

static void a_path_stays_in_its_folder(void **state)
{
    (void)state;
    char part[258] = "";
    memset(part, 'p', 256);
    static const char *const bad[] = {"",    "/",   "/x",   "x/",     "x//y", ".",    "..",
                                      "./x", "x/.", "x/..", "x/../y", "../x", "a\nb", "a\\b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(ek_hub_is_path(bad[i]));
    assert_false(ek_hub_is_path(part));
    part[255] = '\0';
    assert_true(ek_hub_is_path(part));
    assert_true(ek_hub_is_path("..."));
    assert_true(ek_hub_is_path("a b/..c/d..e/\xc3\xa9.json"));
}

static void folders_and_addresses(void **state)
{
    (void)state;
    ek_buf b = {0};
    char repo[EK_HUB_REPO];
    ek_hub_folder(&b, "google/gemma-4");
    assert_string_equal(b.data, "models--google--gemma-4");
    assert_true(ek_hub_repo_of(repo, b.data));
    assert_string_equal(repo, "google/gemma-4");
    assert_false(ek_hub_repo_of(repo, "datasets--google--x"));
    assert_false(ek_hub_repo_of(repo, "models--google"));
    assert_false(ek_hub_repo_of(repo, "models--google--x--y"));
    ek_buf_clear(&b);
    ek_hub_url_list(&b, "http://h", "a/b", "refs/pr/1");
    assert_string_equal(b.data, "http://h/api/models/a/b/revision/refs%2Fpr%2F1?blobs=true");
    ek_buf_clear(&b);
    ek_hub_url_file(&b, "http://h", "a/b", "c0", "x y/\xc3\xa9?#%.gguf");
    assert_string_equal(b.data, "http://h/a/b/resolve/c0/x%20y/%C3%A9%3F%23%25.gguf");
    ek_buf_fini(&b);
}

/* A small environment: pairs. */
static const char *const *variables;

static char *env(const char *name)
{
    for (const char *const *v = variables; *v; v += 2)
        if (!strcmp(v[0], name)) return (char *)v[1];
    return NULL;
}

static void the_cache_is_where_others_look_for_it(void **state)
{
    (void)state;
    static const struct {
        const char *v[12], *cache;
    } places[] = {
        {{"HOME", "/h", NULL}, "/h/.cache/huggingface/hub"},
        {{"HOME", "/h", "XDG_CACHE_HOME", "/x", NULL}, "/x/huggingface/hub"},
        {{"HOME", "/h", "XDG_CACHE_HOME", "/x", "HF_HOME", "/hf", NULL}, "/hf/hub"},
        {{"HOME", "/h", "HF_HOME", "~/hf", NULL}, "/h/hf/hub"},
        {{"HF_HOME", "/hf", "HUGGINGFACE_HUB_CACHE", "/old", NULL}, "/old"},
        {{"HF_HOME", "/hf", "HUGGINGFACE_HUB_CACHE", "/old", "HF_HUB_CACHE", "/new", NULL}, "/new"},
        {{"HF_HOME", "", "HOME", "/h", "HF_HUB_CACHE", "", NULL}, "/h/.cache/huggingface/hub"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        ek_hub_places p;
        variables = places[i].v;
        assert_int_equal(ek_hub_places_init(&p, env), EK_OK);
        assert_string_equal(p.cache, places[i].cache);
        assert_string_equal(p.endpoint, "https://huggingface.co");
        assert_null(p.token);
        assert_false(p.offline);
        ek_hub_places_fini(&p);
    }
    ek_hub_places p;
    variables = (const char *const[]){NULL};
    assert_int_equal(ek_hub_places_init(&p, env), EK_EINVAL);
    ek_hub_places_fini(&p);
}

static void token_endpoint_and_offline(void **state)
{
    (void)state;
    char *dir = temp_dir();
    ek_hub_places p;
    put_text(dir, "token", "  hf_file \n");
    variables = (const char *const[]){"HF_HOME", dir, "HF_ENDPOINT", "http://m/x//", "HF_HUB_OFFLINE", "yes", NULL};
    assert_int_equal(ek_hub_places_init(&p, env), EK_OK);
    assert_string_equal(p.token, "hf_file");
    assert_string_equal(p.endpoint, "http://m/x");
    assert_true(p.offline);
    ek_hub_places_fini(&p);
    variables = (const char *const[]){"HF_HOME", dir, "HF_TOKEN", "hf_env", "HF_HUB_OFFLINE", "0", NULL};
    assert_int_equal(ek_hub_places_init(&p, env), EK_OK);
    assert_string_equal(p.token, "hf_env");
    assert_false(p.offline);
    ek_hub_places_fini(&p);
    variables = (const char *const[]){"HF_HOME", dir, "HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", NULL};
    assert_int_equal(ek_hub_places_init(&p, env), EK_OK);
    assert_null(p.token);
    ek_hub_places_fini(&p);
    static const char *const wrong[][2] = {
        {"HF_ENDPOINT", "huggingface.co"}, {"HF_ENDPOINT", "http://"}, {"HF_ENDPOINT", "http://u@h"},
        {"HF_ENDPOINT", "http://h/?x"},    {"HF_TOKEN", "a\nb"},       {"HF_HUB_DOWNLOAD_TIMEOUT", "soon"},
        {"HF_HUB_DOWNLOAD_TIMEOUT", "0"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        variables = (const char *const[]){"HF_HOME", dir, wrong[i][0], wrong[i][1], NULL};
        if (ek_hub_places_init(&p, env) != EK_EINVAL) fail_msg("%s=%s is taken", wrong[i][0], wrong[i][1]);
        ek_hub_places_fini(&p);
    }
    remove_dir(dir);
}

static void the_token_goes_to_one_origin(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {
        {"https://h", "https://h/x?y", true},
        {"https://H:443/x", "https://h/", true},
        {"http://h:80", "http://h", true},
        {"http://[::1]:8080", "http://[::1]:8080/x", true},
        {"https://h", "http://h", false},
        {"https://h", "https://h:444", false},
        {"https://h", "https://h.evil", false},
        {"https://h", "https://evil/h", false},
        {"https://h", "https://h@evil", false},
        {"https://h", "https://h:443@evil", false},
        {"https://h", "https://evil\\@h", false},
        {"https://h", "https://h:x", false},
        {"https://h", "https://h:", false},
        {"http://[::1]:80", "http://[::2]:80", false},
        {"https://h", "ftp://h", false},
        {"https://h", "https://", false},
        {"https://h", "", false},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (ek_client_same_origin(pairs[i].a, pairs[i].b) != pairs[i].same)
            fail_msg("%s and %s", pairs[i].a, pairs[i].b);
}

static void headers_that_say_how_long_to_wait(void **state)
{
    (void)state;
    int64_t from, total;
    assert_true(ek_client_retry_after("120", 0) == 120);
    assert_true(ek_client_retry_after("0.5 ", 0) == 0.5);
    assert_true(ek_client_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 - 30) == 30);
    assert_true(ek_client_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 + 30) == 0);
    assert_true(ek_client_retry_after("soon", 0) == -1);
    assert_true(ek_client_retry_after("-1", 0) == -1);
    assert_true(ek_client_retry_after("", 0) == -1);
    assert_true(ek_client_rate_limit("\"resolvers\";r=0;t=55") == 55);
    assert_true(ek_client_rate_limit("\"resolvers\";r=7;t=55") == -1);
    assert_true(ek_client_rate_limit("x") == -1);
    assert_true(ek_client_content_range("bytes 5-9/20", &from, &total) && from == 5 && total == 20);
    assert_false(ek_client_content_range("bytes 5-9/*", &from, &total));
    assert_false(ek_client_content_range("bytes 9-5/20", &from, &total));
    assert_false(ek_client_content_range("bytes 5-20/20", &from, &total));
    assert_false(ek_client_content_range("bytes -5-9/20", &from, &total));
}

/* Each is a name that pull takes, once, and sizes stand for their first row. */
static void short_names_are_names(void **state)
{
    (void)state;
    for (int i = 0; i < ek_hub_n_shorts; i++) {
        const ek_hub_short *s = &ek_hub_shorts[i];
        ek_hub_name n;
        assert_int_equal(ek_hub_name_parse(&n, s->model), EK_OK);
        assert_int_equal(ek_hub_name_parse(&n, s->name), EK_EINVAL); /* no repository hides behind it */
        assert_ptr_equal(ek_hub_short_find(s->name), s);             /* the first of its name */
        assert_true(s->gigabytes > 1 && s->gigabytes < 100 && *s->text);
        size_t size = strcspn(s->name, ":");
        if (i > 0 && strncmp(s->name, s[-1].name, size + 1) && strncmp(s->name, s[-1].name, size))
            assert_int_equal(s->name[size], '\0'); /* a size begins with its own name */
    }
    assert_string_equal(ek_hub_short_find("E2B:Q8")->name, "e2b:q8");
    static const char *const none[] = {"",        "e2",     "e2bb",      "e2b:q9",     "gemma", "google/gemma-4-E2B-it",
                                       " e2b",    "gemma3", "it",        "gemma4:27b", "q8",    "gemma-4-E2B-it-Q3_K_S",
                                       "gemma4b", "4",      "e2b or e4b"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_null(ek_hub_short_find(none[i]));
}

/* What others call the same weights. */
static void names_of_others_are_names(void **state)
{
    (void)state;
    static const char *const same[][2] = {{"gemma4:e2b", "e2b"},
                                          {"Gemma4:E4B", "e4b"},
                                          {"gemma4", "e4b"},
                                          {"gemma4:latest", "e4b"},
                                          {"gemma4:12b", "12b"},
                                          {"gemma4:26b-a4b-it-q8_0", "26b:q8"},
                                          {"gemma4:31b-it-q4_K_M", "31b:q4_k_m"},
                                          {"gemma4:e2b-it-bf16", "e2b:bf16"},
                                          {"library/gemma4:e2b", "e2b"},
                                          {"gemma-4-E2B-it", "e2b:bf16"},
                                          {"gemma-4-26b-a4b-it", "26b:bf16"},
                                          {"gemma-4-E2B-it-qat-q4_0-gguf", "e2b"},
                                          {"gemma-4-E4B-it-GGUF:Q8_0", "e4b:q8"},
                                          {"gemma-4-31b-it-8bit", "31b:8bit"},
                                          {"gemma-4-e2b", "e2b"},
                                          {"E4B-it", "e4b"},
                                          {"26b-a4b", "26b"},
                                          {"12b-it-q8_0", "12b:q8"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const ek_hub_short *s = ek_hub_short_find(same[i][0]);
        if (!s) fail_msg("%s is no name", same[i][0]);
        assert_string_equal(s->name, same[i][1]);
    }
    static const char *const other[] = {"llama3", "llama3.2:1b",   "qwen",       "Qwen3-4B",
                                        "phi4",   "gemma-3-4b-it", "gpt-oss:20b"};
    static const char *const none[] = {"hello", "philosophy", "llamas", "granite", "phi",
                                       "llama", "gemma",      "e2b",    "mistrals"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!ek_hub_is_other_family(other[i])) fail_msg("%s", other[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (ek_hub_is_other_family(none[i])) fail_msg("%s", none[i]);
    assert_string_equal(ek_hub_short_near("e2bb")->name, "e2b");
    assert_string_equal(ek_hub_short_near("E4B:Q9")->name, "e4b:q4");
    assert_null(ek_hub_short_near("hello"));
}

/* The Hub's address before a name, as a browser has it. */
static void addresses_of_the_hub_are_names(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"hf.co/org/name:Q4_K_M", "org/name:Q4_K_M"},
        {"https://huggingface.co/org/name", "org/name"},
        {"https://huggingface.co/org/name/tree/main", "org/name@main"},
        {"http://hf.co/org/name/blob/v1/a/b.gguf?download=true", "org/name@v1:a/b.gguf"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        ek_hub_name n;
        ek_buf got = {0};
        assert_int_equal(ek_hub_name_parse(&n, same[i][0]), EK_OK);
        ek_hub_name_text(&got, &n);
        assert_string_equal(ek_buf_text(&got), same[i][1]);
        ek_buf_fini(&got);
    }
    ek_hub_name n;
    assert_int_equal(ek_hub_name_parse(&n, "https://example.com/org/name"), EK_EINVAL);
    assert_int_equal(ek_hub_name_parse(&n, "hf.co/"), EK_EINVAL);
}

static void suggested(const char *text, const char *want)
{
    ek_buf got = {0};
    ek_hub_short_suggest(&got, text);
    assert_string_equal(ek_buf_text(&got), want);
    ek_buf_fini(&got);
}

static void names_are_suggested_by_size(void **state)
{
    (void)state;
    suggested("gemma", "e2b, e4b, 12b, 26b, 31b");
    suggested("", "e2b, e4b, 12b, 26b, 31b");
    suggested("e2bx", "e2b, e4b, 12b, 26b, 31b");
    suggested("112b", "e2b, e4b, 12b, 26b, 31b");
    suggested("gemma-4-E2B-it", "e2b, e2b:q4, e2b:q4_k_m, e2b:4bit, e2b:q8, e2b:8bit, e2b:bf16");
    suggested("26b:q5", "26b, 26b:q4, 26b:q4_k_m, 26b:4bit, 26b:q8, 26b:8bit, 26b:bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_has_three_parts),
        cmocka_unit_test(what_is_no_name_is_refused),
        cmocka_unit_test(a_path_stays_in_its_folder),
        cmocka_unit_test(folders_and_addresses),
        cmocka_unit_test(the_cache_is_where_others_look_for_it),
        cmocka_unit_test(token_endpoint_and_offline),
        cmocka_unit_test(the_token_goes_to_one_origin),
        cmocka_unit_test(short_names_are_names),
        cmocka_unit_test(names_are_suggested_by_size),
        cmocka_unit_test(names_of_others_are_names),
        cmocka_unit_test(addresses_of_the_hub_are_names),
        cmocka_unit_test(headers_that_say_how_long_to_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
