/* Two APIs that the server knows nothing of are given to it as tables and work: one with blocks that are
 * opened and closed, as Anthropic's has, one that continues a text without the chat template. Bodies are
 * not JSON: a line of words, then the text. */
#include "helper.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "base/log.h"

/* --- the toy --- */

typedef struct own {
    int block; /* index of the open block, or of the next */
    int open;  /* its kind of event; -1: none */
    char *text;
} own;

static ek_err toy_parse(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits)
{
    const char *line = memchr(body, '\n', n);
    if (!line) {
        r->param = "line 1";
        return ek_fail(EK_EPARSE, "no line of words");
    }
    size_t len = n - (size_t)(line + 1 - body);
    own *o = r->own = ek_alloc(sizeof *o + len + 1); /* one piece: free() is all it gets */
    o->open = -1;
    o->text = (char *)(o + 1);
    memcpy(o->text, line + 1, len);
    ek_message_text(ek_conversation_add(&r->conversation, EK_ROLE_USER), EK_BLOCK_TEXT, line + 1, len);
    r->prompt.add_generation_prompt = true;
    r->turn.sampling = limits->defaults;
    r->turn.sampling.temperature = 0;
    r->turn.max_tokens = 20;
    r->turn.digest = true;
    r->n = 1;
    r->stream = strstr(body, "stream") && strstr(body, "stream") < line;
    if (strstr(body, "think") && strstr(body, "think") < line) r->prompt.thinking = EK_THINKING_ON;
    if (strstr(body, "stop") && strstr(body, "stop") < line) {
        r->stop[0] = ek_strdup("a");
        r->turn.stop[0] = r->stop[0];
        r->turn.stop_len[0] = 1;
        r->turn.n_stop = 1;
    }
    return EK_OK;
}

static ek_err raw_prompt(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r)
{
    const own *o = r->own;
    ek_ids_add(&out->ids, ek_tokenizer_id(m->tokenizer, "<bos>"));
    return ek_encode(m->tokenizer, o->text, strlen(o->text), NULL, 0, &out->ids);
}

static void toy_begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    ek_buf_fmt(out, "start %s input=%d\n", r->id, r->choices[choice]->n_prompt);
}

static void close_block(ek_buf *out, own *o)
{
    if (o->open >= 0) ek_buf_fmt(out, "close %d\n", o->block++);
    o->open = -1;
}

static void toy_event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    own *o = r->own;
    (void)choice;
    if (e->kind != EK_REPLY_CONTENT && e->kind != EK_REPLY_REASONING) return;
    if (o->open != (int)e->kind) {
        close_block(out, o);
        ek_buf_fmt(out, "open %d %s\n", o->block, e->kind == EK_REPLY_CONTENT ? "text" : "thinking");
        o->open = (int)e->kind;
    }
    ek_buf_fmt(out, "delta %d %s\n", o->block, e->text);
}

static const char *const ends[] = {"none", "end_turn", "tool_use", "stop_sequence", "max_tokens", "context"};

static void toy_finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    close_block(out, r->own);
    ek_buf_fmt(out, "end %s output=%d\n", ends[r->choices[choice]->end], r->choices[choice]->n_tokens);
}

static void toy_end(ek_buf *out, const ek_api_reply *r)
{
    const ek_turn_result *t = r->choices[0];
    if (r->stream) ek_buf_fmt(out, "over %s\n", r->digest);
    else ek_buf_fmt(out, "whole (%s) %s digest=%s", ek_buf_text(&t->answer.content), ends[t->end], r->digest);
}

static void toy_failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    (void)r, (void)choice;
    ek_buf_fmt(out, "failed %s\n", text);
}

static void toy_heartbeat(ek_buf *out)
{
    ek_buf_str(out, "ping\n");
}

static void toy_error(ek_buf *out, int status, const char *text, const char *param, const char *code)
{
    ek_buf_fmt(out, "toy %d <%s> param=%s code=%s", status, text, param ? param : "-", code ? code : "-");
}

static ek_dialect toy = {
    .path = "/toy",
    .id_prefix = "toy-",
    .prompt_param = "text",
    .parse = toy_parse,
    .begin = toy_begin,
    .event = toy_event,
    .finish = toy_finish,
    .end = toy_end,
    .failed = toy_failed,
    .heartbeat = toy_heartbeat,
    .error = toy_error,
};

/* --- the server --- */

static ek_model *model;
static ek_engine *engine;
static ek_server *server;

static int start(void **state)
{
    static ek_dialect raw;
    static const ek_dialect *const dialects[] = {&ek_dialect_openai_chat, &toy, &raw, NULL};
    (void)state;
    raw = toy;
    raw.path = "/raw";
    raw.prompt = raw_prompt;
    ek_log_set(EK_LOG_ERROR);
    ek_model_opts mo = {.cpu = ek_cpu_detect(), .k_format = EK_KV_BF16, .v_format = EK_KV_BF16};
    ek_engine_opts eo = ek_engine_defaults();
    eo.max_requests = 4;
    eo.ctx_tokens = 128;
    assert_int_equal(ek_model_open(&model, "models/pocket", &mo), EK_OK);
    assert_int_equal(ek_engine_open(&engine, model, &eo), EK_OK);
    ek_server_opts so = {.http.max_body = 4096,
                         .model = model,
                         .model_dir = "models/pocket",
                         .model_name = "pocket",
                         .dialects = dialects};
    server = start_server(engine, &so);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    stop_server();
    ek_engine_close(engine);
    ek_model_close(model);
    return 0;
}

static ek_buf ask(const char *path, const char *body)
{
    return reply_of(post_to(ek_server_port(server), path, body));
}

/* What stands between before and after in a reply; to be freed. */
static char *between(const ek_buf *b, const char *before, const char *after)
{
    const char *from = strstr(ek_buf_text(b), before), *to = from ? strstr(from + strlen(before), after) : NULL;
    if (!to) fail_msg("no %s…%s in %s", before, after, ek_buf_text(b));
    char *text = ek_strdup(from + strlen(before));
    text[to - from - (ptrdiff_t)strlen(before)] = '\0';
    return text;
}

/* The texts of all deltas of one kind of block, joined. */
static ek_buf deltas(ek_buf *b, const char *kind)
{
    ek_buf text = {0};
    bool in = false;
    char *save, *body = strstr(b->data, "start ");
    assert_non_null(body);
    for (char *line = strtok_r(body, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (!strncmp(line, "open ", 5)) in = !strcmp(line + 7, kind);
        if (!strncmp(line, "close ", 6)) in = false;
        if (!strncmp(line, "delta ", 6)) assert_true(!in || line[7] == ' ');
        if (in && !strncmp(line, "delta ", 6)) ek_buf_str(&text, line + 8);
    }
    return text;
}

static void streams_and_whole(void **state)
{
    (void)state;
    ek_buf whole = ask("/toy", "\nHello"), stream = ask("/toy", "stream\nHello");
    assert_non_null(strstr(whole.data, "HTTP/1.1 200"));
    assert_non_null(strstr(stream.data, "start toy-"));
    char *text = between(&whole, "whole (", ")");
    assert_true(strlen(text) > 3);
    ek_buf over = {0};
    ek_buf_fmt(&over, "over %.16s", strstr(whole.data, "digest=") + 7);
    assert_non_null(strstr(stream.data, ek_buf_text(&over))); /* the same bits */
    const char *first = strstr(stream.data, "start "), *open = strstr(stream.data, "open 0 text"),
               *close = strstr(stream.data, "close 0"), *end = strstr(stream.data, "end ");
    assert_true(first && open && close && end && first < open && open < close && close < end);
    ek_buf said = deltas(&stream, "text");
    assert_string_equal(said.data, text);
    free(text);
    ek_buf_fini(&said);
    ek_buf_fini(&over);
    ek_buf_fini(&whole);
    ek_buf_fini(&stream);
}

static void stop_strings_have_a_name(void **state)
{
    (void)state;
    ek_buf b = ask("/toy", "stop\nWhat is the capital of France?");
    assert_non_null(strstr(b.data, "stop_sequence"));
    ek_buf_fini(&b);
}

static void without_the_template(void **state)
{
    (void)state;
    ek_buf raw = ask("/raw", "stream\nabc"), chat = ask("/toy", "stream\nabc");
    char *n_raw = between(&raw, "input=", "\n"), *n_chat = between(&chat, "input=", "\n");
    assert_true(atoi(n_raw) >= 2 && atoi(n_raw) <= 4); /* <bos> and the text */
    assert_true(atoi(n_chat) > atoi(n_raw) + 4);
    free(n_raw);
    free(n_chat);
    ek_buf_fini(&raw);
    ek_buf_fini(&chat);
}

static void errors_in_its_own_shape(void **state)
{
    (void)state;
    ek_buf b = ask("/toy", "no line");
    assert_non_null(strstr(b.data, "HTTP/1.1 400"));
    assert_non_null(strstr(b.data, "toy 400 <no line of words> param=line 1 code=-"));
    ek_buf_fini(&b);

    ek_buf body = {0};
    ek_buf_char(&body, '\n');
    for (int i = 0; i < 300; i++) ek_buf_fmt(&body, "%d ", i);
    b = ask("/toy", body.data);
    assert_non_null(strstr(b.data, "toy 400 <prompt is too long: "));
    assert_non_null(strstr(b.data, "param=text code=context_length_exceeded"));
    ek_buf_fini(&b);
    for (int i = 0; i < 4096; i++) ek_buf_char(&body, 'x');
    b = ask("/toy", body.data); /* found below the handlers */
    assert_non_null(strstr(b.data, "HTTP/1.1 413"));
    assert_non_null(strstr(b.data, "toy 413 <"));
    ek_buf_fini(&b);
    ek_buf_fini(&body);

    b = ask("/nothing", "x"); /* a path of nobody: the first dialect's shape */
    assert_non_null(strstr(b.data, "\"error\":{\"message\""));
    ek_buf_fini(&b);
}

static void beside_the_built_in_one(void **state)
{
    (void)state;
    int slow = post_to(ek_server_port(server), "/toy", "stream\nHello");
    ek_buf b = ask("/v1/chat/completions",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0,\"max_tokens\":20,"
                   "\"evenkeel\":{\"digest\":true}}");
    ek_buf t = reply_of(slow);
    char *digest = between(&b, "\"digest\":\"", "\"");
    assert_non_null(strstr(t.data, digest)); /* the same conversation: the same bits */
    free(digest);
    ek_buf_fini(&b);
    ek_buf_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_whole),       cmocka_unit_test(stop_strings_have_a_name),
        cmocka_unit_test(without_the_template),    cmocka_unit_test(errors_in_its_own_shape),
        cmocka_unit_test(beside_the_built_in_one),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
