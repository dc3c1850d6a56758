/* Where the results of tools stand in a prompt: behind their calls, wherever a client put them. */
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "chat/order.h"
#include "text/json/json.h"

/* --- a notation for conversations and prompts ---
 *
 * A conversation is words: u, s, d: a message of the user, the system, the developer. m: a new one of the assistant,
 * and to the last one tTEXT: a text, hTEXT: a thought, cID: a call of function fID, cID/NAME: of NAME, xID: one that
 * was cut off. oID: a call in the last message, whosever that is. rID: a result, rID/NAME: which has a name; its text
 * is ID. Without an ID there is none.
 *
 * A prompt is written short: [f] a call of f, (f=r) a result, ? where one is awaited, {h} a thought, <role: … > a turn.
 */

static ek_message *assistant(ek_conversation *c)
{
    ek_message *last = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;
    return last && last->role == EK_ROLE_ASSISTANT ? last : ek_conversation_add(c, EK_ROLE_ASSISTANT);
}

static void add_result(ek_conversation *c, const char *id, const char *name)
{
    ek_message *m = ek_conversation_add(c, EK_ROLE_TOOL);
    ek_buf_str(&m->call_id, id);
    if (name) ek_buf_str(&m->name, name);
    ek_message_text(m, EK_BLOCK_TEXT, id, strlen(id));
}

static void add_word(ek_conversation *c, char *word)
{
    char *id = word + 1, *name = strchr(id, '/'), made[64];
    if (name) *name++ = '\0';
    snprintf(made, sizeof made, "f%.40s", id);
    switch (word[0]) {
    case 'u': add_text(c, EK_ROLE_USER, "u"); break;
    case 's': add_text(c, EK_ROLE_SYSTEM, "s"); break;
    case 'd': add_text(c, EK_ROLE_DEVELOPER, "d"); break;
    case 'm': ek_conversation_add(c, EK_ROLE_ASSISTANT); break;
    case 't': ek_message_text(assistant(c), EK_BLOCK_TEXT, id, strlen(id)); break;
    case 'h': ek_message_text(assistant(c), EK_BLOCK_REASONING, id, strlen(id)); break;
    case 'c': add_call(assistant(c), id, name ? name : made, "{}"); break;
    case 'o': add_call(&c->messages[c->n_messages - 1], id, name ? name : made, "{}"); break;
    case 'x': add_call(assistant(c), id, name ? name : made, "{}")->cut = true; break;
    case 'r': add_result(c, id, name); break;
    default: fail_msg("no such word: %s", word);
    }
}

static ek_conversation conversation(const char *words)
{
    ek_conversation c = {0};
    char *copy = strdup(words), *state = NULL;
    for (char *w = strtok_r(copy, " ", &state); w; w = strtok_r(NULL, " ", &state)) add_word(&c, w);
    free(copy);
    return c;
}

static void shorten(ek_buf *out, const char *s)
{
    static const char *const words[][2] = {
        {"<bos>", ""},
        {"<|tool_call>call:", "["},
        {"{}<tool_call|>", "]"},
        {"<|tool_response>response:", "("},
        {"{value:<|\"|>", "="},
        {"<|\"|>}<tool_response|>", ")"},
        {"<|tool_response>", "?"},
        {"<|channel>thought\n", "{"},
        {"\n<channel|>", "}"},
        {"<|turn>", "<"},
        {"<turn|>\n", ">"},
        {"\n", ":"},
    };
    enum { N = sizeof words / sizeof *words };
    while (*s) {
        size_t i = 0;
        while (i < N && strncmp(s, words[i][0], strlen(words[i][0])) != 0) i++;
        if (i == N) ek_buf_char(out, *s++);
        else {
            ek_buf_str(out, words[i][1]);
            s += strlen(words[i][0]);
        }
    }
}

static void check(const char *words, const char *want, int line)
{
    ek_conversation c = conversation(words);
    ek_prompt p = {0};
    ek_buf got = {0};
    json_t *messages;
    bool mark;
    ek_chat_opts o = {.variant = EK_CHAT_SMALL, .add_generation_prompt = true};
    if (ek_template_messages(&messages, &c, &mark)) fail_msg("line %d: %s", line, ek_err_text());
    if (ek_chat_render(&p, messages, NULL, &o)) fail_msg("line %d: %s", line, ek_err_text());
    shorten(&got, ek_buf_text(&p.text));
    check_buf(&got, want, __FILE__, line);
    json_decref(messages);
    ek_prompt_fini(&p);
    ek_conversation_fini(&c);
}
#define gives(words, want) check((words), (want), __LINE__)

static void check_refused(const char *words, const char *says, int line)
{
    ek_conversation c = conversation(words);
    json_t *messages;
    bool mark;
    if (ek_template_messages(&messages, &c, &mark) != EK_EINVAL) fail_msg("line %d: %s is taken", line, words);
    assert_null(messages);
    if (!strstr(ek_err_text(), says)) fail_msg("line %d: %s", line, ek_err_text());
    ek_conversation_fini(&c);
}
#define refuses(words, says) check_refused((words), (says), __LINE__)

/* --- */

static void what_the_template_says_stays(void **state)
{
    (void)state;
    gives("u ca ra", "<user:u><model:[fa](fa=a)");
    gives("u ttext ca cb ra rb", "<user:u><model:text[fa][fb](fa=a)(fb=b)");
    gives("u ca cb rb ra", "<user:u><model:[fa][fb](fb=b)(fa=a)"); /* in the client's order */
    gives("u ca ra tdone u", "<user:u><model:[fa](fa=a)done><user:u><model:");
    gives("u t ca ra t cb rb", "<user:u><model:[fa](fa=a)[fb](fb=b)");
    gives("u hh ca ra hi tx cb rb", "<user:u><model:{h}[fa](fa=a){i}x[fb](fb=b)");
    gives("u ta m tb m", "<user:u><model:ab><model:");
}

static void a_text_between(void **state)
{
    (void)state;
    /* Of the assistant, the last it said before the result: before the call, and it stays there. */
    gives("u ca tx ra", "<user:u><model:x[fa](fa=a)");
    gives("u ca tx ra ty", "<user:u><model:x[fa](fa=a)y><model:");
    gives("u ca tx ra cb ty rb", "<user:u><model:x[fa](fa=a)y[fb](fb=b)");
    gives("u ca m tx ra", "<user:u><model:x[fa](fa=a)");
    gives("u tw ca m m tx ra", "<user:u><model:wx[fa](fa=a)");
    gives("u ca hh ra", "<user:u><model:{h}[fa](fa=a)");
    gives("u hg ca hh tx ra", "<user:u><model:{g}{h}x[fa](fa=a)");
    /* Between calls it stays where it was written. */
    gives("u ca tx cb ra rb", "<user:u><model:[fa](fa=a)x[fb](fb=b)");
    gives("u ca tx cb rb ra", "<user:u><model:[fa](fa=a)x[fb](fb=b)");
    gives("u ca hx cb ty rb ra", "<user:u><model:[fa](fa=a){x}y[fb](fb=b)");
    gives("u ca m tx m cb ra rb", "<user:u><model:[fa](fa=a)x[fb](fb=b)");
    /* Partly behind a text. */
    gives("u ca cb rb tx ra", "<user:u><model:x[fa][fb](fb=b)(fa=a)");
    gives("u ca cb rb tx cc ra rc", "<user:u><model:[fa][fb](fb=b)(fa=a)x[fc](fc=c)");
    gives("u ca cb rb ra tx", "<user:u><model:[fa][fb](fb=b)(fa=a)x><model:");
    /* Of others: behind the result, in their own order. */
    gives("u ca u ra", "<user:u><model:[fa](fa=a)><user:u><model:");
    gives("u ca s d ra u", "<user:u><model:[fa](fa=a)><system:s><developer:d><user:u><model:");
    gives("u ca cb ra u rb", "<user:u><model:[fa][fb](fa=a)(fb=b)><user:u><model:");
    gives("u ca u tx ra", "<user:u><model:[fa](fa=a)><user:u><model:x><model:");
    gives("u ca tw u tx cb ra rb", "<user:u><model:w[fa](fa=a)><user:u><model:x[fb](fb=b)");
    /* Calls of several messages. */
    gives("u ca m cb ra rb", "<user:u><model:[fa](fa=a)[fb](fb=b)");
    gives("u ca m cb rb ra", "<user:u><model:[fa](fa=a)[fb](fb=b)");
}

static void calls_without_a_result(void **state)
{
    (void)state;
    gives("u ca", "<user:u><model:[fa]?");
    gives("u ca u", "<user:u><model:[fa]?<user:u><model:");
    gives("u ca cb ra u", "<user:u><model:[fa][fb](fa=a)><user:u><model:");
    gives("u ca tx u", "<user:u><model:[fa]?x><user:u><model:");
    gives("u ca tx cb u", "<user:u><model:[fa]?x[fb]?<user:u><model:");
    /* Beside calls with results they do not keep these apart. */
    gives("u ca tx cb rb", "<user:u><model:x[fa][fb](fb=b)");
    gives("u ca tx cb ra", "<user:u><model:x[fa][fb](fa=a)");
    gives("u ca ty cb tz cc rc", "<user:u><model:yz[fa][fb][fc](fc=c)");
    gives("u ca ra tx cb", "<user:u><model:[fa](fa=a)x[fb]?");
    gives("u ca m cb rb", "<user:u><model:[fa][fb](fb=b)");
    /* One that was cut off was never made, unless something answered it. */
    gives("u ca xb ra", "<user:u><model:[fa](fa=a)");
    gives("u xb u", "<user:u><user:u><model:");
    gives("u xb rb", "<user:u><model:[fb](fb=b)");
}

static void ids(void **state)
{
    (void)state;
    /* The same ids again: the nearest open call before. */
    gives("u c0/f r0 u c0/g r0", "<user:u><model:[f](f=0)><user:u><model:[g](g=0)");
    gives("u c0/f u c0/g u r0", "<user:u><model:[f]?<user:u><model:[g](g=0)><user:u><model:");
    gives("u c0/f u c0/g r0 r0", "<user:u><model:[f](f=0)><user:u><model:[g](g=0)");
    gives("u c0/f c0/g r0 r0/n", "<user:u><model:[f][g](f=0)(g=0)");
    gives("u ca ra ra", "<user:u><model:[fa](fa=a)(fa=a)"); /* two results of one call */
    gives("u ca ra u ra", "<user:u><model:[fa](fa=a)(fa=a)><user:u><model:");
    gives("u ra ca", "<user:u><model:[fa](fa=a)");
    /* None, or of one side only. */
    gives("u c/f r/f", "<user:u><model:[f](f=)");
    gives("u c/f c/g r r", "<user:u><model:[f][g](f=)(g=)");
    gives("u c/f c/g r/g r/f", "<user:u><model:[f][g](g=)(f=)");
    gives("u c/f tx r/f u c/f r/f", "<user:u><model:x[f](f=)><user:u><model:[f](f=)");
    gives("u ca/f cb/g rb r", "<user:u><model:[f][g](g=b)(f=)");
    gives("u ca/f cb/g r/g r", "<user:u><model:[f][g](g=)(f=)");
    gives("u c/f ra", "<user:u><model:[f](f=a)");
    refuses("u ra", "\"a\"");
    refuses("u ca rb", "\"b\"");
    refuses("u ca ra rb", "\"b\"");
    refuses("u ca ra r", "names no call");
    refuses("u r", "names no call");
    refuses("u c/f r u r", "names no call");
    char words[300] = "u r";
    memset(words + 3, 'x', 200);
    refuses(words, "xxx\"");
    assert_true(strlen(ek_err_text()) < 200);
    refuses("u r\n\xFF", "\"\\n\xEF\xBF\xBD\"");
}

/* No client's user calls tools, but a message may say so, and the template has its calls. */
static void calls_that_are_not_the_assistants(void **state)
{
    (void)state;
    gives("u oa ra", "<user:[fa](fa=a)u>"); /* as the template: whoever called goes on */
    gives("u oa ob tx rb u ra", "<user:[fa][fb](fb=b)(fa=a)u><model:x><user:u><model:");
    gives("s u oa ca ra ra", "<system:s><user:[fa](fa=a)u><model:[fa](fa=a)");
    refuses("u oa rb", "\"b\"");
    gives("u ca ra ob", "<user:u><model:[fa](fa=a)"); /* a tool calls none */
    refuses("u ca ra ob rb", "\"b\"");
}

/* The template looks at no other results beside those that a message holds itself. */
static void results_inside_the_message(void **state)
{
    (void)state;
    ek_conversation c = conversation("u ca cb");
    ek_block *own = ek_message_add(&c.messages[1], EK_BLOCK_RESULT);
    ek_buf_str(&own->name, "fa");
    own->value = json_string("1");
    add_word(&c, (char[]){"rb"});
    json_t *messages;
    bool mark;
    ek_buf got = {0};
    assert_int_equal(ek_template_messages(&messages, &c, &mark), EK_OK);
    ek_json_write(&got, json_object_get(json_array_get(messages, 1), "tool_responses"));
    same_text(&got, "[{\"name\":\"fa\",\"response\":\"1\"},{\"name\":\"fb\",\"response\":\"b\"}]");
    assert_int_equal(json_array_size(messages), 2);
    json_decref(messages);
    ek_conversation_fini(&c);
}

static double time_of(ek_conversation *c, int n_results)
{
    json_t *messages, *m;
    bool mark;
    size_t i;
    double begin = ek_thread_time();
    if (ek_template_messages(&messages, c, &mark)) fail_msg("%s", ek_err_text());
    double took = ek_thread_time() - begin;
    int found = 0;
    json_array_foreach(messages, i, m) found += !strcmp(json_string_value(json_object_get(m, "role")), "tool");
    assert_int_equal(found, n_results);
    json_decref(messages);
    ek_conversation_fini(c);
    return took;
}

enum { N = 50000 };

/* Calls, then a text behind each, then the results, last one first. */
static void many_messages(void **state)
{
    static const char *const names[] = {"each id once", "one id", "no ids", "one message"};
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        ek_conversation c = {0};
        char id[32];
        for (int i = 0; i < N; i++) {
            snprintf(id, sizeof id, "call_%d", kind == 1 ? 0 : i);
            if (kind != 3 || i == 0) ek_conversation_add(&c, EK_ROLE_ASSISTANT);
            add_call(&c.messages[c.n_messages - 1], kind == 2 ? "" : id, "f", "{}");
            if (kind < 2) ek_message_text(&c.messages[c.n_messages - 1], EK_BLOCK_TEXT, "x", 1);
        }
        for (int i = N; i-- > 0;) {
            snprintf(id, sizeof id, "call_%d", kind == 1 ? 0 : i);
            add_result(&c, kind == 2 ? "" : id, NULL);
        }
        double took = time_of(&c, N);
        print_message("measured: %d results, %s: %.0f ms\n", N, names[kind], took * 1e3);
        assert_true(took < 3); /* a search through all calls for each takes a minute */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_template_says_stays),
        cmocka_unit_test(a_text_between),
        cmocka_unit_test(calls_without_a_result),
        cmocka_unit_test(ids),
        cmocka_unit_test(calls_that_are_not_the_assistants),
        cmocka_unit_test(results_inside_the_message),
        cmocka_unit_test(many_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
