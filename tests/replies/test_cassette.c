/* A file of replies: lines are records and back, and damage, other models, later versions and cut files cost what they
 * touch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/files.h"
#include "base/encoding.h"
#include "replies/ask.h"
#include "replies/cassette.h"

enum { VOCAB = 500, LINES = 7 };
static const char identity[] = "model 1, ek3";

/* Each i is another request, in another form. */
typedef struct sample {
    int32_t tokens[4];
    ek_media media;
    ek_part part;
    ek_logit_bias bias[3];
    ek_sampling sampling;
    ek_reply_ask ask;
} sample;

static void make_sample(sample *s, int i)
{
    *s = (sample){.tokens = {2, 105, 7, i}, .media = {.kind = (ek_part_kind)(i % EK_PART_KINDS)}, .part.first = 1};
    s->sampling = ek_sampling_greedy();
    for (size_t k = 0; k < sizeof s->media.digest; k++) s->media.digest[k] = (uint8_t)(7 * k + (size_t)i);
    s->part.media = &s->media;
    s->ask = (ek_reply_ask){.identity = identity, .tokens = s->tokens, .n_tokens = 4, .sampling = &s->sampling};
    if (i % 2) {
        s->sampling.temperature = 0.7f;
        s->sampling.top_p = 1 / 3.0f;
        s->sampling.min_p = 1e-7f;
        s->sampling.top_k = 40;
        s->sampling.seed = UINT64_MAX - (uint64_t)i;
    }
    if (i % 3 == 1) {
        s->bias[0] = (ek_logit_bias){9, -INFINITY};
        s->bias[1] = (ek_logit_bias){3, -0.1f};
        s->sampling.bias = s->bias;
        s->sampling.n_bias = 3; /* one that says nothing */
        s->sampling.presence_penalty = 0.3f;
    }
    if (i % 3 == 2) s->ask.part = &s->part, s->ask.n_parts = 1;
    if (i % 4 == 3) {
        s->ask.masked = true;
        s->ask.program = "0.1";
        s->ask.form = i % 8 == 3 ? "{\"text\":\"\xc3\xa9\"}" : NULL;
        s->ask.max_thinking = i;
        s->ask.thinking = i % 8 == 3;
    }
}

static ek_reply_record *record_of(int i)
{
    sample s;
    ek_buf ask = {0};
    ek_reply_key content, key;
    ek_logprobs p = {.self.logprob = -0.5f, .n_top = 2, .top = {{3, -0.25f}, {499, -7}}};
    ek_reply_draft d = {0};
    make_sample(&s, i);
    ek_reply_ask_write(&ask, &s.ask);
    ek_reply_content_key(&content, &s.ask);
    ek_reply_key_for(&key, &content, 77, "salt", 4); /* which no line has */
    for (int k = 0; k <= i; k++)
        ek_reply_draft_add(&d, (3 * i + k) % VOCAB, 0x0123456789abcdefu * (uint64_t)(k + 1),
                           i % 3 && k < i ? &p : NULL);
    ek_reply_record *r = ek_reply_record_make(&key, &d, ek_buf_text(&ask), ask.len);
    ek_buf_fini(&ask);
    return r;
}

static void line_of(ek_buf *out, int i, char sum[65])
{
    ek_reply_record *r = record_of(i);
    const ek_buf text = {.data = (char *)(uintptr_t) "a \"text\"\n", .len = 9};
    assert_int_equal(ek_cassette_line(out, r, identity, i % 2 ? &text : NULL, NULL, sum), EK_OK);
    ek_reply_record_release(r);
}

static void a_line_is_its_record(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        ek_buf line = {0}, again = {0};
        char sum[65], other[65];
        ek_reply_record *want = record_of(i), *got;
        ek_reply_key key;
        sample s;
        line_of(&line, i, sum);
        assert_int_equal(ek_cassette_line_read(&got, line.data, line.len - 1, identity, VOCAB, true, other), EK_OK);
        assert_string_equal(sum, other);
        make_sample(&s, i);
        ek_reply_content_key(&key, &s.ask);
        assert_memory_equal(ek_reply_record_key(got)->h, key.h, sizeof key.h);
        assert_int_equal(ek_reply_record_origin(got), EK_REPLY_FILE);
        assert_true(ek_reply_record_covers(got, want) && ek_reply_record_covers(want, got));
        size_t n_want, n_got;
        const uint8_t *a = ek_reply_record_bytes(want, &n_want), *b = ek_reply_record_bytes(got, &n_got);
        assert_int_equal(n_want, n_got);
        assert_memory_equal(a + 40, b + 40, n_want - 40 - 32); /* all but the key and the sum, what was asked too */
        assert_int_equal(ek_cassette_line(&again, got, identity, NULL, &key, other), EK_OK);
        assert_memory_equal(again.data, line.data, again.len - 2);
        ek_reply_record_release(want);
        ek_reply_record_release(got);
        ek_buf_fini(&line);
        ek_buf_fini(&again);
    }
}

/* Another spelling of the same line, as 1.00e-7 for 1e-07. */
static void says_the_same(const ek_reply_record *r, const char *line, size_t n)
{
    ek_buf again = {0};
    assert_int_equal(ek_cassette_line(&again, r, identity, NULL, NULL, NULL), EK_OK);
    if (again.len < n || memcmp(again.data, line, n)) fail_msg("%.*s is taken for %s", (int)n, line, again.data);
    ek_buf_fini(&again);
}

/* A changed byte is found wherever the line says something. */
static void a_changed_byte_is_found(void **state)
{
    (void)state;
    for (int i = 0; i < LINES; i++) {
        ek_buf line = {0};
        char sum[65];
        line_of(&line, i, sum);
        const char *text = strstr(line.data, ",\"text\"");
        const size_t n = text ? (size_t)(text - line.data) : line.len - 1;
        for (size_t at = 0; at < n; at++)
            for (int bit = 0; bit < 8; bit += 3) {
                ek_reply_record *r;
                line.data[at] ^= (char)(1 << bit);
                const bool taken = !ek_cassette_line_read(&r, line.data, line.len - 1, identity, VOCAB, true, sum);
                line.data[at] ^= (char)(1 << bit);
                if (!taken) continue;
                says_the_same(r, line.data, n);
                ek_reply_record_release(r);
            }
        ek_buf_fini(&line);
    }
}

static void says(const char *line, const char *what)
{
    ek_reply_record *r;
    char sum[65];
    assert_int_not_equal(ek_cassette_line_read(&r, line, strlen(line), identity, VOCAB, false, sum), EK_OK);
    if (!strstr(ek_err_text(), what)) fail_msg("\"%s\" does not say \"%s\"", ek_err_text(), what);
}

static void with(const char *from, const char *to, const char *what)
{
    ek_buf line = {0}, other = {0};
    char sum[65];
    line_of(&line, 3, sum);
    char *at = strstr(line.data, from);
    assert_non_null(at);
    ek_buf_add(&other, line.data, (size_t)(at - line.data));
    ek_buf_str(&other, to);
    ek_buf_str(&other, at + strlen(from));
    other.data[other.len - 1] = '\0';
    says(other.data, what);
    ek_buf_fini(&line);
    ek_buf_fini(&other);
}

static void refusals_say_why(void **state)
{
    (void)state;
    with("\"rows\"", "\"rowz\"", "\"rowz\", which this version does not know");
    with("\"top_k\":40", "\"top_k\":40,\"mirostat\":1", "\"mirostat\", which this version does not know");
    with("\"tokens\":[9", "\"tokens\":[500", "token 0 of the reply is none of the vocabulary's 500");
    with("\"top_k\":40", "\"top_k\":-1", "top_k is no whole number from 0");
    with("\"prompt\":[2", "\"prompt\":[3", "its sum is wrong");
    with("\"seed\":\"1", "\"seed\":\"91", "seed is no whole number");
    with("\"probs\":null", "\"probs\":\"AAAA\"", "probs has no base64 of 164 bytes");
    says("[1]", "the line is no object");
    /* A sum that fits, and a key of another request. */
    ek_buf line = {0}, forged = {0};
    char sum[65];
    line_of(&line, 0, sum);
    char *end = strstr(line.data, ",\"sum\"");
    line.data[8] = line.data[8] == 'a' ? 'b' : 'a';
    ek_sha256_hex(sum, line.data, (size_t)(end - line.data));
    ek_buf_add(&forged, line.data, (size_t)(end - line.data));
    ek_buf_fmt(&forged, ",\"sum\":\"%s\"}", sum);
    says(ek_buf_text(&forged), "its key is not that of its request");
    ek_buf_fini(&line);
    ek_buf_fini(&forged);
}

/* --- files --- */

static const ek_cassette_signer *signer_of_sections; /* NULL: none */

static void section(ek_buf *out, const char *of, int first, int end, bool has_end)
{
    ek_cassette_end e;
    ek_cassette_head(out, of);
    ek_cassette_end_init(&e);
    for (int i = first; i < end; i++) {
        char sum[65];
        line_of(out, i, sum);
        ek_cassette_end_add(&e, sum);
    }
    if (has_end) assert_int_equal(ek_cassette_end_line(out, of, &e, signer_of_sections), EK_OK);
}

typedef struct tally {
    int taken, refused;
    ek_buf reasons;
} tally;

static bool wants(void *arg, const char *of)
{
    (void)arg;
    return !strcmp(of, identity);
}

static void take(void *arg, const char *of, ek_reply_record *r)
{
    assert_string_equal(of, identity);
    ((tally *)arg)->taken++;
    ek_reply_record_release(r);
}

static void refuse(void *arg, size_t number, const char *reason)
{
    tally *t = arg;
    t->refused++;
    ek_buf_fmt(&t->reasons, "%zu: %s\n", number, reason);
}

static ek_cassette_counts read_text(const ek_buf *text, int taken, int refused, const char *reason)
{
    char *dir = temp_dir(), path[600];
    tally t = {0};
    ek_cassette_counts counts;
    const ek_cassette_read how = {.n_vocab = VOCAB, .wants = wants, .take = take, .refuse = refuse, .arg = &t};
    snprintf(path, sizeof path, "%s/replies.jsonl", dir);
    FILE *f = fopen(path, "wb");
    fwrite(text->data, 1, text->len, f);
    fclose(f);
    assert_int_equal(ek_cassette_read_file(&counts, path, &how), EK_OK);
    if (t.taken != taken || t.refused != refused)
        fail_msg("%d taken, %d refused: %s", t.taken, t.refused, ek_buf_text(&t.reasons));
    assert_int_equal(counts.taken, taken);
    if (reason && !strstr(ek_buf_text(&t.reasons), reason))
        fail_msg("no \"%s\" in %s", reason, ek_buf_text(&t.reasons));
    ek_buf_fini(&t.reasons);
    remove_dir(dir);
    return counts;
}

static void damage_costs_its_line(void **state)
{
    (void)state;
    ek_buf b = {0};
    section(&b, identity, 0, 5, true);
    read_text(&b, 5, 0, NULL);
    char *third = b.data;
    for (int i = 0; i < 3; i++) third = strchr(third, '\n') + 1;
    third[20] ^= 1;
    read_text(&b, 4, 2, "4: ");
    third[20] ^= 1;
    ek_buf crlf = {0};
    for (size_t i = 0; i < b.len; i++) ek_buf_fmt(&crlf, b.data[i] == '\n' ? "\r\n" : "%c", b.data[i]);
    read_text(&crlf, 5, 0, NULL);
    for (size_t cut = 1; cut < 80; cut += 7) { /* the end of the section is cut off in part */
        ek_buf part = {0};
        ek_buf_add(&part, b.data, b.len - cut);
        if (cut == 1) read_text(&part, 5, 0, NULL); /* the last line's end alone */
        else read_text(&part, 5, 2, "the file was cut");
        ek_buf_fini(&part);
    }
    ek_buf_fini(&crlf);
    ek_buf_fini(&b);
}

static void others_are_passed_over(void **state)
{
    (void)state;
    ek_buf b = {0};
    section(&b, "model 2, ek3", 0, 3, true);
    section(&b, identity, 2, 6, true);
    ek_buf_str(&b, "{\"evenkeel_replies\":2,\"identity\":\"model 1, ek3\"}\n");
    char sum[65];
    line_of(&b, 1, sum);
    ek_buf_str(&b, "{\"evenkeel_replies\":1,\"identity\":\"model 1, ek3\",\"salt\":1}\n");
    line_of(&b, 1, sum);
    section(&b, identity, 0, 1, true);
    const ek_cassette_counts c = read_text(&b, 5, 2, "version 2: this program reads version 1");
    assert_int_equal(c.others, 5);
    ek_buf_fini(&b);
}

static void too_long_a_line_is_passed_over(void **state)
{
    (void)state;
    ek_buf b = {0};
    section(&b, identity, 0, 1, false);
    for (size_t i = 0; i <= EK_CASSETTE_LINE / 1024; i++) ek_buf_fmt(&b, "%1024s", "[");
    ek_buf_char(&b, '\n');
    char sum[65];
    line_of(&b, 2, sum);
    read_text(&b, 2, 2, "67109888 bytes, 67108864 are allowed");
    ek_buf_fini(&b);
}

/* --- signatures: here the message itself, and a key of two letters --- */

static ek_err sign(void *arg, ek_buf *signature, const void *message, size_t n)
{
    (void)arg;
    ek_base64_encode(signature, message, n);
    return EK_OK;
}

static bool trusts(void *arg, const char *key, const char *signature, size_t n_signature, const void *message, size_t n)
{
    ek_buf got = {0};
    (void)arg;
    const bool is = !strcmp(key, "aa") && ek_base64_decode(&got, signature, n_signature) && got.len == n &&
                    !memcmp(got.data, message, n);
    ek_buf_fini(&got);
    return is;
}

static size_t taken_with_trust(const ek_buf *text, const char *says)
{
    tally t = {0};
    ek_cassette_counts counts;
    const ek_cassette_read how = {
        .n_vocab = VOCAB, .wants = wants, .take = take, .refuse = refuse, .trusts = trusts, .arg = &t};
    assert_int_equal(ek_cassette_read_text(&counts, text->data, text->len, &how), EK_OK);
    if (says && !strstr(ek_buf_text(&t.reasons), says)) fail_msg("no \"%s\" in %s", says, ek_buf_text(&t.reasons));
    if (!says) assert_int_equal(t.refused, 0);
    ek_buf_fini(&t.reasons);
    return counts.taken;
}

static void only_what_is_signed_is_trusted(void **state)
{
    (void)state;
    const ek_cassette_signer good = {sign, NULL, "aa"}, other = {sign, NULL, "bb"};
    static const char untrusted[] = "not signed by a key that is trusted";
    ek_buf b = {0};
    section(&b, identity, 0, 3, true);
    assert_int_equal(taken_with_trust(&b, untrusted), 0);
    signer_of_sections = &other;
    section(&b, identity, 3, 5, true);
    assert_int_equal(taken_with_trust(&b, untrusted), 0);
    ek_buf_clear(&b);
    signer_of_sections = &good;
    section(&b, identity, 0, 5, true);
    assert_int_equal(taken_with_trust(&b, NULL), 5);
    read_text(&b, 5, 0, NULL); /* who asks for none takes it too */
    char *third = b.data;
    for (int i = 0; i < 3; i++) third = strchr(third, '\n') + 1;
    third[20] ^= 1; /* a damaged line: the others are not what was signed */
    assert_int_equal(taken_with_trust(&b, "tells of other lines"), 0);
    third[20] ^= 1;
    ek_buf without = {0}; /* a line less */
    ek_buf_add(&without, b.data, (size_t)(third - b.data));
    ek_buf_str(&without, strchr(third, '\n') + 1);
    assert_int_equal(taken_with_trust(&without, "tells of other lines"), 0);
    b.len -= 20; /* cut */
    assert_int_equal(taken_with_trust(&b, "the file was cut"), 0);
    signer_of_sections = NULL;
    ek_buf_fini(&without);
    ek_buf_fini(&b);
}

/* --- answers --- */

static bool fits(void *arg, const char *of)
{
    return strstr(of, arg) != NULL;
}

static void it_answers_by_content_key(void **state)
{
    (void)state;
    char *dir = temp_dir(), path[600];
    const char *const paths[] = {path};
    ek_buf b = {0};
    ek_cassette *c;
    ek_cassette_head(&b, "model 2, ek3");
    for (int i = 0; i < 3; i++) {
        ek_reply_record *r = record_of(i);
        assert_int_equal(ek_cassette_line(&b, r, "model 2, ek3", NULL, NULL, NULL), EK_OK);
        ek_reply_record_release(r);
    }
    section(&b, identity, 0, 5, true);
    snprintf(path, sizeof path, "%s/replies.jsonl", dir);
    FILE *f = fopen(path, "wb");
    fwrite(b.data, 1, b.len, f);
    fclose(f);
    ek_cassette_opts opts = {.path = paths, .n = 1, .identity = "model 3", .n_vocab = VOCAB, .fits = fits};
    assert_int_equal(ek_cassette_open(&c, &opts), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "its replies are of model 1, ek3; this is model 3"));
    opts.identity = NULL;
    opts.arg = (void *)(uintptr_t) "model 4";
    assert_int_equal(ek_cassette_open(&c, &opts), EK_EINVAL);
    opts.arg = (void *)(uintptr_t) "model 1";
    assert_int_equal(ek_cassette_open(&c, &opts), EK_OK);
    assert_string_equal(ek_cassette_identity(c), identity);
    assert_int_equal(ek_cassette_entries(c), 5);
    ek_replies *store;
    const ek_replies_opts o = {.identity = identity, .n_vocab = VOCAB, .max_bytes = 65536};
    assert_int_equal(ek_replies_open(&store, &o), EK_OK);
    const ek_reply_backend backend = ek_cassette_backend(c);
    ek_replies_add(store, &backend);
    for (int i = 0; i < 6; i++) {
        sample s;
        ek_reply_key content, key;
        make_sample(&s, i);
        ek_reply_content_key(&content, &s.ask);
        ek_reply_key_for(&key, &content, (uint64_t)i, NULL, 0); /* whoever asks */
        ek_reply_record *r = ek_replies_find(store, &key, &content, (uint64_t)i);
        assert_int_equal(r != NULL, i < 5);
        if (r) assert_int_equal(ek_reply_record_tokens(r), i + 1);
        ek_buf near = {0};
        ek_replies_nearest(store, &near, &s.ask); /* the file's other sections count too */
        assert_int_equal(strstr(ek_buf_text(&near), "it is of model 2, ek3") != NULL, false);
        if (i == 5) assert_non_null(strstr(near.data, "the prompts differ from token 3 on (4 here, 4 there)"));
        ek_buf_clear(&near);
        s.ask.identity = "model 2, ek3";
        ek_replies_nearest(store, &near, &s.ask);
        assert_int_equal(strlen(near.data) == 64 + 2, i < 3); /* it is there: nothing differs */
        ek_buf_fini(&near);
        if (i == 4) ek_replies_wrong(store, r, "a test");
        ek_reply_record_release(r);
    }
    assert_int_equal(ek_cassette_entries(c), 0); /* a file that lied once is not asked again */
    ek_replies_close(store);
    ek_buf_fini(&b);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_its_record),      cmocka_unit_test(a_changed_byte_is_found),
        cmocka_unit_test(refusals_say_why),          cmocka_unit_test(damage_costs_its_line),
        cmocka_unit_test(others_are_passed_over),    cmocka_unit_test(too_long_a_line_is_passed_over),
        cmocka_unit_test(it_answers_by_content_key), cmocka_unit_test(only_what_is_signed_is_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
