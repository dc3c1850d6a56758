#include "helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "text/reply/reply.h"

/* What came out: adjacent texts of one kind joined, so that only their sum is compared. */
typedef struct log {
    ek_buf text;
    int last;
    ek_buf args; /* of the call in hand */
} log;

/* What came of a call that did not end, and what it lacks: a JSON object. */
static void check_closing(log *l, const ek_reply_event *e)
{
    json_t *v;
    ek_buf_add(&l->args, e->text, e->n);
    if (ek_json_read(&v, ek_buf_text(&l->args), l->args.len, 0)) fail_msg("closed: %s", ek_buf_text(&l->args));
    assert_true(json_is_object(v));
    json_decref(v);
    ek_buf_fini(&l->args);
}

static void write_log(void *arg, const ek_reply_event *e)
{
    static const char *const names[] = {"content", "reasoning", "call", "args", "end", "cut", "drop", "stop"};
    log *l = arg;
    assert_true(e->text && e->text[e->n] == '\0');
    bool joins = e->kind == EK_REPLY_CONTENT || e->kind == EK_REPLY_REASONING || e->kind == EK_REPLY_CALL_ARGS;
    if (joins) assert_true(e->n > 0);
    if (!joins || l->last != (int)e->kind) ek_buf_fmt(&l->text, "%s[%s]", l->text.len ? " " : "", names[e->kind]);
    if (e->kind != EK_REPLY_CALL_DROP) ek_buf_add(&l->text, e->text, e->n);
    if (e->kind == EK_REPLY_CALL_ARGS) ek_buf_add(&l->args, e->text, e->n);
    if (e->kind == EK_REPLY_CALL_END) ek_buf_fini(&l->args);
    if (e->kind == EK_REPLY_CALL_CUT || e->kind == EK_REPLY_CALL_DROP) check_closing(l, e);
    if (e->kind == EK_REPLY_STOP) ek_buf_fmt(&l->text, "%d", (int)e->mark);
    l->last = (int)e->kind;
}

static ek_reply_opts defaults(log *l)
{
    *l = (log){.last = -1};
    return (ek_reply_opts){.tools_active = true, .sink = write_log, .arg = l};
}

static void run(const ek_reply_opts *o, const char *text, size_t n, bool truncated)
{
    ek_reply *r = ek_reply_open(NULL, o);
    ek_reply_feed_text(r, text, n);
    ek_reply_end(r, truncated);
    ek_reply_close(r);
}

static void check_log(const ek_reply_opts *o, log *l, const char *in, bool truncated, const char *want, int line)
{
    run(o, in, strlen(in), truncated);
    check_bytes(ek_buf_text(&l->text), l->text.len, want, strlen(want), in, line);
    ek_buf_fini(&l->text);
}

#define gives(in, want)                                 \
    do {                                                \
        log l_;                                         \
        ek_reply_opts o_ = defaults(&l_);               \
        check_log(&o_, &l_, in, false, want, __LINE__); \
    } while (0)

#define streams(in, want)                               \
    do {                                                \
        log l_;                                         \
        ek_reply_opts o_ = defaults(&l_);               \
        o_.stream_calls = true;                         \
        check_log(&o_, &l_, in, false, want, __LINE__); \
    } while (0)

static void content_and_reasoning(void **state)
{
    (void)state;
    gives("Hello <there> & </s> <start_of_turn>", "[content]Hello <there> & </s> <start_of_turn>");
    gives("<|channel>thought\nLet me\nsee.\n<channel|>Two.", "[reasoning]Let me\nsee. [content]Two.");
    gives("<|channel>thought\n<channel|>x", "[content]x");
    gives("<|channel>thought\n\n<channel|>x", "[content]x");
    gives("<|channel>thought\n\n\n<channel|>x", "[reasoning]\n [content]x");
    gives("<|channel>thought\na\n", "[reasoning]a\n");
    gives("<|channel>thought\na\n<turn|>zzz", "[reasoning]a\n [stop]2");
    gives("<|channel><|channel>thought\na<channel|>", "[reasoning]a");
    gives("<|channel>thought\na\n<|channel>thought\nb\n<channel|>c", "[reasoning]a\nb [content]c");
    gives("<|channel>final\nshown<channel|> too", "[content]shown too");
    gives("<|channel>thought<channel|>shown", "[content]shown");
    gives("<|channel>thought", "");
    gives("<channel|>a<tool_call|><tool_response|><tool|>b", "[content]ab");
    gives("a<|turn>b<bos>c<|image|>d", "[content]abcd");
    gives("a<eos>b", "[content]a [stop]1");
    gives("a<|tool_response>b", "[content]a [stop]3");
    gives("x <|tool_cal and <|", "[content]x <|tool_cal and <|");
    gives("\xF0\x9F"
          "<turn|>",
          "[content]\xEF\xBF\xBD [stop]2");
    gives("", "");
}

static void lenient_start(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {{"thought\nhm\n<channel|>x", "[reasoning]hm [content]x"},
                 {"thoughts are free", "[content]thoughts are free"},
                 {"thought", "[content]thought"},
                 {"tho<turn|>", "[content]tho [stop]2"},
                 {"x thought\n", "[content]x thought\n"},
                 {"<|channel>thought\na<channel|>thought\nb", "[reasoning]a [content]thought\nb"},
                 {"thought\n", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        log l;
        ek_reply_opts o = defaults(&l);
        o.lenient_start = true;
        check_log(&o, &l, cases[i].in, false, cases[i].want, __LINE__);
    }
    gives("thought\nhm", "[content]thought\nhm");
}

#define CALL(args)             "<|tool_call>call:f" args "<tool_call|>"
#define GIVES_CALL(args, want) gives(CALL(args), "[call]f [args]" want " [end]")

static void well_formed_calls(void **state)
{
    (void)state;
    GIVES_CALL("{}", "{}");
    GIVES_CALL("{a:1,b:-2.5e3,c:true,d:false,e:null}", "{\"a\":1,\"b\":-2.5e3,\"c\":true,\"d\":false,\"e\":null}");
    GIVES_CALL("{s:<|\"|>a \"q\" \\n {b:[1]}, 'x' } ]\n\té<|\"|>,t:<|\"|><|\"|>}",
               "{\"s\":\"a \\\"q\\\" \\\\n {b:[1]}, 'x' } ]\\n\\té\",\"t\":\"\"}");
    GIVES_CALL("{a:[],b:{},c:[[1],{d:[<|\"|>x<|\"|>,2]}]}", "{\"a\":[],\"b\":{},\"c\":[[1],{\"d\":[\"x\",2]}]}");
    GIVES_CALL("{<|\"|>a:b<|\"|>:1,\"c\\td\":2,é f:3}", "{\"a:b\":1,\"c\\td\":2,\"é f\":3}");
    GIVES_CALL("{n:123456789012345678901234567890}", "{\"n\":123456789012345678901234567890}");
    gives("Look.<|tool_call>call:mcp__a-1.b/c:d{}<tool_call|><|tool_call>call:g{x:1}<tool_call|><|tool_response>no",
          "[content]Look. [call]mcp__a-1.b/c:d [args]{} [end] [call]g [args]{\"x\":1} [end] [stop]3");
    gives("<|channel>thought\nN\n<|tool_call>call:f{}<tool_call|>", "[reasoning]N [call]f [args]{} [end]");
    gives(CALL("{}") "\n<tool_call|> " CALL("{}") "\n\n Bye \n",
          "[call]f [args]{} [end] [call]f [args]{} [end] [content] Bye \n");
    gives(CALL("{}") "<|channel>thought\nx<channel|>y", "[call]f [args]{} [end] [reasoning]x [content]y");
}

static void repairs(void **state)
{
    (void)state;
    /* quotes missing */
    GIVES_CALL("{q:weather in Tokyo, Japan<|\"|>}", "{\"q\":\"weather in Tokyo, Japan\"}");
    GIVES_CALL("{q:a, b<|\"|>,n:3}", "{\"q\":\"a, b\",\"n\":3}");
    GIVES_CALL("{q:<|\"|>Paris}", "{\"q\":\"Paris\"}");
    GIVES_CALL("{a:{q:<|\"|>}x}}}", "{\"a\":{\"q\":\"}x}\"}}");
    GIVES_CALL("{a:[<|\"|>x<|\"|>,<|\"|>y]}", "{\"a\":[\"x\",\"y\"]}");
    /* other quotes */
    GIVES_CALL("{\"url\":\"http://x/{a},b\\d\\u00e9\",'k':'it's, ok','l':['a','b']}",
               "{\"url\":\"http://x/{a},b\\\\dé\",\"k\":\"it's, ok\",\"l\":[\"a\",\"b\"]}");
    GIVES_CALL("{a:\"x}", "{\"a\":\"x\"}");
    GIVES_CALL("{a:'x}", "{\"a\":\"x\"}");
    GIVES_CALL("{a:'x'}", "{\"a\":\"x\"}");
    /* equals signs, Python calls */
    GIVES_CALL("{k='v',n=3,s=<|\"|>x<|\"|>,b=yes}", "{\"k\":\"v\",\"n\":3,\"s\":\"x\",\"b\":\"yes\"}");
    GIVES_CALL("{a=b:1}", "{\"a=b\":1}");
    /* names that look like syntax and are not known */
    GIVES_CALL("{filter[status]:<|\"|>open<|\"|>,f(a, b):1,a{b}:{c[d]:2}}",
               "{\"filter[status]\":\"open\",\"f(a, b)\":1,\"a{b}\":{\"c[d]\":2}}");
    GIVES_CALL("{<|\"|>a:{b<|\"|>:1,<|\"|><|\"|>:2}", "{\"a:{b\":1,\"\":2}");
    GIVES_CALL("{u=<|\"|>a:b<|\"|>}", "{\"u\":\"a:b\"}");
    GIVES_CALL("(k=\"v\", n=3, l=[1,'a'], d={'x':None})", "{\"k\":\"v\",\"n\":3,\"l\":[1,\"a\"],\"d\":{\"x\":null}}");
    GIVES_CALL("(k=\"v)\", n=3", "{\"k\":\"v)\",\"n\":3}");
    GIVES_CALL("()", "{}");
    /* bare words */
    GIVES_CALL("{unit:celsius}", "{\"unit\":\"celsius\"}");
    GIVES_CALL("{unit:celsius,city:<|\"|>Rome<|\"|>,n:1}", "{\"unit\":\"celsius\",\"city\":\"Rome\",\"n\":1}");
    GIVES_CALL("{l:[bug,ui fix],m:{a:b c},d:x, y, e:1}",
               "{\"l\":[\"bug\",\"ui fix\"],\"m\":{\"a\":\"b c\"},\"d\":\"x, y\",\"e\":1}");
    GIVES_CALL("{l:[bug,<|\"|>ui<|\"|>]}", "{\"l\":[\"bug\",\"ui\"]}");
    GIVES_CALL("{code:f(x) { y; }}", "{\"code\":\"f(x) { y; }\"}");
    GIVES_CALL("{a:True,b:False,c:None,d:Truely}", "{\"a\":true,\"b\":false,\"c\":null,\"d\":\"Truely\"}");
    GIVES_CALL("{a:.5,b:1.,c:+1,d:0x10,e:NaN,f:01}",
               "{\"a\":\".5\",\"b\":\"1.\",\"c\":\"+1\",\"d\":\"0x10\",\"e\":\"NaN\",\"f\":\"01\"}");
    /* shape */
    GIVES_CALL("{a:1,b:[1,2}", "{\"a\":1,\"b\":[1,2]}");
    GIVES_CALL("{a:{b:1", "{\"a\":{\"b\":1}}");
    GIVES_CALL("{a:1}}]} ", "{\"a\":1}");
    GIVES_CALL("{,a:1,,b:,c:}", "{\"a\":1,\"b\":null,\"c\":null}");
    GIVES_CALL("{a:1,a:2,b:{a:3,a:[4]},a:{c:5},d:6}", "{\"a\":1,\"b\":{\"a\":3},\"d\":6}");
    GIVES_CALL(" \n{ a : 1 , b : <|\"|> x <|\"|> } ", "{\"a\":1,\"b\":\" x \"}");
    gives("<|tool_call>:f{a:1}<tool_call|>", "[call]f [args]{\"a\":1} [end]");
    gives("<|tool_call>f{a:1}<tool_call|>", "[call]f [args]{\"a\":1} [end]");
    gives("<|tool_call><|tool_call>call:f{}<tool_call|>", "[call]f [args]{} [end]");
    gives("<|tool_call><channel|>call:f{a:<channel|>1}<tool_call|>", "[call]f [args]{\"a\":1} [end]");
    gives("<|tool_call>call:f{a:1}<|tool_call>call:g{}<turn|>",
          "[call]f [args]{\"a\":1} [end] [call]g [args]{} [end] [stop]2");
    gives("<|tool_call>call:f{s:<|\"|>a<|tool_call>b<|\"|>}<tool_call|>", "[call]f [args]{\"s\":\"ab\"} [end]");
}

static void gives_up_visibly(void **state)
{
    (void)state;
    static const char *const bad[] = {CALL(""),
                                      "<|tool_call>call:f:BEGIN_ARG x END_ARG<tool_call|>",
                                      "<|tool_call>{\"name\":\"f\"}<tool_call|>",
                                      "<|tool_call><tool_call|>",
                                      "<|tool_call>two\nlines{}<tool_call|>",
                                      "<|tool_call>call:f:BEGIN_ARG {a} END_ARG<tool_call|>",
                                      "<|tool_call>call:<|\"|>f{}<tool_call|>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_buf want = {0};
        ek_buf_fmt(&want, "[content]%s", bad[i]);
        gives(bad[i], want.data);
        ek_buf_fini(&want);
    }
    gives("a" CALL("{a:<|\"|>x<|\"|> y<|\"|>z}") "b", "[content]a" CALL("{a:<|\"|>x<|\"|> y<|\"|>z}") "b");
    gives(CALL("{b}"), "[content]" CALL("{b}"));
    gives("<|tool_call>call:f{a:1", "[content]<|tool_call>call:f{a:1");
    gives("<|tool_call>call:f{a:<|\"|>x<turn|>", "[content]<|tool_call>call:f{a:<|\"|>x [stop]2");
    gives("<|tool_call>call:f{a:<|\"|>x<|\"|>}<turn|>", "[call]f [args]{\"a\":\"x\"} [end] [stop]2");
    gives("<|tool_call>call:f{a:b}<turn|>", "[call]f [args]{\"a\":\"b\"} [end] [stop]2");
    gives("<|tool_call>call:f{b<|tool_call>call:g{}<tool_call|>",
          "[content]<|tool_call>call:f{b [call]g [args]{} [end]");
    /* sent as they are written, they are taken back */
    streams("a" CALL("{a:<|\"|>x<|\"|> y<|\"|>z}") "b",
            "[content]a [call]f [args]{\"a\":\"x\" [drop] [content]" CALL("{a:<|\"|>x<|\"|> y<|\"|>z}") "b");
    streams(CALL("{b}"), "[call]f [args]{ [drop] [content]" CALL("{b}"));
    streams("<|tool_call>call:f{a:1", "[call]f [args]{\"a\":1 [drop] [content]<|tool_call>call:f{a:1");
    streams("<|tool_call>call:f{a:<|\"|>x<turn|>",
            "[call]f [args]{\"a\":\"x [drop] [content]<|tool_call>call:f{a:<|\"|>x [stop]2");
    streams("<|tool_call>call:f{a:<|\"|>x<|\"|>}<turn|>", "[call]f [args]{\"a\":\"x\"} [end] [stop]2");
    streams("<|tool_call>call:f{a:b}<turn|>", "[call]f [args]{\"a\":\"b\"} [end] [stop]2");
    streams("<|tool_call>call:f{b<|tool_call>call:g{}<tool_call|>",
            "[call]f [args]{ [drop] [content]<|tool_call>call:f{b [call]g [args]{} [end]");
    log l;
    ek_reply_opts o = defaults(&l);
    check_log(&o, &l, "x<|tool_call>call:f{a:1", true, "[content]x [call]f [args]{\"a\": [cut]null}", __LINE__);
    o = defaults(&l);
    check_log(&o, &l, "<|tool_call>call:f{a:[{b:<|\"|>Os", true, "[call]f [args]{\"a\":[{\"b\":\"Os [cut]\"}]}",
              __LINE__);
    o = defaults(&l); /* all of it but its marker is there */
    check_log(&o, &l, "<|tool_call>call:f{a:1}", true, "[call]f [args]{\"a\":1} [end]", __LINE__);
    o = defaults(&l); /* no name yet: nothing was sent */
    check_log(&o, &l, "x<|tool_call>call:get_w", true, "[content]x", __LINE__);
    o = defaults(&l); /* malformed before the limit came */
    check_log(&o, &l, "<|tool_call>call:f<g>{", true, "[content]<|tool_call>call:f<g>{", __LINE__);
    o = defaults(&l); /* the value of a repeated key is not written */
    check_log(&o, &l, "<|tool_call>call:f{a:1,a:<|\"|>x", true, "[call]f [args]{\"a\":1 [cut]}", __LINE__);
}

static void options(void **state)
{
    (void)state;
    log l;
    ek_reply_opts o = defaults(&l);
    o.tools_active = false;
    check_log(&o, &l, "a<|tool_call>b<tool_call|>", false, "[content]ab", __LINE__);
    o = defaults(&l);
    o.one_call = true;
    check_log(&o, &l, CALL("{}") CALL("{}") "x", false, "[call]f [args]{} [end] [stop]9", __LINE__);
    o = defaults(&l);
    o.ignore_eos = true;
    check_log(&o, &l, "a<turn|>b<eos>" CALL("{x:1<turn|>}") "<|tool_response>c", false,
              "[content]ab [call]f [args]{\"x\":1} [end] [content]c", __LINE__);
    o = defaults(&l);
    o.sink = NULL;
    run(&o, CALL("{}"), strlen(CALL("{}")), false);
}

static void schemas_type_bare_values(void **state)
{
    (void)state;
    json_t *tools = read_json(
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"zip\":{\"type\":\"string\"},\"x\":{\"type\":\"number\"},"
        "\"i\":{\"type\":\"integer\"},\"n\":{\"type\":[\"string\",\"null\"]},\"l\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
        "\"o\":{\"properties\":{\"s\":{\"type\":\"STRING\"}}},\"u\":{}}}}}]");
    static const struct {
        const char *in, *want;
    } cases[] = {{"{zip:12345,u:12345}", "{\"zip\":\"12345\",\"u\":12345}"},
                 {"{zip:true}", "{\"zip\":\"true\"}"},
                 {"{zip:}", "{\"zip\":\"\"}"},
                 {"{x:.5,i:1}", "{\"x\":0.5,\"i\":1}"},
                 {"{x:1.}", "{\"x\":1.0}"},
                 {"{i:0x10}", "{\"i\":16}"},
                 {"{i:+7}", "{\"i\":7}"},
                 {"{x:NaN}", "{\"x\":\"NaN\"}"},
                 {"{n:null}", "{\"n\":null}"},
                 {"{n:5}", "{\"n\":\"5\"}"},
                 {"{l:[1,2],o:{s:3}}", "{\"l\":[\"1\",\"2\"],\"o\":{\"s\":\"3\"}}"},
                 {"{x:<|\"|>3<|\"|>}", "{\"x\":\"3\"}"},
                 {"{zip=http://x}", "{\"zip\":\"http://x\"}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        log l;
        ek_reply_opts o = defaults(&l);
        o.tools = tools;
        ek_buf in = {0}, want = {0};
        ek_buf_fmt(&in, "<|tool_call>call:f%s<tool_call|>", cases[i].in);
        ek_buf_fmt(&want, "[call]f [args]%s [end]", cases[i].want);
        check_log(&o, &l, in.data, false, want.data, __LINE__);
        ek_buf_fini(&in);
        ek_buf_fini(&want);
    }
    json_decref(tools);
}

/* --- by token id ------------------------------------------------------------------------ */

static void feed_ids(ek_reply *r, const ek_tokenizer *t, const char *text)
{
    ek_ids ids = {0};
    ek_encode(t, text, strlen(text), NULL, EK_CONTROL_ALL, &ids);
    for (size_t i = 0; i < ids.len; i++) ek_reply_feed(r, ids.data[i]);
    ek_ids_fini(&ids);
}

static void starts_where_the_prompt_ends(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    static const struct {
        const char *prompt, *reply, *want;
    } cases[] = {{"<|turn>user\nhi<turn|>\n<|turn>model\n", "a<turn|>", "[content]a [stop]2"},
                 {"<|tool_call>call:a{}<tool_call|><|tool_response>x<tool_response|><|channel>thought\n",
                  "a\n<channel|>b", "[reasoning]a [content]b"},
                 {"<tool_response|><|channel>thought", "\na<channel|>b", "[reasoning]a [content]b"},
                 {"<|channel>", "thought\na<channel|>b", "[reasoning]a [content]b"},
                 {"<|channel>other\n", "a<channel|>b", "[content]ab"},
                 {"<|turn>model\n<|channel>thought\n<channel|>", "thought\na<channel|>b", "[reasoning]a [content]b"},
                 {"<|turn>model\n<|channel>thought\n<channel|>x", "thought\na", "[content]thought\na"},
                 {"<|turn>model\n", "thought\na", "[content]thought\na"},
                 {"", "a", "[content]a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        log l;
        ek_reply_opts o = defaults(&l);
        ek_reply *r = ek_reply_open(t, &o);
        ek_ids prompt = {0};
        ek_encode(t, cases[i].prompt, strlen(cases[i].prompt), NULL, EK_CONTROL_ALL, &prompt);
        ek_reply_start(r, prompt.data, prompt.len);
        feed_ids(r, t, cases[i].reply);
        ek_reply_end(r, false);
        check_bytes(ek_buf_text(&l.text), l.text.len, cases[i].want, strlen(cases[i].want), cases[i].prompt, (int)i);
        ek_ids_fini(&prompt);
        ek_reply_close(r);
        ek_buf_fini(&l.text);
    }
    ek_tokenizer_close(t);
}

/* Marker text made of ordinary tokens is prose. */
static void literal_markers_are_text(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    log l;
    ek_reply_opts o = defaults(&l);
    ek_reply *r = ek_reply_open(t, &o);
    ek_ids ids = {0};
    static const char text[] = "<|tool_call>call:f{}<tool_call|><turn|>";
    ek_encode(t, text, strlen(text), NULL, 0, &ids);
    for (size_t i = 0; i < ids.len; i++) assert_int_equal(ek_reply_feed(r, ids.data[i]), EK_TOKEN_CONTENT);
    ek_reply_end(r, false);
    check_buf(&l.text, "[content]<|tool_call>call:f{}<tool_call|><turn|>");
    assert_int_equal(ek_reply_calls(r), 0);
    ek_reply_close(r);
    ek_ids_fini(&ids);
    ek_buf_fini(&l.text);
    ek_tokenizer_close(t);
}

static void says_what_tokens_are(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    log l;
    ek_reply_opts o = defaults(&l);
    ek_reply *r = ek_reply_open(t, &o);
    ek_ids ids = {0};
    ek_buf b = {0};
    static const char text[] =
        "<|channel>thought\na<channel|>b<tool|><|tool_call>call:a{a:<|\"|>b<|\"|>}<tool_call|>\na<turn|>b";
    ek_encode(t, text, strlen(text), NULL, EK_CONTROL_ALL, &ids);
    for (size_t i = 0; i < ids.len; i++) ek_buf_char(&b, "cr*-"[ek_reply_feed(r, ids.data[i])]);
    /* <|channel> thought \n a <channel|> b <tool|> <|tool_call> call : a { a : <|"|> b <|"|> } <tool_call|> \n a
     * <turn|> b */
    check_buf(&b, "rrrrrc-************-c--");
    assert_true(ek_reply_stopped(r));
    assert_int_equal(ek_reply_calls(r), 1);
    assert_int_equal(ek_reply_malformed(r), 0);
    ek_reply_close(r);
    ek_ids_fini(&ids);
    ek_buf_fini(&b);
    ek_buf_fini(&l.text);
    ek_tokenizer_close(t);
}

static const char *const crumbs[] = {"<|tool_call>",
                                     "<tool_call|>",
                                     "<|\"|>",
                                     "<|channel>",
                                     "<channel|>",
                                     "<turn|>",
                                     "<|tool_response>",
                                     "<|turn>",
                                     "call:",
                                     "call:f",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "=",
                                     "(",
                                     ")",
                                     "\"",
                                     "'",
                                     "\\",
                                     "\n",
                                     " ",
                                     "a",
                                     "b:",
                                     "true",
                                     "12",
                                     "-1.5",
                                     "thought\n",
                                     "<",
                                     "é",
                                     "\xF0\x9F\x9A\x80",
                                     "\xC3",
                                     "k",
                                     "<|tool",
                                     "None",
                                     "\\u00e9",
                                     "\x01"};

static void crumb_soup(dice *d, ek_buf *out)
{
    /* Mostly calls, so that the arguments are reached. */
    if (roll(d, 3)) ek_buf_str(out, "<|tool_call>call:f{");
    for (uint32_t n = roll(d, 30); n > 0; n--) ek_buf_str(out, crumbs[roll(d, sizeof crumbs / sizeof *crumbs)]);
    if (roll(d, 2)) ek_buf_str(out, "<tool_call|>");
}

/* A call that ended is valid JSON, whatever came in; and the cuts of the input are invisible:
 * all at once, byte by byte, and token by token give the same. */
static void any_input_any_cut(void **state)
{
    (void)state;
    ek_tokenizer *t = small_tokenizer();
    dice d = {.seed = 5};
    for (int run_no = 0; run_no < 30000; run_no++) {
        ek_buf in = {0};
        crumb_soup(&d, &in);
        bool truncated = roll(&d, 2), lenient = roll(&d, 2);
        log whole, parts, tokens;
        ek_reply_opts o = defaults(&whole);
        o.lenient_start = lenient;
        run(&o, ek_buf_text(&in), in.len, truncated);

        o = defaults(&parts);
        o.lenient_start = lenient;
        ek_reply *r = ek_reply_open(NULL, &o);
        for (size_t at = 0; at < in.len;) {
            size_t k = 1 + roll(&d, 5);
            if (k > in.len - at) k = in.len - at;
            ek_reply_feed_text(r, in.data + at, k);
            at += k;
        }
        ek_reply_end(r, truncated);
        ek_reply_close(r);
        check_bytes(ek_buf_text(&parts.text), parts.text.len, ek_buf_text(&whole.text), whole.text.len,
                    ek_buf_text(&in), run_no);

        o = defaults(&tokens);
        o.lenient_start = lenient;
        r = ek_reply_open(t, &o);
        feed_ids(r, t, ek_buf_text(&in));
        ek_reply_end(r, truncated);
        ek_reply_close(r);
        check_bytes(ek_buf_text(&tokens.text), tokens.text.len, ek_buf_text(&whole.text), whole.text.len,
                    ek_buf_text(&in), run_no);

        ek_answer a = {0};
        o = (ek_reply_opts){.tools_active = true, .lenient_start = lenient, .sink = ek_reply_collect, .arg = &a};
        run(&o, ek_buf_text(&in), in.len, truncated);
        json_t *v;
        for (int i = 0; i < a.n_calls; i++) {
            ek_buf_add(&a.calls[i].args, ek_buf_text(&a.calls[i].closing), a.calls[i].closing.len);
            if (ek_json_read(&v, ek_buf_text(&a.calls[i].args), a.calls[i].args.len, 0) != EK_OK)
                fail_msg("%s gives %s", ek_buf_text(&in), ek_buf_text(&a.calls[i].args));
            assert_true(json_is_object(v));
            json_decref(v);
        }
        v = ek_answer_json(&a);
        assert_false(a.open);
        json_decref(v);
        ek_answer_fini(&a);
        ek_buf_fini(&whole.text);
        ek_buf_fini(&parts.text);
        ek_buf_fini(&tokens.text);
        ek_buf_fini(&in);
    }
    ek_tokenizer_close(t);
}

static void collects(void **state)
{
    (void)state;
    ek_answer a = {0};
    ek_reply_opts o = {.tools_active = true, .sink = ek_reply_collect, .arg = &a};
    static const char text[] =
        "<|channel>thought\nr\n<channel|>c<|tool_call>call:f{x:1}<tool_call|><|tool_call>call:g{b}<tool_call|>" CALL(
            "{n:99999999999999999999}");
    run(&o, text, strlen(text), false);
    json_t *v = ek_answer_json(&a);
    ek_buf b = {0};
    ek_json_write(&b, v);
    check_buf(&b,
              "{\"content\":\"c<|tool_call>call:g{b}<tool_call|>\",\"reasoning_content\":\"r\",\"tool_calls\":["
              "{\"name\":\"f\",\"arguments\":{\"x\":1}},{\"name\":\"f\",\"arguments\":{\"n\":99999999999999999999}}]}");
    ek_buf_fini(&b);
    json_decref(v);
    ek_answer_fini(&a);
}

static void call_ids(void **state)
{
    (void)state;
    char a[32], b[32];
    ek_call_id(a, "call_", "chatcmpl-1", 0);
    ek_call_id(b, "call_", "chatcmpl-1", 0);
    assert_string_equal(a, b);
    assert_int_equal(strlen(a), 5 + 24);
    assert_int_equal(strspn(a + 5, "0123456789abcdef"), 24);
    ek_call_id(b, "call_", "chatcmpl-1", 1);
    assert_string_not_equal(a, b);
    ek_call_id(b, "call_", "chatcmpl-2", 0);
    assert_string_not_equal(a, b);
    ek_call_id(b, "toolu_", "chatcmpl-1", 0);
    assert_memory_equal(b, "toolu_", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(content_and_reasoning),
                                       cmocka_unit_test(lenient_start),
                                       cmocka_unit_test(well_formed_calls),
                                       cmocka_unit_test(repairs),
                                       cmocka_unit_test(gives_up_visibly),
                                       cmocka_unit_test(options),
                                       cmocka_unit_test(schemas_type_bare_values),
                                       cmocka_unit_test(starts_where_the_prompt_ends),
                                       cmocka_unit_test(literal_markers_are_text),
                                       cmocka_unit_test(says_what_tokens_are),
                                       cmocka_unit_test(any_input_any_cut),
                                       cmocka_unit_test(collects),
                                       cmocka_unit_test(call_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
