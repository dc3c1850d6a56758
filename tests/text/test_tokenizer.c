#include "helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "text/utf8.h"

static void check_ids(const ek_tokenizer *t, const char *text, const size_t *control, size_t n_control,
                      const char *want)
{
    ek_ids ids = {0};
    ek_buf b = {0};
    assert_int_equal(ek_encode(t, text, strlen(text), control, n_control, &ids), EK_OK);
    for (size_t i = 0; i < ids.len; i++) {
        size_t n;
        const char *s = ek_tokenizer_bytes(t, ids.data[i], &n);
        ek_buf_fmt(&b, "%s%s", i ? "|" : "", ek_tokenizer_is_special(t, ids.data[i]) ? "*" : "");
        ek_buf_add(&b, s, n);
    }
    check_buf(&b, want);
    ek_buf_fini(&b);
    ek_ids_fini(&ids);
}

#define check_all(t, text, want) check_ids(t, text, NULL, EK_CONTROL_ALL, want)

static ek_tokenizer *make(const char *const *pieces, const char *const *merges)
{
    ek_buf b = {0};
    ek_tokenizer *t;
    tokenizer_json(&b, pieces, merges);
    if (ek_tokenizer_parse(&t, b.data, b.len) != EK_OK) fail_msg("%s", ek_err_text());
    ek_buf_fini(&b);
    return t;
}

static void merges_by_rank_then_place(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", "c", "ab", "bc", "aa", "abc", "aaa", NULL};
    static const char *const merges[] = {"b c", "a b", "a a", "aa a", "a bc", NULL};
    ek_tokenizer *t = make(pieces, merges);
    check_all(t, "abc", "abc"); /* bc first, then a bc */
    check_all(t, "abab", "ab|ab");
    check_all(t, "aaaa", "aa|aa"); /* both pairs before aa a is possible */
    check_all(t, "aaa", "aaa");
    check_all(t, "aaaaa", "aa|aaa");
    check_all(t, "", "");
    ek_tokenizer_close(t);
}

static void falls_back_to_bytes(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "\xE2\x96\x81", NULL};
    ek_tokenizer *t = make(pieces, NULL);
    check_all(t, "a\xC3\xA9", "a|\xC3|\xA9");
    check_all(t, "a a\xE2\x96\x81", "a| |a| ");
    ek_ids ids = {0};
    assert_int_equal(ek_encode(t,
                               "\xFF"
                               "a",
                               2, NULL, EK_CONTROL_ALL, &ids),
                     EK_OK); /* U+FFFD: EF BF BD */
    assert_int_equal(ids.len, 4);
    size_t n;
    assert_int_equal((uint8_t)*ek_tokenizer_bytes(t, ids.data[0], &n), 0xEF);
    ek_ids_fini(&ids);
    check_all(t, "<0x41>", "<|0|x|4|1|>"); /* a byte piece's name is no byte piece */
    ek_tokenizer_close(t);
}

static void control_tokens_only_where_meant(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    check_all(t, "<|turn>a<turn|><|turn>", "*<|turn>|a|*<turn|>|*<|turn>");
    static const size_t at[] = {0, 15};
    check_ids(t, "<|turn>a<turn|><|turn>", at, 2, "*<|turn>|a|<|t|u|r|n|||>|*<|turn>");
    check_ids(t, "<|turn>", NULL, 0, "<|||t|u|r|n|>");
    check_all(t, "<|tool_call>call:a{}<tool_call|>", "*<|tool_call>|call|:|a|{|}|*<tool_call|>");
    check_all(t, "<|tool", "<|||t|o|o|l");
    static const size_t wrong[] = {1, 3}; /* offsets where nothing starts are passed over */
    check_ids(t, "a <|turn>", wrong, 2, "a| |<|||t|u|r|n|>");
    ek_tokenizer_close(t);
}

/* Prefix property: the ids up to an added token depend on the text up to it alone. */
static void ids_before_a_marker_stay(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    static const char *const tails[] = {"", "thought", " a\n\n", "<turn|>"};
    for (size_t i = 0; i < 4; i++) {
        ek_buf b = {0};
        ek_ids ids = {0};
        ek_buf_fmt(&b, "thought\n call<|turn>%s", tails[i]);
        ek_encode(t, b.data, b.len, NULL, EK_CONTROL_ALL, &ids);
        assert_true(ids.len >= 5);
        assert_int_equal(ids.data[4], ek_tokenizer_id(t, "<|turn>"));
        assert_int_equal(ids.data[0], ek_tokenizer_id(t, "thought"));
        ek_ids_fini(&ids);
        ek_buf_fini(&b);
    }
    ek_tokenizer_close(t);
}

static void added_token_flags(void **state)
{
    (void)state;
    ek_buf b = {0};
    static const char *const pieces[] = {"a", "b", "\xE2\x96\x81", NULL};
    tokenizer_json(&b, pieces, NULL);
    const char *at = strstr(b.data, "],\"normalizer\"");
    ek_buf c = {0};
    ek_buf_add(&c, b.data, (size_t)(at - b.data));
    ek_buf_str(
        &c, ",{\"id\":900,\"content\":\"[L]\",\"lstrip\":true,\"special\":false}"
            ",{\"id\":901,\"content\":\"[R]\",\"rstrip\":true,\"special\":false}"
            ",{\"id\":902,\"content\":\"[W]\",\"single_word\":true,\"special\":false}"
            ",{\"id\":903,\"content\":\"x y\",\"normalized\":true,\"special\":false}"
            ",{\"id\":904,\"content\":\"[LL]\",\"special\":false},{\"id\":905,\"content\":\"[L\",\"special\":false}");
    ek_buf_str(&c, at);
    ek_tokenizer *t;
    if (ek_tokenizer_parse(&t, c.data, c.len) != EK_OK) fail_msg("%s", ek_err_text());
    assert_int_equal(ek_tokenizer_size(t), 906);
    check_all(t, "a  [L] b", "a|[L]| |b");
    check_all(t, "a [R] \n b", "a| |[R]|b");
    check_all(t, "a[W]a [W] a", "a|[|W|]|a| |[W]| |a");
    check_all(t, "ax yb", "a|x y|b");
    check_all(t, "a[LL][L][L", "a|[LL]|[L]|[L"); /* the longest wins */
    check_ids(t, "[LL]", NULL, 0, "[LL]");       /* not special: always counts */
    check_all(t, "[R]  [L]a", "[R]|[L]|a");      /* white space goes once */
    ek_tokenizer_close(t);
    ek_buf_fini(&b);
    ek_buf_fini(&c);
}

/* The rule, word for word: again and again the best ranked pair, leftmost first. */
static void naive(ek_ids *out, const ek_tokenizer *t, const char *s, char names[][16], int (*pairs)[3], int n_pairs)
{
    int ids[4096], n = 0;
    for (size_t i = 0; s[i];) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, strlen(s + i), &cp);
        char piece[8] = {0};
        memcpy(piece, cp == ' ' ? "\xE2\x96\x81" : s + i, cp == ' ' ? 3 : (size_t)len);
        ids[n++] = ek_tokenizer_id(t, piece);
        i += (size_t)len;
    }
    (void)names;
    for (;;) {
        int best = n_pairs, at = -1;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (pairs[k][0] == ids[i] && pairs[k][1] == ids[i + 1]) best = k, at = i;
        if (at < 0) break;
        ids[at] = pairs[best][2];
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
    for (int i = 0; i < n; i++) ek_ids_add(out, ids[i]);
}

static void agrees_with_the_rule(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        dice d = {.seed = seed};
        char names[60][16] = {"a", "b", "c", "\xE2\x96\x81", "\n", "\xC3\xA9"};
        char merges[120][40];
        const char *pieces[64] = {0}, *merge_list[128] = {0};
        int n = 6, n_merges = 0, pairs[120][3];
        bool crossing = seed % 2; /* odd seeds: pieces that mix spaces with others, so no cuts */
        while (n < 40) {
            char *x = names[roll(&d, (uint32_t)n)], *y = names[roll(&d, (uint32_t)n)];
            if (strlen(x) + strlen(y) > 12) continue;
            char made[32];
            snprintf(made, sizeof made, "%s%s", x, y);
            bool mixed = (strstr(y, "\xE2\x96\x81") && !(x[0] == '\xE2' && strspn(x, "\xE2\x96\x81") == strlen(x))) ||
                         (strchr(made, '\n') && strspn(made, "\n") != strlen(made));
            if (mixed && !crossing) continue;
            bool known = false;
            for (int i = 0; i < n; i++) known |= strcmp(names[i], made) == 0;
            if (!known) snprintf(names[n++], 16, "%.15s", made);
        }
        for (int i = 0; i < n; i++) pieces[i] = names[i];
        ek_tokenizer *probe = make(pieces, NULL);
        for (int tries = 0; tries < 4000 && n_merges < 100; tries++) {
            char *x = names[roll(&d, (uint32_t)n)], *y = names[roll(&d, (uint32_t)n)], made[40];
            snprintf(made, sizeof made, "%s%s", x, y);
            int pair[3] = {ek_tokenizer_id(probe, x), ek_tokenizer_id(probe, y), ek_tokenizer_id(probe, made)};
            bool known = pair[2] < 0;
            for (int i = 0; i < n_merges; i++) known |= pairs[i][0] == pair[0] && pairs[i][1] == pair[1];
            if (known) continue;
            memcpy(pairs[n_merges], pair, sizeof pair);
            snprintf(merges[n_merges], sizeof merges[0], "%s %s", x, y);
            merge_list[n_merges] = merges[n_merges];
            n_merges++;
        }
        ek_tokenizer_close(probe);
        ek_tokenizer *t = make(pieces, merge_list);
        for (int run = 0; run < 30; run++) {
            ek_buf s = {0};
            int length = (int)roll(&d, run < 25 ? 30 : 400);
            static const char *const letters[] = {"a", "b", "c", " ", "\n", "\xC3\xA9", "a", "\xE2\x96\x81"};
            for (int i = 0; i < length; i++) ek_buf_str(&s, letters[roll(&d, 8)]);
            ek_ids want = {0}, got = {0};
            naive(&want, t, ek_buf_text(&s), names, pairs, n_merges);
            ek_encode(t, ek_buf_text(&s), s.len, NULL, 0, &got);
            if (want.len != got.len || (got.len && memcmp(want.data, got.data, got.len * sizeof *got.data)))
                fail_msg("seed %d run %d: '%s' gives %d ids, the rule %d", (int)seed, run, ek_buf_text(&s),
                         (int)got.len, (int)want.len);
            ek_ids_fini(&want);
            ek_ids_fini(&got);
            ek_buf_fini(&s);
        }
        ek_tokenizer_close(t);
    }
}

static void decodes_like_the_reference(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    int32_t byte0 = ek_tokenizer_id(t, "<0x00>"), a = ek_tokenizer_id(t, "a"), turn = ek_tokenizer_id(t, "<|turn>"),
            space_a = ek_tokenizer_id(t, "\xE2\x96\x81"
                                         "a");
    const int32_t ids[] = {a,       byte0 + 0xC3, byte0 + 0xA9, turn,  byte0 + 0xC3, byte0 + 0x41,
                           space_a, byte0 + 0xFF, -1,           99999, byte0 + 0x42};
    ek_buf b = {0};
    ek_decode(t, ids, sizeof ids / sizeof *ids, false, &b);
    check_buf(&b, "a\xC3\xA9<|turn>" EK_UTF8_BAD EK_UTF8_BAD " a" EK_UTF8_BAD EK_UTF8_BAD);
    ek_buf_clear(&b);
    /* A dropped special token joins the bytes around it into one run. */
    ek_decode(t, ids, sizeof ids / sizeof *ids, true, &b);
    check_buf(&b, "a" EK_UTF8_BAD EK_UTF8_BAD EK_UTF8_BAD EK_UTF8_BAD " a" EK_UTF8_BAD EK_UTF8_BAD);
    ek_buf_fini(&b);
    ek_tokenizer_close(t);
}

static void streams_what_it_decodes(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    dice d = {.seed = 3};
    for (int run = 0; run < 2000; run++) {
        int32_t ids[12];
        size_t n = roll(&d, 12);
        ek_buf raw = {0}, stream = {0}, clean = {0}, batch = {0};
        ek_utf8_stream u = {{0}, 0};
        for (size_t i = 0; i < n; i++) {
            ids[i] = roll(&d, 3) ? (int32_t)roll(&d, (uint32_t)ek_tokenizer_size(t))
                                 : ek_tokenizer_id(t, "<0xC3>") + (int)roll(&d, 2) * -0x1A;
            size_t len;
            const char *s = ek_tokenizer_bytes(t, ids[i], &len);
            ek_buf_add(&raw, s, len);
            ek_utf8_stream_add(&u, &stream, s, len);
        }
        ek_utf8_stream_end(&u, &stream);
        ek_utf8_clean(&clean, ek_buf_text(&raw), raw.len);
        check_bytes(ek_buf_text(&stream), stream.len, ek_buf_text(&clean), clean.len, __FILE__, __LINE__);
        ek_decode(t, ids, n, false, &batch);
        if (ek_utf8_valid(ek_buf_text(&raw), raw.len))
            check_bytes(ek_buf_text(&batch), batch.len, ek_buf_text(&stream), stream.len, __FILE__, __LINE__);
        assert_true(ek_utf8_valid(ek_buf_text(&batch), batch.len));
        ek_buf_fini(&raw);
        ek_buf_fini(&stream);
        ek_buf_fini(&clean);
        ek_buf_fini(&batch);
    }
    ek_tokenizer_close(t);
}

static void long_words_are_fast(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", "aa", "ab", "aab", "aaaa", NULL};
    static const char *const merges[] = {"a a", "a b", "aa b", "aa aa", NULL};
    ek_tokenizer *t = make(pieces, merges);
    ek_buf s = {0};
    for (int i = 0; i < 2000000; i++) ek_buf_char(&s, i % 7 == 3 ? 'b' : 'a');
    ek_ids ids = {0};
    assert_int_equal(ek_encode(t, s.data, s.len, NULL, 0, &ids), EK_OK); /* quadratic time would not end */
    ek_buf back = {0};
    ek_decode(t, ids.data, ids.len, false, &back);
    check_bytes(back.data, back.len, s.data, s.len, __FILE__, __LINE__);
    ek_ids_fini(&ids);
    ek_buf_fini(&back);
    ek_buf_fini(&s);
    ek_tokenizer_close(t);
}

/* Replaces the first occurrence of from in a good file and expects a refusal that says want. */
static void check_refused(const char *from, const char *to, const char *want)
{
    static const char *const pieces[] = {"a", "b", "ab", "\xE2\x96\x81", NULL};
    static const char *const merges[] = {"a b", NULL};
    ek_buf b = {0}, c = {0};
    tokenizer_json(&b, pieces, merges);
    const char *at = strstr(b.data, from);
    assert_non_null(at);
    ek_buf_add(&c, b.data, (size_t)(at - b.data));
    ek_buf_str(&c, to);
    ek_buf_str(&c, at + strlen(from));
    ek_tokenizer *t;
    if (ek_tokenizer_parse(&t, c.data, c.len) == EK_OK) fail_msg("accepted with %s", to);
    assert_null(t);
    if (!strstr(ek_err_text(), want)) fail_msg("want '%s' in: %s", want, ek_err_text());
    assert_null(strchr(ek_err_text(), '\n'));
    ek_buf_fini(&b);
    ek_buf_fini(&c);
}

static void refuses_half_files(void **state)
{
    (void)state;
    check_refused("\"model\"", "\"modal\"", "model is missing");
    check_refused("\"vocab\"", "\"vocap\"", "model.vocab is missing");
    check_refused("\"merges\"", "\"merge\"", "model.merges is missing");
    check_refused("\"<0x41>\"", "\"<0x4_>\"", "byte piece <0x41> is missing");
    check_refused("\"merges\":[\"a b\"", "\"merges\":[\"a b\",\"b z\"",
                  "merge 1, 'b' and 'z': the second is not in the vocabulary");
    check_refused("\"merges\":[\"a b\"", "\"merges\":[\"b a\"", "what they make is not in the vocabulary");
    check_refused("\"merges\":[\"a b\"", "\"merges\":[\"ab\"", "not two pieces");
    check_refused("\"a\":", "\"ab\":", "'ab' has the ids");
    check_refused("\"b\":274", "\"b\":273", "id 273 belongs to 'a' and to 'b'");
    check_refused("\"b\":274", "\"b\":-1", "expected a whole number");
    check_refused("\"b\":274", "\"b\":99999999999", "ids go from 0 to");
    check_refused("\"b\":274", "\"b\":9999999", "ids up to 9999999");
    check_refused("\"b\":274", "\"b\":2.5", "expected a whole number");
    check_refused("\"b\":274", "\"b\n\":274", "a raw control character in a string");
    check_refused("\"b\":274", "\"b\xFF\":274", "model.vocab: byte");
    check_refused("\"content\":\"<bos>\"", "\"content\":\"<b>\"", "added token '<b>' has id 2, which is '<bos>'");
    check_refused("\"content\":\"<bos>\"", "\"kontent\":\"<bos>\"", "added token 2 has no content");
    check_refused("\"type\":\"BPE\"", "\"type\":\"Unigram\"", "supported is BPE");
    check_refused("\"ByteFallback\"", "\"Strip\"", "decoder step 1 is 'Strip'");
    check_refused("\"type\":\"Replace\"", "\"type\":\"NFKC\"", "normalizer is of type 'NFKC'");
    check_refused("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"}",
                  "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}", "splits text");
    check_refused("\"unk_token\":\"<unk>\"", "\"unk_token\":\"<nok>\"", "unk_token '<nok>'");
    check_refused("]}}", "]}", "byte");
    check_refused("]}}", "]}}x", "text after the value");
}

static void reads_both_merge_forms(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", "ab", NULL};
    ek_buf b = {0};
    tokenizer_json(&b, pieces, NULL);
    char *at = strstr(b.data, "\"merges\":[]");
    assert_non_null(at);
    ek_buf c = {0};
    ek_buf_add(&c, b.data, (size_t)(at - b.data));
    ek_buf_str(&c, "\"merges\":[[\"a\",\"b\"]]}}");
    ek_tokenizer *t;
    assert_int_equal(ek_tokenizer_parse(&t, c.data, c.len), EK_OK);
    check_all(t, "abba", "ab|b|a");
    assert_int_equal(ek_tokenizer_id(t, "ab"), ek_tokenizer_size(t) - 1);
    assert_int_equal(ek_tokenizer_id(t, "nope"), -1);
    assert_false(ek_tokenizer_is_special(t, -5) || ek_tokenizer_is_special(t, 1 << 30));
    ek_tokenizer_close(t);
    ek_buf_fini(&b);
    ek_buf_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merges_by_rank_then_place),
                                       cmocka_unit_test(falls_back_to_bytes),
                                       cmocka_unit_test(control_tokens_only_where_meant),
                                       cmocka_unit_test(ids_before_a_marker_stay),
                                       cmocka_unit_test(added_token_flags),
                                       cmocka_unit_test(agrees_with_the_rule),
                                       cmocka_unit_test(decodes_like_the_reference),
                                       cmocka_unit_test(streams_what_it_decodes),
                                       cmocka_unit_test(long_words_are_fast),
                                       cmocka_unit_test(refuses_half_files),
                                       cmocka_unit_test(reads_both_merge_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
