/* Following a reply allocates nothing: malloc and its kin are counted while rows are made and tokens join. */
#include "simulate.h"

#include <stdlib.h>

#include "../support/allocated.h"

static void a_token_allocates_nothing(void **state)
{
    (void)state;
    enum { WORDS = 128 };
    uint64_t row[3 * WORDS];
    bool all[3];
    if (allocated() < 0) skip();
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
            const int before = allocated();
            for (size_t i = 0; i + 2 <= r.ids.len; i++, tokens++) {
                ek_grammar_look(s, r.ids.data + i, 2, WORDS, row, all);
                ek_grammar_accept(s, r.ids.data[i]);
            }
            counted += allocated() - before;
            ek_grammar_state_close(s);
            reply_fini(&r);
            ek_grammar_close(g);
        }
        json_decref(schema);
    }
    assert_true(tokens > 1000 && allocated() > 1000); /* the count counts */
    assert_int_equal(counted, 0);
    ek_vocab_close(v);
    ek_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
