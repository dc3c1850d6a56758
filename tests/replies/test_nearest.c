/* What a request that is not stored differs in from the nearest one that is: against a search of all, and each
 * difference by its sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/hash/rng.h"
#include "replies/ask.h"

enum { MOST = 7, REQUESTS = 300 };

typedef struct asked {
    int32_t tokens[MOST];
    ek_sampling sampling;
    ek_logit_bias bias;
    ek_media media;
    ek_part part;
    ek_reply_ask ask;
    ek_reply_key key;
} asked;

static void finish(asked *a)
{
    a->ask.tokens = a->tokens;
    a->ask.sampling = &a->sampling;
    ek_reply_content_key(&a->key, &a->ask);
}

static void make(asked *a, const char *identity, int n, const int32_t *tokens)
{
    *a = (asked){.sampling = ek_sampling_greedy(), .ask = {.identity = identity, .n_tokens = n}};
    if (n) memcpy(a->tokens, tokens, (size_t)n * sizeof *tokens);
    finish(a);
}

static void draw(asked *a, uint64_t i)
{
    int32_t tokens[MOST];
    const int n = (int)(ek_mix64(i) % (MOST + 1));
    for (int k = 0; k < n; k++) tokens[k] = (int32_t)(ek_mix64(100 * i + (uint64_t)k) % 3);
    make(a, "m", n, tokens);
}

static int common(const asked *a, const asked *b)
{
    int i = 0;
    while (i < a->ask.n_tokens && i < b->ask.n_tokens && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

/* No prompt shares more tokens with it than the nearest one. */
static void it_is_the_nearest_of_all(void **state)
{
    static asked all[REQUESTS];
    ek_reply_requests *r = ek_reply_requests_open();
    (void)state;
    for (int i = 0; i < REQUESTS; i++) {
        draw(&all[i], (uint64_t)i);
        ek_reply_requests_add(r, &all[i].key, &all[i].ask);
    }
    ek_reply_requests_sort(r);
    for (uint64_t i = 0; i < 2000; i++) {
        asked q;
        ek_buf out = {0};
        char key[EK_REPLY_KEY_TEXT];
        int longest = 0, got = -1, n = 0;
        bool equal = false, found_equal = false;
        draw(&q, 1000 + i);
        ek_reply_nearest(&out, r, &q.ask);
        for (int k = 0; k < REQUESTS; k++) {
            const int shared = common(&all[k], &q);
            const bool whole = shared == q.ask.n_tokens && q.ask.n_tokens == all[k].ask.n_tokens;
            if (shared > longest) longest = shared;
            equal |= whole;
            ek_reply_key_text(key, &all[k].key);
            if (strncmp(out.data, key, 64) != 0) continue;
            got = shared, n = all[k].ask.n_tokens;
            found_equal = whole;
        }
        assert_int_equal(got, longest);
        assert_int_equal(equal, found_equal);
        snprintf(key, sizeof key, "from token %d on (%d here, %d there)", longest, q.ask.n_tokens, n);
        assert_int_equal(strstr(out.data, key) != NULL, !equal);
        ek_buf_fini(&out);
    }
    ek_reply_requests_close(r);
}

static void expect(const ek_reply_requests *r, asked *q, const asked *nearest, const char *said)
{
    ek_buf out = {0};
    char key[EK_REPLY_KEY_TEXT];
    finish(q);
    ek_reply_key_text(key, &nearest->key);
    ek_reply_nearest(&out, r, &q->ask);
    if (strncmp(out.data, key, 64) != 0 || strcmp(out.data + 66, said) != 0)
        fail_msg("nearest is %s, not %s: %s", out.data, key, said);
    ek_buf_fini(&out);
}

static void each_difference_is_named(void **state)
{
    static const int32_t tokens[] = {2, 5, 7, 9};
    ek_reply_requests *r = ek_reply_requests_open();
    asked greedy, drawn, other, q;
    (void)state;
    ek_buf out = {0};
    make(&q, "m", 1, tokens);
    ek_reply_requests_sort(r);
    ek_reply_nearest(&out, r, &q.ask);
    assert_int_equal(out.len, 0); /* there is none */
    make(&greedy, "m", 4, tokens);
    make(&drawn, "m", 4, tokens);
    drawn.sampling = (ek_sampling){.temperature = 0.5f, .top_p = 0.25f, .top_k = 3, .seed = 7, .repetition_penalty = 1};
    finish(&drawn);
    make(&other, "model 2", 3, tokens);
    ek_reply_requests_add(r, &greedy.key, &greedy.ask);
    ek_reply_requests_add(r, &drawn.key, &drawn.ask);
    ek_reply_requests_add(r, &other.key, &other.ask);
    ek_reply_requests_sort(r);

    q = drawn, q.sampling.seed = 8;
    expect(r, &q, &drawn, "the seed is 8 here and 7 there");
    q = drawn, q.sampling.temperature = 1, q.sampling.top_k = 0;
    expect(r, &q, &drawn, "temperature is 1 here and 0.5 there; top_k is 0 here and 3 there");
    q = drawn, q.sampling.temperature = 0, q.sampling.presence_penalty = 0.5f; /* what shapes a draw does not count */
    expect(r, &q, &greedy, "presence_penalty is 0.5 here and 0 there");
    q = greedy, q.bias = (ek_logit_bias){4, 1}, q.sampling.bias = &q.bias, q.sampling.n_bias = 1;
    expect(r, &q, &greedy, "the logit_bias is another");
    q = greedy, q.ask.masked = true, q.ask.form = "{}";
    expect(r, &q, &greedy, "the mask is another (format of the reply, tools, limit of thoughts)");
    q = greedy, q.part.media = &q.media, q.ask.part = &q.part, q.ask.n_parts = 1;
    expect(r, &q, &greedy, "the pictures or sounds are others");
    make(&q, "m", 3, tokens);
    expect(r, &q, &other, "it is of model 2");
    make(&q, "m", 2, tokens);
    expect(r, &q, &other, "it is of model 2; the prompts differ from token 2 on (2 here, 3 there)");
    make(&q, "m", 4, (const int32_t[]){2, 5, 7, 10});
    expect(r, &q, &greedy, "the prompts differ from token 3 on (4 here, 4 there)");
    ek_reply_requests_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_nearest_of_all),
        cmocka_unit_test(each_difference_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
