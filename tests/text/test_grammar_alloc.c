/* Following a reply allocates nothing: malloc and its kin are counted while rows are made and tokens join. */
#include "simulate.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A sanitizer brings its own malloc, which must not be replaced. */
static atomic_int taken;

#ifndef EK_SANITIZED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

__attribute__((visibility("default"))) void *malloc(size_t n)
{
    atomic_fetch_add(&taken, 1);
    return __libc_malloc(n);
}
__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&taken, 1);
    return __libc_calloc(n, size);
}
__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&taken, 1);
    return __libc_realloc(p, n);
}
#endif

static void a_token_allocates_nothing(void **state)
{
    (void)state;
    enum { WORDS = 128 };
    uint64_t row[3 * WORDS];
    bool all[3];
#ifdef EK_SANITIZED
    skip();
#endif
    ek_tokenizer *t = crossing_tokenizer();
    ek_vocab *v = ek_vocab_open(t);
    int counted = 0, tokens = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        dice d = {seed + 77, 0};
        json_t *schema = random_document(&d);
        ek_reply_form form = {.text = EK_TEXT_JSON_SCHEMA, .schema = schema};
        ek_grammar *g;
        if (ek_grammar_open(&g, v, &form, NULL, false) == EK_OK) {
            reply r;
            simulate(&r, g, v, t, NULL, "<|turn>model\n", true, 100, &d);
            ek_grammar_state *s = ek_grammar_state_open(g, v, NULL, 0, true);
            int before = atomic_load(&taken);
            for (size_t i = 0; i + 2 <= r.ids.len; i++, tokens++) {
                ek_grammar_look(s, r.ids.data + i, 2, WORDS, row, all);
                ek_grammar_accept(s, r.ids.data[i]);
            }
            counted += atomic_load(&taken) - before;
            ek_grammar_state_close(s);
            reply_fini(&r);
            ek_grammar_close(g);
        }
        json_decref(schema);
    }
    assert_true(tokens > 1000 && atomic_load(&taken) > 1000); /* the count counts */
    assert_int_equal(counted, 0);
    ek_vocab_close(v);
    ek_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
