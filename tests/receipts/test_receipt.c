/* Receipts without a model: what an attacker may do to one, and the check that finds it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "receipts/canonical.h"
#include "receipts/receipt.h"

static ek_signing_key *key, *other_key;

static int32_t prompt[] = {2, 105, 7, 9}, reply[] = {50, 51, 106};
static ek_hash rows[3] = {{{1}}, {{2}}, {{3}}};
static char *stops[] = {(char *)"END", (char *)""};
static size_t stop_len[] = {3, 0};

static ek_opening opening(void)
{
    return (ek_opening){.secret = {{42, 1}},
                        .prompt = prompt,
                        .n_prompt = 4,
                        .reply = reply,
                        .n_reply = 3,
                        .stop = stops,
                        .stop_len = stop_len,
                        .n_stop = 1,
                        .form = (char *)"{\"form\":1}",
                        .n_form = 10,
                        .row = rows};
}

static ek_statement statement(const ek_opening *o)
{
    static ek_stated_bias bias[] = {{7, -1.5f}};
    ek_statement s = {.profile = (char *)"ek3 w=q8 \"quoted\"",
                      .program = (char *)"0.1.0",
                      .api = (char *)"/v1/messages",
                      .log = (char *)"test/1"};
    memset(s.weights, 'a', 64);
    memset(s.tokenizer, 'b', 64);
    s.sampling.temperature = 0.7f, s.sampling.top_p = 1, s.sampling.seed = UINT64_MAX;
    s.sampling.from = EK_SEED_CLIENT;
    s.sampling.bias = bias, s.sampling.n_bias = 1;
    s.ends.max_tokens = 100, s.ends.context = 8192;
    snprintf(s.reply.finish, sizeof s.reply.finish, "stop");
    snprintf(s.nonce, sizeof s.nonce, "of the client");
    ek_statement_time(s.time, 1795952096);
    ek_receipt_commit(&s, o, ek_signing_key_public(key), "a text", 6);
    return s;
}

static char *receipt(const ek_signing_key *k)
{
    ek_buf out = {0};
    const ek_opening o = opening();
    const ek_statement s = statement(&o);
    assert_int_equal(ek_receipt_write(&out, &s, &o, k, NULL), EK_OK);
    return out.data;
}

static ek_receipt read_good(const char *text)
{
    ek_receipt r;
    const ek_err err = ek_receipt_read(&r, text, strlen(text), 0, NULL);
    if (err) print_message("%s\n", ek_err_text());
    assert_int_equal(err, EK_OK);
    return r;
}

static ek_signed signed_by(const char *text, const ek_signing_key *k)
{
    ek_signed s;
    ek_receipt r = read_good(text);
    assert_int_equal(ek_receipt_signed(&s, &r, ek_signing_key_public(k)), EK_OK);
    ek_receipt_fini(&r);
    return s;
}

static void a_receipt_says_what_was_put_in(void **state)
{
    (void)state;
    char *text = receipt(key);
    ek_receipt r = read_good(text);
    assert_string_equal(r.statement.profile, "ek3 w=q8 \"quoted\"");
    assert_true(r.statement.sampling.temperature == 0.7f);
    assert_true(r.statement.sampling.seed == UINT64_MAX);
    assert_int_equal(r.statement.sampling.from, EK_SEED_CLIENT);
    assert_int_equal(r.statement.sampling.n_bias, 1);
    assert_true(r.statement.sampling.bias[0].bias == -1.5f);
    assert_string_equal(r.statement.time, "2026-11-29T11:34:56Z");
    assert_string_equal(r.statement.log, "test/1");
    assert_int_equal(r.statement.prompt.n, 4);
    assert_int_equal(r.opening.n_reply, 3);
    assert_memory_equal(r.opening.row, rows, sizeof rows);
    assert_null(ek_receipt_opens(&r));
    ek_receipt_fini(&r);
    assert_int_equal(signed_by(text, key), EK_SIGNED_GOOD);
    assert_int_equal(signed_by(text, other_key), EK_SIGNED_OTHER);
    free(text);
    char *again = receipt(key), *once = receipt(key); /* equal statements, equal bytes */
    assert_string_equal(again, once);
    free(again), free(once);
}

/* The envelope with another payload under the old signature, or under one of k. */
static char *with_payload(const char *payload, size_t n, const ek_signing_key *k, const char *type)
{
    ek_buf out = {0}, message = {0};
    uint8_t sig[EK_SIGNATURE] = {0};
    ek_buf_fmt(&message, "DSSEv1 %zu %s %zu ", strlen(type), type, n);
    ek_buf_add(&message, payload, n);
    assert_int_equal(ek_sign(k, sig, message.data, message.len), EK_OK);
    ek_buf_fmt(&out, "{\"payloadType\":\"%s\",\"payload\":\"", type);
    ek_base64_encode(&out, payload, n);
    ek_buf_fmt(&out, "\",\"signatures\":[{\"keyid\":\"%s\",\"sig\":\"", ek_signing_key_public(k)->id);
    ek_base64_encode(&out, sig, sizeof sig);
    ek_buf_str(&out, "\"}]}");
    ek_buf_fini(&message);
    return out.data;
}

static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    ek_buf out = {0};
    assert_non_null(at);
    ek_buf_add(&out, text, (size_t)(at - text));
    ek_buf_str(&out, to);
    ek_buf_str(&out, at + strlen(from));
    return out.data;
}

static char *payload_of(const char *text)
{
    ek_receipt r = read_good(text);
    char *out = ek_strdup(ek_buf_text(&r.payload));
    ek_receipt_fini(&r);
    return out;
}

/* Each value changed: the signature says no. Signed again by whoever lacks the key: another key. */
static void a_changed_statement_is_not_signed(void **state)
{
    static const char *const change[][2] = {{"\"temperature\":\"3f333333\"", "\"temperature\":\"3f333334\""},
                                            {"\"seed\":\"18446744073709551615\"", "\"seed\":\"1\""},
                                            {"\"seed_from\":\"client\"", "\"seed_from\":\"server\""},
                                            {"T11:34:56Z", "T11:34:57Z"},
                                            {"\"weights_sha256\":\"aaaa", "\"weights_sha256\":\"aaab"},
                                            {"\"max_tokens\":100", "\"max_tokens\":101"},
                                            {"\"finish\":\"stop\"", "\"finish\":\"length\""},
                                            {"\"nonce\":\"of the client\"", "\"nonce\":\"of another\""},
                                            {"[7,\"bfc00000\"]", "[8,\"bfc00000\"]"},
                                            {"\"log\":\"test/1\"", "\"log\":\"test/2\""}};
    (void)state;
    char *text = receipt(key), *payload = payload_of(text);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        char *changed = replaced(payload, change[i][0], change[i][1]);
        ek_receipt r = read_good(text);
        ek_buf_clear(&r.payload);
        ek_buf_str(&r.payload, changed);
        ek_signed s;
        assert_int_equal(ek_receipt_signed(&s, &r, ek_signing_key_public(key)), EK_OK);
        assert_int_equal(s, EK_SIGNED_WRONG);
        ek_receipt_fini(&r);
        char *forged = with_payload(changed, strlen(changed), other_key, EK_RECEIPT_TYPE);
        assert_int_equal(signed_by(forged, key), EK_SIGNED_WRONG);       /* it says that it is by this key */
        assert_int_equal(signed_by(forged, other_key), EK_SIGNED_WRONG); /* and names another than it is signed by */
        free(forged);
        free(changed);
    }
    free(payload);
    free(text);
}

static void refused(const char *payload, size_t n, const char *why)
{
    ek_receipt r;
    char *text = with_payload(payload, n, key, EK_RECEIPT_TYPE);
    assert_int_equal(ek_receipt_read(&r, text, strlen(text), 0, NULL), EK_EFORMAT);
    if (!strstr(ek_err_text(), why)) print_message("%s\n", ek_err_text());
    assert_non_null(strstr(ek_err_text(), why));
    ek_receipt_fini(&r);
    free(text);
}

/* What two readers could read in two ways is refused, whoever signed it. */
static void a_payload_has_one_form(void **state)
{
    static const char *const change[][3] = {{"\"max_tokens\":100", "\"max_tokens\":1,\"max_tokens\":100", "canonical"},
                                            {"\"max_tokens\":100", "\"max_tokens\":100.0", "integer"},
                                            {"\"max_tokens\":100", "\"max_tokens\":1e2", "integer"},
                                            {"\"max_tokens\":100", "\"max_tokens\":9007199254740992", "integer"},
                                            {"\"max_tokens\":100", "\"max_tokens\":2147483648", "2^31"},
                                            {"\"max_tokens\":100", "\"max_tokens\":null", "null"},
                                            {"\"max_tokens\":100", "\"max_tokens\": 100", "canonical"},
                                            {"\"max_tokens\"", "\"m\\u0061x_tokens\"", "canonical"},
                                            {"\"max_tokens\":100", "\"max_tokens\":100,\"mm\":1", "known"},
                                            {"\"tokenizer_sha256\"", "\"tokenizer_sha257\"", "tokenizer_sha256"},
                                            {"\"version\":1", "\"version\":2", "version 2"},
                                            {"sha256-128x16", "sha256-128x17", "tree"},
                                            {"urn:evenkeel:receipt:1", "urn:evenkeel:receipt:2", "predicateType"},
                                            {"\"name\":\"reply\"", "\"name\":\"other\"", "subject"}};
    (void)state;
    char *text = receipt(key), *payload = payload_of(text);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        char *changed = replaced(payload, change[i][0], change[i][1]);
        refused(changed, strlen(changed), change[i][2]);
        free(changed);
    }
    ek_buf blank = {0};
    ek_buf_fmt(&blank, "%s ", payload);
    refused(blank.data, blank.len, "canonical");
    refused(blank.data, blank.len - 1 - 9, "JSON");
    ek_buf_fini(&blank);
    for (int i = 0; i < 100; i++) ek_buf_str(&blank, "[");
    refused(blank.data, blank.len, "depth");
    ek_buf_fini(&blank);
    /* Signed, but as something else. */
    ek_receipt r;
    char *typed = with_payload(payload, strlen(payload), key, "application/json");
    assert_int_equal(ek_receipt_read(&r, typed, strlen(typed), 0, NULL), EK_EFORMAT);
    ek_receipt_fini(&r);
    char *renamed = replaced(typed, "application/json", EK_RECEIPT_TYPE);
    assert_int_equal(signed_by(renamed, key), EK_SIGNED_WRONG);
    free(typed), free(renamed), free(payload), free(text);
}

/* An opening is believed where it gives the commitment: one changed token, text, form, root or salt does not. */
static void a_changed_opening_does_not_open(void **state)
{
    static const char *const change[][3] = {{"\"prompt\":[2,105", "\"prompt\":[2,106", "the prompt's tokens"},
                                            {"\"prompt\":[2,105,7,9]", "\"prompt\":[105,7,9]", "the prompt's tokens"},
                                            {"\"reply\":[50,51", "\"reply\":[50,52", "the reply's tokens"},
                                            {"\"reply\":[50,51,106]", "\"reply\":[51,50,106]", "the reply's tokens"},
                                            {"\"stop\":[\"END\"]", "\"stop\":[\"end\"]", "the stop strings"},
                                            {"\"stop\":[\"END\"]", "\"stop\":[]", "the stop strings"},
                                            {"{\\\"form\\\":1}", "{\\\"form\\\":2}", "the form"},
                                            {"\"row_roots\":\"AQ", "\"row_roots\":\"AR", "the roots of the rows"},
                                            {"\"salt\":\"2a01", "\"salt\":\"2a02", "the prompt's tokens"}};
    (void)state;
    char *text = receipt(key);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        char *changed = replaced(text, change[i][0], change[i][1]);
        ek_receipt r = read_good(changed);
        const char *what = ek_receipt_opens(&r);
        assert_non_null(what);
        assert_string_equal(what, change[i][2]);
        ek_receipt_fini(&r);
        assert_int_equal(signed_by(changed, key), EK_SIGNED_GOOD); /* the statement is as it was */
        free(changed);
    }
    /* An opening of another length is none. */
    ek_receipt r;
    char *shorter = replaced(text, "\"reply\":[50,51,106]", "\"reply\":[50,51]");
    assert_int_equal(ek_receipt_read(&r, shorter, strlen(shorter), 0, NULL), EK_EFORMAT);
    ek_receipt_fini(&r);
    free(shorter), free(text);
}

/* Receipts are found where people keep them. */
static void a_receipt_is_found_in_a_reply(void **state)
{
    int n;
    ek_receipt r;
    (void)state;
    char *text = receipt(key);
    static const char *const around[][2] = {{"{\"id\":\"x\",\"evenkeel\":{\"receipt\":", "}}"},
                                            {"{\"response\":{\"evenkeel\":{\"receipt\":", "}}}"},
                                            {"{\"receipt\":", "}"},
                                            {"[", "]"}};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        ek_buf b = {0};
        ek_buf_fmt(&b, "%s%s%s", around[i][0], text, around[i][1]);
        assert_int_equal(ek_receipt_read(&r, b.data, b.len, 0, &n), EK_OK);
        assert_int_equal(n, 1);
        ek_receipt_fini(&r);
        assert_int_equal(ek_receipt_read(&r, b.data, b.len, 1, &n), EK_ENOTFOUND);
        ek_receipt_fini(&r);
        ek_buf_fini(&b);
    }
    ek_buf two = {0};
    ek_buf_fmt(&two, "{\"evenkeel\":{\"receipt\":[%s,%s]}}", text, text);
    assert_int_equal(ek_receipt_read(&r, two.data, two.len, 1, &n), EK_OK);
    assert_int_equal(n, 2);
    ek_receipt_fini(&r);
    ek_buf_fini(&two);
    assert_int_equal(ek_receipt_read(&r, "{\"evenkeel\":{}}", 15, 0, &n), EK_ENOTFOUND);
    ek_receipt_fini(&r);
    free(text);
}

/* Two texts may not stand for one seed. */
static void a_nonce_gives_a_seed(void **state)
{
    (void)state;
    const uint64_t seed = ek_nonce_seed("n", prompt, 4);
    assert_true(seed < (uint64_t)1 << 53);
    assert_true(seed == ek_nonce_seed("n", prompt, 4));
    assert_true(seed != ek_nonce_seed("m", prompt, 4));
    assert_true(seed != ek_nonce_seed("n", prompt, 3));
    assert_true(ek_nonce_fits("abc", 3));
    assert_false(ek_nonce_fits("", 0));
    assert_false(ek_nonce_fits("a\nb", 3));
    char many[65];
    memset(many, 'x', sizeof many);
    assert_true(ek_nonce_fits(many, 64));
    assert_false(ek_nonce_fits(many, 65));
}

static int open_keys(void **state)
{
    uint8_t a[32] = {1}, b[32] = {2};
    (void)state;
    if (!ek_keys_built()) return 0;
    return ek_signing_key_of(&key, a) || ek_signing_key_of(&other_key, b);
}

static int close_keys(void **state)
{
    (void)state;
    ek_signing_key_close(key), ek_signing_key_close(other_key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receipt_says_what_was_put_in), cmocka_unit_test(a_changed_statement_is_not_signed),
        cmocka_unit_test(a_payload_has_one_form),         cmocka_unit_test(a_changed_opening_does_not_open),
        cmocka_unit_test(a_receipt_is_found_in_a_reply),  cmocka_unit_test(a_nonce_gives_a_seed),
    };
    if (!ek_keys_built()) {
        puts("libcrypto is missing");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_keys, close_keys);
}
