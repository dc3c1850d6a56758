/* Tools whose calls are no functions' calls: custom ones, whose input is a text, and those of the client with published
 * schemas. What they are to the model, and how calls and results look in each API, whole and streamed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reply_case.h"
#include "serve/api/tools.h"
#include "template_gets.h"
#include "text/json/json.h"

static const ek_dialect *const chat = &ek_dialect_openai_chat, *const responses = &ek_dialect_responses,
                               *const messages = &ek_dialect_anthropic_count;

static const ek_api_limits small = {
    .defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1}, .n_vocab = 1000, .ctx_tokens = 512};

static ek_err parse(const ek_dialect *d, ek_api_request *r, const char *body)
{
    *r = (ek_api_request){0};
    ek_err err = ek_api_parse(r, d, body, strlen(body), &small);
    r->turn.tools = r->tools;
    return err;
}

static void gives(const ek_dialect *d, const char *body, const char *want)
{
    ek_api_request r;
    if (parse(d, &r, body)) fail_msg("%s in %s", ek_err_text(), body);
    template_gets(&r, want);
}

/* The declarations as JSON. */
static void declares(const ek_dialect *d, const char *body, const char *const *parts)
{
    ek_api_request r;
    ek_buf b = {0};
    if (parse(d, &r, body)) fail_msg("%s in %s", ek_err_text(), body);
    ek_json_write(&b, r.tools);
    for (; *parts; parts++)
        if (!strstr(b.data, *parts)) fail_msg("no %s in %s", *parts, b.data);
    ek_buf_fini(&b);
    ek_api_request_fini(&r);
}

/* --- replies --- */

/* The reply of a call with these arguments in pieces of n bytes; cut: what the token limit left out, or NULL. */
static void reply(scene *t, const ek_dialect *d, const char *body, bool stream, const char *name, const char *args,
                  size_t n, const char *cut)
{
    open_scene(t, d, body, &small, "id", stream);
    t->req.turn.tools = t->req.tools;
    if (stream) d->begin(&t->out, &t->r, 0);
    ek_reply_event events[64];
    char piece[64][64];
    int k = 0;
    events[k++] = (ek_reply_event){.kind = EK_REPLY_CALL_START, .text = name, .n = strlen(name)};
    for (size_t i = 0; i < strlen(args); i += n, k++) {
        size_t len = strlen(args) - i < n ? strlen(args) - i : n;
        memcpy(piece[k], args + i, len);
        piece[k][len] = '\0';
        events[k] = (ek_reply_event){.kind = EK_REPLY_CALL_ARGS, .text = piece[k], .n = len};
    }
    events[k++] = (ek_reply_event){
        .kind = cut ? EK_REPLY_CALL_CUT : EK_REPLY_CALL_END, .text = cut ? cut : "", .n = cut ? strlen(cut) : 0};
    for (int i = 0; i < k; i++) say_event(t, &events[i]);
    end_scene(t, cut ? EK_END_MAX_TOKENS : EK_END_CALLS);
}

static void has(const scene *t, const char *part)
{
    if (!strstr(t->out.data, part)) fail_msg("no %s in %s", part, t->out.data);
}

static int times(const scene *t, const char *part)
{
    int n = 0;
    for (const char *s = t->out.data; (s = strstr(s, part)); s += strlen(part)) n++;
    return n;
}

#define CUSTOM_CHAT                                                                                                               \
    "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"code\",\"description\":\"D\"}},{\"type\":\"function\",\"function\":{" \
    "\"name\":\"f\"}}]"
#define CUSTOM \
    "\"tools\":[{\"type\":\"custom\",\"name\":\"code\",\"description\":\"D\"},{\"type\":\"function\",\"name\":\"f\"}]"
#define ASK   "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"
#define INPUT "\"input\":\"q\""
#define WITH_FORMAT(format) \
    "{" INPUT ",\"tools\":[{\"type\":\"custom\",\"name\":\"code\",\"description\":\"D\",\"format\":{" format "}}]}"

static void custom_declarations(void **state)
{
    (void)state;
    const char *const plain[] = {
        "{\"type\":\"custom\",\"function\":{\"name\":\"code\",\"description\":\"D\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"],\"additionalProperties\":false},\"strict\":true}}",
        "\"name\":\"f\"", NULL};
    declares(chat, "{" ASK "," CUSTOM_CHAT "}", plain);
    declares(responses, "{" INPUT "," CUSTOM "}", plain);
    const char *const regex[] = {"\"pattern\":\"^(?:[a-c]+)$\"",
                                 "D\\nThe input matches this regular expression:\\n[a-c]+", NULL};
    declares(responses, WITH_FORMAT("\"type\":\"grammar\",\"syntax\":\"regex\",\"definition\":\"[a-c]+\""), regex);
    declares(
        chat,
        "{" ASK
        ",\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"code\",\"description\":\"D\",\"format\":{\"type\":"
        "\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"[a-c]+\"}}}}]}",
        regex);
    const char *const lark[] = {"\"pattern\":\"^", "notation of Lark:\\nstart: \\\"a\\\"+", NULL};
    declares(responses, WITH_FORMAT("\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":\"start: \\\"a\\\"+\""),
             lark);
    const char *const spaced[] = {"\"name\":\"n.code\"", "\"type\":\"custom\"", NULL};
    declares(responses,
             "{" INPUT ",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"description\":\"\"," CUSTOM "}]}", spaced);
}

static void custom_history(void **state)
{
    (void)state;
#define CALLED                                                                                                               \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","    \
    "\"function\":{\"name\":\"code\",\"arguments\":{\"input\":\"a\\n\\\"b\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\"," \
    "\"content\":\"r\"}]"
    gives(
        chat,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
        "\"c\",\"type\":\"custom\",\"custom\":{\"name\":\"code\",\"input\":\"a\\n\\\"b\"}}]},{\"role\":\"tool\",\"tool_call_id\":"
        "\"c\",\"content\":\"r\"}]}",
        CALLED);
    gives(
        responses,
        "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"code\","
        "\"input\":\"a\\n\\\"b\",\"id\":\"ctc_1\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"c\",\"output\":[{"
        "\"type\":\"input_text\",\"text\":\"r\"}]}]}",
        CALLED);
}

static void custom_replies(void **state)
{
    (void)state;
    static const char args[] = "{\"input\":\"a\\n\\\"b\\u0001\"}";
    scene t;
    for (size_t n = 1; n < sizeof args; n++) {
        reply(&t, responses, "{" INPUT "," CUSTOM "}", true, "code", args, n, NULL);
        has(&t, "\"type\":\"custom_tool_call\",\"status\":\"in_progress\",\"call_id\":\"call_");
        has(&t, "\"type\":\"response.custom_tool_call_input.delta\"");
        has(&t, "\"type\":\"response.custom_tool_call_input.done\"");
        assert_int_equal(times(&t, "\"input\":\"a\\n\\\"b\\u0001\""), 3); /* done, the item, the response */
        assert_int_equal(times(&t, "function_call"), 0);
        assert_int_equal(times(&t, "\"item_id\":\"ctc_"),
                         times(&t, "data: {\"type\":\"response.custom_tool_call_input"));
        close_scene(&t);
        reply(&t, chat, "{" ASK "," CUSTOM_CHAT "}", true, "code", args, n, NULL);
        has(&t, "\"type\":\"custom\",\"custom\":{\"name\":\"code\",\"input\":\"\"}}]");
        has(&t, "{\"index\":0,\"custom\":{\"input\":\"");
        assert_int_equal(times(&t, "\"arguments\""), 0);
        close_scene(&t);
    }
    reply(&t, responses, "{" INPUT "," CUSTOM "}", false, "code", args, 60, NULL);
    has(&t, "\"type\":\"custom_tool_call\",\"status\":\"completed\",");
    has(&t, ",\"name\":\"code\",\"input\":\"a\\n\\\"b\\u0001\"}");
    close_scene(&t);
    reply(&t, chat, "{" ASK "," CUSTOM_CHAT "}", false, "code", args, 60, NULL);
    has(&t, "\"type\":\"custom\",\"custom\":{\"name\":\"code\",\"input\":\"a\\n\\\"b\\u0001\"}}]");
    close_scene(&t);
    reply(&t, chat, "{" ASK "," CUSTOM_CHAT ",\"evenkeel\":{\"whole_calls\":true}}", true, "code", args, 7, NULL);
    has(&t, "\"type\":\"custom\",\"custom\":{\"name\":\"code\",\"input\":\"a\\n\\\"b\\u0001\"}}]");
    close_scene(&t);
    /* Functions beside it stay functions; a cut call has what was written. */
    reply(&t, chat, "{" ASK "," CUSTOM_CHAT "}", false, "f", "{}", 60, NULL);
    has(&t, "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]");
    close_scene(&t);
    for (int stream = 0; stream < 2; stream++) {
        reply(&t, responses, "{" INPUT "," CUSTOM "}", stream, "code", "{\"input\":\"ab", 60, "\"}");
        has(&t, "\"type\":\"custom_tool_call\",\"status\":\"incomplete\",");
        has(&t, "\"input\":\"ab\"");
        close_scene(&t);
    }
    ek_buf b = {0};
    const ek_buf pair = {.data = "{\"input\":\"\\ud83d\\ude00x\"}", .len = 25};
    ek_custom_input_of(&b, &pair);
    assert_string_equal(b.data, "\xF0\x9F\x98\x80x");
    ek_buf_fini(&b);
}

static void choices(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *const *d;
        const char *body, *name;
    } rows[] = {
        {&chat, "{" ASK "," CUSTOM_CHAT ",\"tool_choice\":{\"type\":\"custom\",\"custom\":{\"name\":\"code\"}}}",
         "code"},
        {&responses, "{" INPUT "," CUSTOM ",\"tool_choice\":{\"type\":\"custom\",\"name\":\"code\"}}", "code"},
        {&responses,
         "{" INPUT "," CUSTOM
         ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"custom\","
         "\"name\":\"code\"}]}}",
         "code"},
        {&responses, "{" INPUT ",\"tools\":[{\"type\":\"shell\"}],\"tool_choice\":{\"type\":\"shell\"}}", "shell"},
        {&responses, "{" INPUT ",\"tools\":[{\"type\":\"apply_patch\"}],\"tool_choice\":{\"type\":\"apply_patch\"}}",
         "apply_patch"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        if (parse(*rows[i].d, &r, rows[i].body)) fail_msg("%s in %s", ek_err_text(), rows[i].body);
        assert_true(r.form.calls_required);
        assert_string_equal(json_string_value(json_array_get(r.only, 0)), rows[i].name);
        ek_api_request_fini(&r);
    }
}

#define TOOL(type) "{" INPUT ",\"tools\":[{\"type\":\"" type "\"}]}"

static void client_tools(void **state)
{
    (void)state;
    static const struct {
        const char *tool, *name, *args, *item;
    } rows[] = {
        {TOOL("local_shell"), "local_shell", "{\"command\":[\"ls\",\"-l\"],\"timeout_ms\":9}",
         "\"type\":\"local_shell_call\",\"status\":\"completed\",\"call_id\":\"call_36|\",\"action\":{\"type\":\"exec\","
         "\"command\":[\"ls\",\"-l\"],\"env\":{},\"timeout_ms\":9,\"user\":null,\"working_directory\":null}}"},
        {TOOL("shell"), "shell", "{\"commands\":[\"ls\"]}",
         "\"type\":\"shell_call\",\"status\":\"completed\",\"call_id\":\"call_36|\",\"action\":{\"commands\":[\"ls\"],"
         "\"timeout_ms\":null,\"max_output_length\":null},\"environment\":{\"type\":\"local\"}}"},
        {TOOL("apply_patch"), "apply_patch", "{\"type\":\"update_file\",\"path\":\"a\",\"diff\":\"@@\\n-x\\n+y\"}",
         "\"type\":\"apply_patch_call\",\"status\":\"completed\",\"call_id\":\"call_36|\",\"operation\":{\"type\":"
         "\"update_file\",\"path\":\"a\",\"diff\":\"@@\\n-x\\n+y\"}}"},
        {TOOL("apply_patch"), "apply_patch", "{\"type\":\"delete_file\",\"path\":\"a\"}",
         "\"operation\":{\"type\":\"delete_file\",\"path\":\"a\"}}"},
        {"{" INPUT ",\"tools\":[{\"type\":\"tool_search\",\"execution\":\"client\"}]}", "tool_search",
         "{\"query\":\"x\"}", "\"execution\":\"client\",\"arguments\":{\"query\":\"x\"}}"},
    };
    scene t;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int stream = 0; stream < 2; stream++) {
            reply(&t, responses, rows[i].tool, stream, rows[i].name, rows[i].args, 5, NULL);
            char id[40];
            ek_call_id(id, "call_", "id", 0);
            const char *mark = strstr(rows[i].item, "call_36|");
            ek_buf want = {0};
            if (mark) ek_buf_add(&want, rows[i].item, (size_t)(mark - rows[i].item));
            ek_buf_fmt(&want, "%s%s", mark ? id : "", mark ? mark + 8 : rows[i].item);
            has(&t, want.data);
            assert_int_equal(times(&t, "function_call"), 0);
            if (stream) assert_int_equal(times(&t, "event: response.output_item."), 2);
            ek_buf_fini(&want);
            close_scene(&t);
        }
    /* What was cut is an item of its kind all the same. */
    reply(&t, responses, TOOL("shell"), true, "shell", "{\"commands\":[\"l", 60, "\"]}");
    has(&t, "\"status\":\"incomplete\",");
    has(&t, "\"commands\":[\"l\"]");
    close_scene(&t);
#define THEN(call, output) "{\"input\":[{\"role\":\"user\",\"content\":\"q\"}," call "," output "]}"
#define WANT(name, args, says)                                                                                                        \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\"" \
    ":{\"name\":\"" name "\",\"arguments\":" args "}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"" says                \
    "\"}]"
    gives(
        responses,
        THEN(
            "{\"type\":\"local_shell_call\",\"id\":\"lsh_1\",\"call_id\":\"c\",\"status\":\"completed\",\"action\":{\"type\":"
            "\"exec\",\"command\":[\"ls\"],\"env\":{},\"timeout_ms\":null}}",
            "{\"type\":\"local_shell_call_output\",\"id\":\"lsh_1\",\"output\":\"r\"}"),
        WANT("local_shell", "{\"command\":[\"ls\"],\"env\":{}}", "r"));
    gives(
        responses,
        THEN(
            "{\"type\":\"local_shell_call\",\"id\":\"lsh_1\",\"call_id\":\"c\",\"status\":\"completed\",\"action\":{\"type\":"
            "\"exec\",\"command\":[\"ls\"]}}",
            "{\"type\":\"local_shell_call_output\",\"call_id\":\"c\",\"output\":\"r\"}"),
        WANT("local_shell", "{\"command\":[\"ls\"]}", "r"));
    gives(
        responses,
        THEN(
            "{\"type\":\"shell_call\",\"call_id\":\"c\",\"action\":{\"commands\":[\"ls\"],\"timeout_ms\":null}}",
            "{\"type\":\"shell_call_output\",\"call_id\":\"c\",\"output\":[{\"stdout\":\"o\",\"stderr\":\"\",\"outcome\":{"
            "\"type\":\"exit\",\"exit_code\":0}}]}"),
        WANT(
            "shell", "{\"commands\":[\"ls\"]}",
            "[{\\\"stdout\\\":\\\"o\\\",\\\"stderr\\\":\\\"\\\",\\\"outcome\\\":{\\\"type\\\":\\\"exit\\\",\\\"exit_code\\\":0}}]"));
    gives(
        responses,
        THEN(
            "{\"type\":\"apply_patch_call\",\"call_id\":\"c\",\"status\":\"completed\",\"operation\":{\"type\":\"delete_file\","
            "\"path\":\"a\"}}",
            "{\"type\":\"apply_patch_call_output\",\"call_id\":\"c\",\"status\":\"failed\",\"output\":\"none\"}"),
        WANT("apply_patch", "{\"type\":\"delete_file\",\"path\":\"a\"}", "failed: none"));
}

/* Tools that a search found are declared where its result stands. */
static void found_tools(void **state)
{
    (void)state;
    ek_api_request r;
    static const char body[] =
        "{\"tools\":[{\"type\":\"tool_search\",\"execution\":\"client\",\"description\":\"S\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"goal\":{\"type\":\"string\"}}}},{\"type\":\"function\",\"name\":\"late\",\"defer_loading\":true}],"
        "\"tool_choice\":{\"type\":\"function\",\"name\":\"n.g\"},"
        "\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"tool_search_call\",\"call_id\":\"c\",\"execution\":\"client\","
        "\"arguments\":{\"goal\":\"x\"}},{\"type\":\"tool_search_output\",\"call_id\":\"c\",\"execution\":\"client\",\"tools\":[{"
        "\"type\":\"namespace\",\"name\":\"n\",\"description\":\"N\",\"tools\":[{\"type\":\"function\",\"name\":\"g\"}]}]},"
        "{\"type\":\"additional_tools\",\"role\":\"developer\",\"tools\":[{\"type\":\"function\",\"name\":\"h\"}]}]}";
    if (parse(responses, &r, body)) fail_msg("%s", ek_err_text());
    assert_int_equal(json_array_size(r.declared), 1);
    assert_int_equal(json_array_size(r.tools), 3); /* the search, n.g, h; late was found by nobody */
    const ek_message *m = &r.conversation.messages[2];
    assert_int_equal(m->blocks[m->n_blocks - 1].kind, EK_BLOCK_TOOL);
    assert_int_equal(r.conversation.messages[3].blocks[0].kind, EK_BLOCK_TOOL);
    ek_api_request_fini(&r);
}

static void anthropic_tools(void **state)
{
    (void)state;
#define OF(type, name) "{" ASK ",\"tools\":[{\"type\":\"" type "\",\"name\":\"" name "\"}]}"
    const char *const bash[] = {"\"name\":\"bash\"", "\"command\":{\"type\":\"string\"",
                                "\"restart\":{\"type\":\"boolean\"", NULL};
    const char *const editor[] = {"\"name\":\"str_replace_based_edit_tool\"",
                                  "\"enum\":[\"view\",\"create\",\"str_replace\",\"insert\"]", "\"insert_text\"", NULL};
    const char *const old_editor[] = {"\"name\":\"str_replace_editor\"", "\"undo_edit\"]", "\"new_str\"", NULL};
    const char *const memory[] = {"\"name\":\"memory\"", "\"delete\",\"rename\"]", "\"old_path\"", NULL};
    declares(messages, OF("bash_20250124", "bash"), bash);
    declares(messages, OF("bash_20241022", "bash"), bash);
    declares(messages, OF("text_editor_20250728", "str_replace_based_edit_tool"), editor);
    declares(messages, OF("text_editor_20250429", "str_replace_based_edit_tool"), editor);
    declares(messages, OF("text_editor_20250124", "str_replace_editor"), old_editor);
    declares(messages, OF("memory_20250818", "memory"), memory);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *const *d;
        const char *body, *param, *says;
    } rows[] = {
        {&responses, WITH_FORMAT("\"type\":\"json\""), "tools", "text or grammar, not \"json\""},
        {&responses, WITH_FORMAT("\"type\":\"grammar\",\"syntax\":\"ebnf\",\"definition\":\"x\""), "tools",
         "not \"ebnf\""},
        {&responses, WITH_FORMAT("\"type\":\"grammar\",\"syntax\":\"regex\""), "tools", "definition"},
        {&responses, WITH_FORMAT("\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":\"start: \\\"(\\\" start\""),
         "tools", "line 1: start comes to itself again"},
        {&responses, TOOL("code_interpreter"), "tools", "\"code_interpreter\""},
        {&responses, TOOL("tool_search"), "tools", "execution client"},
        {&responses, "{" INPUT ",\"tools\":[{\"type\":\"shell\",\"environment\":{\"type\":\"container_auto\"}}]}",
         "tools", "\"container_auto\""},
        {&responses, "{\"input\":[{\"type\":\"custom_tool_call\",\"name\":\"f\",\"input\":\"x\"}]}", "input",
         "call_id"},
        {&responses, "{\"input\":[{\"type\":\"tool_search_output\",\"tools\":[]}]}", "input", "call_id"},
        {&responses, "{\"input\":[{\"type\":\"additional_tools\",\"tools\":{}}]}", "input", "a list of tools"},
        {&responses, "{\"input\":[{\"type\":\"web_search_call\"}]}", "input", "\"web_search_call\""},
        {&chat, "{" ASK ",\"tools\":[{\"type\":\"web_search\"}]}", "tools", "\"web_search\""},
        {&chat, "{" ASK ",\"tools\":[{\"type\":\"custom\",\"name\":\"f\"}]}", "tools", "name"},
        {&chat,
         "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}]}]}",
         "messages", "a text input"},
        {&messages, OF("computer_20250124", "computer"), "tools", "\"computer_20250124\""},
        {&messages, OF("bash_code_execution_20250825", "b"), "tools", "\"bash_code_execution_20250825\""},
        {&messages, OF("code_execution_20250825", "b"), "tools", "\"code_execution_20250825\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        ek_err err = parse(*rows[i].d, &r, rows[i].body);
        if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), rows[i].says))
            fail_msg("%s: %s", rows[i].body, err ? ek_err_text() : "taken");
        assert_string_equal(r.param, rows[i].param);
        ek_api_request_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(custom_declarations), cmocka_unit_test(custom_history),
        cmocka_unit_test(custom_replies),      cmocka_unit_test(choices),
        cmocka_unit_test(client_tools),        cmocka_unit_test(found_tools),
        cmocka_unit_test(anthropic_tools),     cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
