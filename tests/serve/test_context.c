/* Context management as bodies ask for it, and a body that is read again with its summary. What it does:
 * tests/e2e/context.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reply_case.h"
#include "serve/anthropic/anthropic.h"
#include "serve/api/context.h"
#include "template_gets.h"

#define EDITS(s)                                                                                      \
    "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"context_management\":{" \
    "\"edits\":[" s "]}}"

static const ek_api_summary written = {
    .text = {.data = "the gist", .len = 8}, .n_prompt = 40, .n_cached = 30, .n_tokens = 7};
static const ek_api_summary cut = {.n_prompt = 40, .n_tokens = 9};

static ek_err parse(ek_api_request *r, const ek_dialect *d, const char *body, const ek_api_summary *summary)
{
    const ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                                  .n_vocab = 1000,
                                  .ctx_tokens = 1000,
                                  .summary = summary};
    *r = (ek_api_request){0};
    return ek_api_parse(r, d, body, strlen(body), &limits);
}

static void edits_are_read(void **state)
{
    (void)state;
    ek_api_request r;
    assert_int_equal(
        parse(
            &r, &ek_dialect_anthropic,
            EDITS(
                "{\"type\":\"clear_tool_uses_20250919\"},{\"type\":\"clear_tool_uses_20250919\",\"trigger\":{\"type\":"
                "\"tool_uses\",\"value\":7},\"keep\":{\"type\":\"tool_uses\",\"value\":0},\"clear_at_least\":{\"type\":"
                "\"input_tokens\",\"value\":50},\"clear_tool_inputs\":[\"f\"],\"exclude_tools\":[\"g\",\"h\"]},"
                "{\"type\":\"clear_thinking_20251015\"},{\"type\":\"compact_20260112\",\"instructions\":\"Briefly.\"}"),
            NULL),
        EK_OK);
    const ek_context *c = r.context;
    assert_int_equal(c->n_edits, 3);
    assert_int_equal(c->edit[0].more_tokens, 800); /* the API's default, at most 80 in 100 of the context */
    assert_int_equal(c->edit[0].more_uses, -1);
    assert_int_equal(c->edit[0].keep, 3);
    assert_true(c->edit[1].more_tokens == -1 && c->edit[1].more_uses == 7 && c->edit[1].keep == 0);
    assert_int_equal(c->edit[1].at_least, 50);
    assert_int_equal(json_array_size(c->edit[1].inputs_of), 1);
    assert_int_equal(json_array_size(c->edit[1].excluded), 2);
    assert_true(c->edit[2].kind == EK_EDIT_THINKING && c->edit[2].keep == 1);
    assert_int_equal(c->compact_at, 800);
    assert_false(c->alone);
    assert_string_equal(c->ask.data, "Briefly.");
    ek_api_request_fini(&r);
    /* A count asks for no summary, nor does a body that is read with one. */
    assert_int_equal(parse(&r, &ek_dialect_anthropic_count, EDITS("{\"type\":\"compact_20260112\"}"), NULL), EK_OK);
    assert_int_equal(r.context->compact_at, 0);
    ek_api_request_fini(&r);
    assert_int_equal(
        parse(&r, &ek_dialect_responses,
              "{\"input\":\"a\",\"context_management\":[{\"type\":\"compaction\"},{\"type\":\"compaction\","
              "\"compact_threshold\":70}]}",
              NULL),
        EK_OK);
    assert_int_equal(r.context->compact_at, 70);
    ek_api_request_fini(&r);
}

/* Every use of a tool looks for its name in them. */
static void names_are_bounded(void **state)
{
    (void)state;
    static const char *const lists[] = {"exclude_tools", "clear_tool_inputs"};
    for (int i = 0; i < 4; i++) {
        ek_buf body = {0};
        ek_api_request r;
        const int n = EK_EDIT_NAMES_MAX + i / 2;
        ek_buf_fmt(&body,
                   "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"context_management\":{"
                   "\"edits\":[{\"type\":\"clear_tool_uses_20250919\",\"%s\":[\"f\"",
                   lists[i % 2]);
        for (int k = 1; k < n; k++) ek_buf_str(&body, ",\"f\"");
        ek_buf_str(&body, "]}]}}");
        assert_int_equal(parse(&r, &ek_dialect_anthropic, body.data, NULL), i < 2 ? EK_OK : EK_EINVAL);
        if (i >= 2) assert_non_null(strstr(ek_err_text(), "has 1025 names of tools, at most 1024 are allowed"));
        ek_api_request_fini(&r);
        ek_buf_fini(&body);
    }
}

static void a_summary_stands_for_the_conversation(void **state)
{
    (void)state;
    ek_api_request r;
    static const char *const body =
        "{\"max_tokens\":5,\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
        "\"content\":\"b\"}],\"context_management\":{\"edits\":[{\"type\":\"compact_20260112\"}]}}";
    static const char gist[] = "{\"role\":\"user\",\"content\":\"Summary of the conversation so far:\\n\\nthe gist\"}]";
    ek_buf want = {0};
    ek_buf_fmt(&want, "[{\"role\":\"system\",\"content\":\"s\"},%s", gist);
    assert_int_equal(parse(&r, &ek_dialect_anthropic, body, &written), EK_OK);
    assert_int_equal(r.context->compact_at, 0);
    assert_true(r.prompt.add_generation_prompt && !r.prompt.continue_final);
    template_gets(&r, want.data);
    /* One that a limit cut stands for nothing. */
    assert_int_equal(parse(&r, &ek_dialect_anthropic, body, &cut), EK_OK);
    assert_true(r.prompt.continue_final);
    template_gets(
        &r, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
            "\"content\":\"b\"}]");
    ek_buf_clear(&want);
    ek_buf_fmt(&want, "[{\"role\":\"user\",\"content\":\"a\"},%s", gist);
    assert_int_equal(
        parse(&r, &ek_dialect_responses,
              "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}],"
              "\"context_management\":[{\"type\":\"compaction\"}]}",
              &written),
        EK_OK);
    template_gets(&r, want.data);
    ek_buf_fini(&want);
}

/* The block comes first, whole and in a stream; null where a limit cut it. */
static void replies_begin_with_it(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const bool stream = k & 1, whole = k & 2;
        scene t;
        const ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                                      .n_vocab = 1000,
                                      .ctx_tokens = 1000,
                                      .summary = whole ? &written : &cut};
        open_scene(&t, &ek_dialect_anthropic, EDITS("{\"type\":\"compact_20260112\"}"), &limits, "msg_1", stream);
        if (stream) t.d->begin(&t.out, &t.r, 0);
        say(&t, EK_REPLY_CONTENT, "x", 0);
        end_scene(&t, EK_END_STOP);
        const char *at = strstr(t.out.data,
                                whole ? "\"content\":\"the gist\",\"encrypted_content\":null,\"signature\":\"ek0+"
                                      : "\"content\":null,\"encrypted_content\":null");
        const char *text = strstr(t.out.data,
                                  stream ? "\"index\":1,\"content_block\":{\"type\":\"text\"" : "{\"type\":\"text\"");
        if (!at || !text || at > text) fail_msg("%s", t.out.data);
        assert_non_null(strstr(t.out.data, "\"iterations\":[{\"type\":\"compaction\",\"input_tokens\":"));
        assert_non_null(strstr(t.out.data, "\"context_management\":{\"applied_edits\":[]}"));
        close_scene(&t);
    }
}

/* A batch has one turn for each line. */
static void a_batch_is_not_compacted(void **state)
{
    (void)state;
    static const char *const edits[] = {EDITS("{\"type\":\"compact_20260112\"}"),
                                        "{\"input\":\"a\",\"context_management\":[{\"type\":\"compaction\"}]}"};
    const ek_dialect *const dialects[] = {&ek_dialect_anthropic, &ek_dialect_responses};
    for (int i = 0; i < 2; i++) {
        ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                                .n_vocab = 1000,
                                .ctx_tokens = 1000};
        ek_api_request r;
        ek_turn_prompt prompt;
        ek_api_limits_batch(&limits);
        assert_int_equal(ek_api_prepare(&r, &prompt, dialects[i], NULL, edits[i], strlen(edits[i]), &limits),
                         EK_EINVAL);
        assert_string_equal(r.param, "context_management");
        assert_non_null(strstr(ek_err_text(), "a line of a batch"));
        ek_api_request_fini(&r);
    }
}

/* What was exchanged is exchanged back, and files are counted where they are. */
static void messages_are_exchanged(void **state)
{
    (void)state;
    ek_conversation c = {0};
    ek_message *m = ek_conversation_add(&c, EK_ROLE_TOOL), other = {.role = EK_ROLE_TOOL};
    ek_conversation_media(&c, m, EK_PART_IMAGE, 2);
    assert_int_equal(c.n_images, 2);
    ek_message_text(&other, EK_BLOCK_TEXT, "gone", 4);
    ek_conversation_exchange(&c, 0, &other);
    assert_int_equal(c.n_images, 0);
    assert_string_equal(c.messages[0].blocks[0].text.data, "gone");
    ek_conversation_exchange(&c, 0, &other);
    assert_int_equal(c.n_images, 2);
    ek_message_fini(&other);
    ek_conversation_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edits_are_read),         cmocka_unit_test(a_summary_stands_for_the_conversation),
        cmocka_unit_test(replies_begin_with_it),  cmocka_unit_test(a_batch_is_not_compacted),
        cmocka_unit_test(messages_are_exchanged), cmocka_unit_test(names_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
