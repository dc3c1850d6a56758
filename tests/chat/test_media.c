/* Pictures and sounds of a conversation in its prompt: which file stands behind which placeholder, how many tokens each
 * becomes, and what is said of those that are not taken. */
#include "helper.h"

#include "base/encoding.h"
#include "chat/media.h"

/* 2 x 1 pixels. */
#define PNG "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR42mP4z8AARAAI/gH/GcBr5wAAAABJRU5ErkJggg=="

static const ek_media_ids marks = {.soft = {500, 502, 501}, .begin = {503, 503, 505}, .end = {504, 504, 506}};
static const ek_chat_media eyes = {.image = true, .frame = true, .ids = marks};
static const ek_run_budgets budgets = {.image = 280, .frame = 70};

static void add_picture(ek_conversation *c, ek_part_kind kind, int n, int budget)
{
    ek_block *b = ek_conversation_media(c, ek_conversation_add(c, EK_ROLE_USER), kind, n);
    for (int i = 0; i < n; i++) {
        assert_true(ek_base64_decode(&b->files[i].bytes, PNG, strlen(PNG)));
        b->files[i].budget = budget;
    }
}

static int tokens_at(int budget)
{
    ek_image_fit fit;
    const ek_patching published = {0};
    assert_int_equal(ek_image_fit_budget(&fit, 2, 1, budget, published), EK_OK);
    return fit.tokens;
}

static void are_counted_from_their_headers(void **state)
{
    (void)state;
    ek_conversation c = {0};
    ek_runs runs = {0};
    add_picture(&c, EK_PART_IMAGE, 1, 0);
    add_picture(&c, EK_PART_FRAME, 2, 0);
    add_picture(&c, EK_PART_IMAGE, 1, 1120);
    assert_int_equal(c.n_images, 2);
    assert_int_equal(c.n_frames, 2);
    static const int order[] = {3, 0, 1, 2}; /* as a template may have them */
    if (ek_runs_find(&runs, &c, order, 4, &eyes, &budgets)) fail_msg("%s", ek_err_text());
    assert_int_equal(runs.at[0].tokens, tokens_at(1120));
    assert_int_equal(runs.at[1].tokens, tokens_at(280));
    assert_int_equal(runs.at[2].tokens, tokens_at(70));
    assert_int_equal(runs.n_image_tokens, tokens_at(1120) + tokens_at(280) + 2 * tokens_at(70));
    assert_int_equal(runs.more, runs.n_image_tokens + 4);
    for (int i = 0; i < 4; i++) {
        ek_media *m = NULL;
        if (ek_run_decode(&m, &runs, i, &eyes)) fail_msg("%s", ek_err_text());
        assert_int_equal(m->tokens, runs.at[i].tokens);
        assert_int_equal(m->kind, runs.at[i].kind);
        ek_media_release(m);
    }
    ek_runs_fini(&runs);
    ek_conversation_cut(&c, 1);
    assert_int_equal(c.n_images, 1);
    assert_int_equal(c.n_frames, 0);
    ek_conversation_fini(&c);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    ek_conversation c = {0};
    ek_runs runs = {0};
    static const int order[] = {0, 1}, nowhere[] = {-1}, beyond[] = {7};
    add_picture(&c, EK_PART_IMAGE, 1, 0);
    add_picture(&c, EK_PART_IMAGE, 1, 0);
    c.messages[1].blocks[0].files[0].bytes.len = 20;
    assert_int_equal(ek_runs_find(&runs, &c, order, 2, &eyes, &budgets), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "image 2"));
    ek_runs_fini(&runs);
    assert_int_equal(ek_runs_find(&runs, &c, nowhere, 1, &eyes, &budgets), EK_EINVAL);
    ek_runs_fini(&runs);
    assert_int_equal(ek_runs_find(&runs, &c, beyond, 1, &eyes, &budgets), EK_EINVAL);
    ek_runs_fini(&runs);
    const ek_chat_media none = {0}, ears = {.audio = true};
    assert_int_equal(ek_runs_find(&runs, &c, order, 1, &none, &budgets), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "no eyes (vision tower): it takes text alone"));
    ek_runs_fini(&runs);
    assert_int_equal(ek_runs_find(&runs, &c, order, 1, &ears, &budgets), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "it takes text and sounds"));
    ek_runs_fini(&runs);
    ek_conversation_fini(&c);
}

static void placeholders_become_runs(void **state)
{
    (void)state;
    ek_run at[] = {{.kind = EK_PART_IMAGE, .tokens = 3},
                   {.kind = EK_PART_SOUND, .tokens = 1},
                   {.kind = EK_PART_IMAGE, .tokens = 1}};
    const ek_runs runs = {.at = at, .n = 3, .more = 3 + 1 + 1 + 3};
    static const int32_t before[] = {2, 500, 7, 501, 500, 9},
                         after[] = {2, 503, 500, 500, 500, 504, 7, 505, 501, 506, 503, 500, 504, 9};
    ek_ids ids = {0};
    int first[3];
    for (size_t i = 0; i < 6; i++) ek_ids_add(&ids, before[i]);
    if (ek_runs_expand(&ids, first, &runs, &marks)) fail_msg("%s", ek_err_text());
    assert_int_equal(ids.len, sizeof after / sizeof *after);
    assert_memory_equal(ids.data, after, sizeof after);
    assert_int_equal(first[0], 2);
    assert_int_equal(first[1], 8);
    assert_int_equal(first[2], 11);
    ids.len = 3; /* a tokenizer without such a token wrote it as text */
    ids.data[1] = 7;
    assert_int_equal(ek_runs_expand(&ids, NULL, &runs, &marks), EK_EUNSUPPORTED);
    ek_ids_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_counted_from_their_headers),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(placeholders_become_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
