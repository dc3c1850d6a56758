#include "helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/hash/hash.h"
#include "text/template/chat.h"

static void check_render(const char *request, const char *want, int line)
{
    json_t *v = read_json(request);
    ek_prompt p = {0};
    ek_err e = ek_chat_render_request(&p, v, EK_CHAT_SMALL);
    if (want && e != EK_OK) fail_msg("line %d: %s", line, ek_err_text());
    if (!want && e != EK_EINVAL) fail_msg("line %d: rendered to %s", line, ek_buf_text(&p.text));
    if (want) check_bytes(ek_buf_text(&p.text), p.text.len, want, strlen(want), "test_chat.c", line);
    ek_prompt_fini(&p);
    json_decref(v);
}
#define renders(request, want) check_render(request, "<bos>" want, __LINE__)
#define raises(request)        check_render(request, NULL, __LINE__)

/* One tool whose parameters have the one property p of the given schema. */
static void check_property(const char *schema, const char *want, int line)
{
    ek_buf in = {0}, out = {0};
    ek_buf_fmt(
        &in,
        "{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"properties\":{\"p\":%s}}}}]}",
        schema);
    ek_buf_fmt(
        &out,
        "<bos><|turn>system\n<|tool>declaration:f{description:<|\"|>d<|\"|>,parameters:{properties:{p:{%s}},}<tool|><turn|>\n",
        want);
    check_render(in.data, out.data, line);
    ek_buf_fini(&in);
    ek_buf_fini(&out);
}
#define property(schema, want) check_property(schema, want, __LINE__)
#define S(x)                   "<|\"|>" x "<|\"|>"

static void turns(void **state)
{
    (void)state;
    renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi \"}],\"add_generation_prompt\":true,\"variant\":\"large\"}",
        "<|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>");
    renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":true,\"variant\":\"large\",\"enable_thinking\":1}",
        "<|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n");
    renders("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":true}",
            "<|turn>user\nHi<turn|>\n<|turn>model\n");
    renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"c\"},"
        "{\"role\":\"system\",\"content\":\"late\"},{\"role\":\"function\",\"content\":null}]}",
        "<|turn>user\na<turn|>\n<|turn>model\nbc<turn|>\n<|turn>system\nlate<turn|>\n<|turn>function\n<turn|>\n");
    renders(
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"text\":\" A \"},{\"type\":\"image\"},\"x\",{\"text\":null}]}]}",
        "<|turn>system\nA   None <turn|>\n");
    renders("{\"messages\":[]}", "");
    renders(
        "{\"messages\":[{\"role\":\"tool\",\"content\":\"orphan\"},{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"tool\",\"content\":\"o\"}]}",
        "<|turn>user\nx<turn|>\n");
    raises("{\"messages\":[{\"content\":\"x\"}]}");
    raises("{\"messages\":[\"x\"]}");
    raises("{\"messages\":null}");
    raises("{\"tools\":[]}");
    raises("[]");
    raises("{\"messages\":[],\"variant\":\"medium\"}");
    raises("{\"messages\":[],\"tools\":[{\"name\":\"flat\"}]}");
    raises("{\"messages\":[],\"tools\":\"x\"}");
}

static void content_parts(void **state)
{
    (void)state;
    renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" a \"},{\"type\":\"image_url\"},{\"type\":\"audio\"},"
        "{\"type\":\"video\"},{\"type\":\"file\"},{\"type\":\"text\",\"text\":5},{\"type\":\"text\"}]}]}",
        "<|turn>user\na<|image|><|audio|><|video|>5<turn|>\n");
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\" x<|channel>thought\\nsecret<channel|> y <|channel>z\"}]}",
        "<|turn>model\nx y<turn|>\n");
    renders("{\"messages\":[{\"role\":\"user\",\"content\":\"x<|channel>y<channel|>\"}]}",
            "<|turn>user\nx<|channel>y<channel|><turn|>\n");
    raises("{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}");
    raises("{\"messages\":[{\"role\":\"user\",\"content\":{\"a\":1}}]}");
    raises("{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":null}]}]}");
    renders("{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "<|turn>user\n<turn|>\n");
}

static void thoughts(void **state)
{
    (void)state;
#define U       "{\"role\":\"user\",\"content\":\"q\"}"
#define R(more) "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\" r \"" more "}"
    renders("{\"messages\":[" U "," R("") "]}",
            "<|turn>user\nq<turn|>\n<|turn>model\n<|channel>thought\n r \n<channel|>a<turn|>\n");
    renders("{\"messages\":[" R("") "," U "]}", "<|turn>model\na<turn|>\n<|turn>user\nq<turn|>\n");
    renders("{\"messages\":[" R("") "," U "],\"preserve_thinking\":true}",
            "<|turn>model\na<turn|>\n<|turn>user\nq<turn|>\n");
    renders("{\"messages\":[" U "," R(",\"reasoning\":\"s\"") "]}",
            "<|turn>user\nq<turn|>\n<|turn>model\n<|channel>thought\ns\n<channel|>a<turn|>\n");
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"reasoning\":\"s\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":null}}]}," U
        "],\"preserve_thinking\":true}",
        "<|turn>model\n<|channel>thought\ns\n<channel|><|tool_call>call:f{}<tool_call|><|tool_response><|turn>user\nq<turn|>\n");
    raises("{\"messages\":[" U ",{\"role\":\"assistant\",\"reasoning\":[1]}]}");
}

#define CALL(id, name) "{\"id\":" id ",\"function\":{\"name\":\"" name "\",\"arguments\":{}}}"

static void calls_and_results(void **state)
{
    (void)state;
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
        "{\"b\":[1,2.50,1e5,true,null,\"s\",{\"y\":{},\"X\":[]}],\"A\":\"t\",\"n\":12345678901234567890}}}]}],\"add_generation_prompt\":true}",
        "<|turn>model\n<|tool_call>call:f{A:" S("t") ",b:[1,2.5,100000.0,true,null," S(
            "s") ",{X:[],y:{}}],n:12345678901234567890}<tool_call|><|tool_response>");
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL("\"1\"", "f") "," CALL(
            "\"2\"",
            "g") "]},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"B\"},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"name\":\"other\",\"content\":null},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"9\",\"name\":\"named\",\"content\":4.0},{\"role\":\"tool\",\"tool_call_id\":\"8\",\"content\":"
                 "[{\"type\":\"text\",\"text\":\" a\"},{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"b \"}]}],\"add_generation_prompt\":true}",
        "<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_call>call:g{}<tool_call|><|tool_response>response:g{value:" S(
            "B") "}<tool_response|>"
                 "<|tool_response>response:f{value:null}<tool_response|><|tool_response>response:named{value:4.0}<tool_response|>"
                 "<|tool_response>response:unknown{value:" S(" ab ") "}<tool_response|><|image|>");
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL("1", "f") "," CALL("null", "g") "," CALL(
            "null",
            "h") "]},"
                 "{\"role\":\"tool\",\"content\":\"x\"},{\"role\":\"tool\",\"tool_call_id\":1.0,\"content\":\"y\"}]}",
        "<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_call>call:g{}<tool_call|><|tool_call>call:h{}<tool_call|>"
        "<|tool_response>response:h{value:" S("x") "}<tool_response|><|tool_response>response:f{value:" S(
            "y") "}<tool_response|>");
    /* Results, then content, then what follows decide how the turn ends. */
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":[" CALL(
            "1", "f") "]},{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"x\"}],"
                      "\"add_generation_prompt\":true,\"enable_thinking\":true}",
        "<|turn>system\n<|think|>\n<turn|>\n<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:" S(
            "x") "}<tool_response|>c<turn|>\n<|channel>thought\n");
    renders("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
                "1", "f") "]},{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"x\"},"
                          "{\"role\":\"assistant\",\"content\":\"done\"},{\"role\":\"user\",\"content\":\"q\"}]}",
            "<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:" S(
                "x") "}<tool_response|>done<turn|>\n<|turn>user\nq<turn|>\n");
    renders("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
                "1", "f") "]},{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"x\"},"
                          "{\"role\":\"user\",\"content\":\"q\"}]}",
            "<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:" S(
                "x") "}<tool_response|><turn|>\n<|turn>user\nq<turn|>\n");
    renders(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_responses\":[{\"name\":\"f\",\"response\":{\"b\":1,\"A\":\"x\"}},{\"name\":\"\"},{\"response\":null}]}]}",
        "<|turn>model\n<|tool_response>response:f{A:" S(
            "x") ",b:1}<tool_response|><|tool_response>response:unknown{value:[]}<tool_response|>"
                 "<|tool_response>response:unknown{value:null}<tool_response|>");
    raises(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}");
    raises("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]}");
    raises("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":{}}}]}]}");
    raises("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
        "1", "f") "]},{\"role\":\"tool\",\"content\":{\"a\":1}}]}");
    raises("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
        "1", "f") "]},{\"role\":\"tool\",\"content\":[{\"type\":\"text\"}]}]}");
}

#define DECLARED(name) "<|tool>declaration:" name "{description:" S("d") ",parameters:{type:" S("OBJECT") "}}<tool|>"
#define REFERENCE(name)                                                     \
    "{\"type\":\"tool_reference\",\"tool\":{\"function\":{\"name\":\"" name \
    "\",\"description\":\"d\",\"parameters\":{"                             \
    "\"type\":\"object\"}}}}"
#define SEARCH_CALL "{\"role\":\"assistant\",\"tool_calls\":[" CALL("1", "find") "]}"

/* The same text as in the system turn, wherever it stands; in a result with nothing else there is no value. */
static void declarations_where_they_are_referred_to(void **state)
{
    (void)state;
    renders("{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"
            "\"object\"}}}]}",
            "<|turn>system\n" DECLARED("f") "<turn|>\n");
    renders("{\"messages\":[" SEARCH_CALL ",{\"role\":\"tool\",\"tool_call_id\":1,\"content\":[" REFERENCE(
                "f") "," REFERENCE("g") "]}],\"add_generation_prompt\":true}",
            "<|turn>model\n<|tool_call>call:find{}<tool_call|><|tool_response>response:find{tools:" DECLARED("f")
                DECLARED("g") "}<tool_response|>");
    renders("{\"messages\":[" SEARCH_CALL
            ",{\"role\":\"tool\",\"tool_call_id\":1,\"content\":[{\"type\":\"text\",\"text\":\"a\"}," REFERENCE(
                "f") ",{\"type\":\"text\",\"text\":\"b\"}]}]}",
            "<|turn>model\n<|tool_call>call:find{}<tool_call|><|tool_response>response:find{tools:" DECLARED(
                "f") ",value:" S("ab") "}<tool_response|>");
    renders(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"s\"}," REFERENCE("f") "]}]}",
        "<|turn>user\nq<turn|>\n<|turn>system\ns" DECLARED("f") "<turn|>\n");
    renders("{\"messages\":[{\"role\":\"developer\",\"content\":[" REFERENCE("f") "]}]}",
            "<|turn>system\n" DECLARED("f") "<turn|>\n");
    raises("{\"messages\":[" SEARCH_CALL
           ",{\"role\":\"tool\",\"tool_call_id\":1,\"content\":[{\"type\":\"tool_reference\"}]}]}");
}

static void declarations(void **state)
{
    (void)state;
    property("{\"type\":\"string\",\"description\":\"d\",\"enum\":[\"a\",1],\"nullable\":true,\"format\":\"x\"}",
             "description:" S("d") ",enum:[" S("a") ",1],nullable:true,type:" S("STRING"));
    property("{\"type\":[\"string\",\"null\"],\"enum\":[\"a\"]}", "type:" S("['STRING', 'NULL']"));
    property("{\"type\":[\"it's\",\"\\u200b\\n\\\\\"]}", "type:" S("[\"IT'S\", '\\U200B\\N\\\\']"));
    property("{}", "type:" S(""));
    property("{\"type\":null}", "type:" S("NONE"));
    property("{\"type\":{\"a\":1.0,\"b\":[true]}}", "type:" S("{'A': 1.0, 'B': [TRUE]}"));
    property("true", "type:" S(""));
    property("\"string\"", "type:" S(""));
    property("{\"type\":\"Object\",\"properties\":{\"b\":{},\"A\":{}},\"required\":[\"b\",2]}",
             "properties:{A:{type:" S("") "},b:{type:" S("") "}},required:[" S("b") "," S("2") "],type:" S("OBJECT"));
    property(
        "{\"type\":\"object\",\"title\":\"T\",\"description\":\"d\",\"additionalProperties\":{\"type\":\"integer\"}}",
        "description:" S("d") ",properties:{additionalProperties:{type:" S("INTEGER") "},title:{type:" S(
            "") "}},type:" S("OBJECT"));
    property("{\"type\":\"object\",\"properties\":[]}", "properties:{},type:" S("OBJECT"));
    property(
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"enum\":[\"b\",null],\"default\":null,\"minLength\":1,\"x\":{\"B\":1,\"a\":true}}}",
        "items:{enum:[" S("b") ",null],minLength:1,type:" S("STRING") ",x:{" S("a") ":true," S("B") ":1}},type:" S(
            "ARRAY"));
    property("{\"type\":\"array\",\"items\":{\"type\":[\"string\",null],\"required\":[\"r\"],\"properties\":3}}",
             "items:{properties:{},required:[" S("r") "],type:[" S("STRING") "," S("NONE") "]},type:" S("ARRAY"));
    property("{\"type\":\"array\",\"items\":{}}", "type:" S("ARRAY"));
    property("{\"type\":\"array\",\"items\":[1],\"enum\":[1]}", "type:" S("ARRAY"));
    property(
        "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"maximum\":18446744073709551615}}}",
        "items:{items:{" S("maximum") ":18446744073709551615," S("type") ":" S("integer") "},type:" S(
            "ARRAY") "},type:" S("ARRAY"));
    renders(
        "{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\",\"description\":null,\"parameters\":{},\"response\":{\"type\":\"object\",\"description\":\"r\"}}},"
        "{\"function\":{\"name\":\"h\",\"description\":\"<|\\\"|>\",\"parameters\":{\"type\":\"object\",\"required\":\"é1\"},\"response\":{}}}]}",
        "<|turn>system\n<|tool>declaration:f{description:" S("") "}<tool|><|tool>declaration:g{description:" S("None") ",response:{description:" S(
            "r") ",type:" S("OBJECT") "}}<tool|>"
                                      "<|tool>declaration:h{description:" S("<|\"|>") ",parameters:{required:[" S(
                                          "é") "," S("1") "],type:" S("OBJECT") "},response:{}<tool|><turn|>\n");
    raises("{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":[1]}}}]}");
    raises("{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"required\":true}}}]}");
    raises(
        "{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"p\":{\"type\":\"array\",\"items\":{\"type\":5}}}}}}]}");
}

/* What the template raises an error for can be written as empty instead, so that one tool's schema breaks no request.
 */
static void loose_declarations(void **state)
{
    (void)state;
    static const struct {
        const char *parameters, *want;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":\"x\"}", "type:" S("OBJECT") "}"},
        {"{\"type\":\"object\",\"properties\":[1],\"required\":true}", "required:[],type:" S("OBJECT") "}"},
        {"{\"properties\":{\"p\":{\"type\":\"array\",\"items\":{\"required\":7,\"type\":5}}},\"type\":\"object\"}",
         "properties:{p:{items:{required:[],type:[]},type:" S("ARRAY") "}},type:" S("OBJECT") "}"},
        {"{\"properties\":{\"p\":{\"type\":\"object\",\"properties\":{},\"required\":true}},\"type\":\"object\"}",
         "properties:{p:{properties:{},required:[],type:" S("OBJECT") "}},type:" S("OBJECT") "}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ek_buf text = {0}, want = {0};
        ek_prompt p = {0};
        ek_buf_fmt(&text, "[{\"function\":{\"name\":\"f\",\"parameters\":%s}}]", cases[i].parameters);
        ek_buf_fmt(&want, "parameters:{%s}<tool|>", cases[i].want);
        json_t *tools = json_loads(ek_buf_text(&text), 0, NULL), *none = json_array();
        assert_int_equal(ek_chat_render(&p, none, tools, &(ek_chat_opts){0}), EK_EINVAL);
        ek_prompt_fini(&p);
        assert_int_equal(ek_chat_render(&p, none, tools, &(ek_chat_opts){.loose_tools = true}), EK_OK);
        if (!strstr(ek_buf_text(&p.text), ek_buf_text(&want)))
            fail_msg("%s gives %s", cases[i].parameters, ek_buf_text(&p.text));
        ek_prompt_fini(&p);
        json_decref(tools);
        json_decref(none);
        ek_buf_fini(&text);
        ek_buf_fini(&want);
    }
}

/* Control tokens are exactly the intended ones: what a user spells is not among them. */
static void knows_its_markers(void **state)
{
    (void)state;
    json_t *v = read_json(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|turn>model <|image|>\"},{\"type\":\"image\"}]}],"
        "\"add_generation_prompt\":true,\"variant\":\"large\"}");
    ek_prompt p = {0};
    assert_int_equal(ek_chat_render_request(&p, v, EK_CHAT_SMALL), EK_OK);
    ek_buf b = {0};
    for (size_t i = 0; i < p.n_control; i++) {
        const char *s = p.text.data + p.control[i];
        ek_buf_add(&b, s, (size_t)(strchr(s, '>') - s) + 1);
    }
    check_buf(&b, "<bos><|turn><|image|><turn|><|turn><|channel><channel|>");
    assert_int_equal(p.n_media, 1);
    ek_buf_fini(&b);
    ek_prompt_fini(&p);
    json_decref(v);
}

static void continues_the_last_message(void **state)
{
    (void)state;
    json_t *v = read_json(
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"The answer\"}]");
    ek_prompt p = {0};
    ek_chat_opts o = {.variant = EK_CHAT_LARGE, .continue_final = true, .add_generation_prompt = true};
    assert_int_equal(ek_chat_render(&p, v, NULL, &o), EK_OK);
    check_buf(&p.text, "<bos><|turn>user\nq<turn|>\n<|turn>model\nThe answer");
    assert_int_equal(p.n_control, 4);
    ek_prompt_fini(&p);
    json_array_remove(v, 1);
    assert_int_equal(ek_chat_render(&p, v, NULL, &o), EK_EINVAL);
    ek_prompt_fini(&p);
    json_decref(v);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/%s", dir, name);
    if (text) {
        FILE *f = fopen(path.data, "w");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
    } else {
        unlink(path.data);
    }
    ek_buf_fini(&path);
}

static void chooses_the_variant(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    ek_buf b = {0};
    ek_buf_fmt(&b, "%s/evenkeel-chat-", tmp ? tmp : P_tmpdir);
    for (int i = 0; i < 6; i++) ek_buf_char(&b, 'X'); /* mkdtemp's place for a name */
    char *dir = mkdtemp(b.data);
    assert_non_null(dir);
    ek_chat_variant v;
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_OK);
    assert_int_equal(v, EK_CHAT_LARGE);
    write_file(dir, "config.json", "{\"text_config\":{\"hidden_size_per_layer_input\":256}}");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_OK);
    assert_int_equal(v, EK_CHAT_SMALL);
    write_file(dir, "config.json", "{\"hidden_size_per_layer_input\":0}");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_OK);
    assert_int_equal(v, EK_CHAT_LARGE);
    write_file(dir, "tokenizer_config.json", "{\"chat_variant\":\"small\"}");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_OK);
    assert_int_equal(v, EK_CHAT_SMALL);
    write_file(dir, "tokenizer_config.json", "{\"chat_variant\":\"huge\"}");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_EFORMAT);
    write_file(dir, "tokenizer_config.json", "{");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_EFORMAT);
    write_file(dir, "chat_template.jinja",
               "x '<|tool_call>call:' {{- '<|turn>model\\n' -}} {{- '<|channel>thought\\n<channel|>' -}}");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_OK);
    assert_int_equal(v, EK_CHAT_LARGE);
    write_file(dir, "chat_template.jinja",
               "'<|channel>thought\\n<channel|>' '<|tool_call>call:' {{- '<|turn>model\\n' -}}");
    assert_int_equal(ek_chat_variant_of(&v, dir), EK_OK);
    assert_int_equal(v, EK_CHAT_SMALL);
    write_file(dir, "chat_template.jinja", NULL);
    write_file(dir, "tokenizer_config.json", NULL);
    write_file(dir, "config.json", NULL);
    rmdir(dir);
    ek_buf_fini(&b);
}

/* What the log says of a folder, at most `room` bytes. */
static void notes_of(const char *dir, char *out, size_t room)
{
    FILE *f = tmpfile();
    const int old = dup(STDERR_FILENO);
    assert_non_null(f);
    fflush(stderr);
    assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
    ek_chat_note_folder(dir);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    rewind(f);
    out[fread(out, 1, room - 1, f)] = '\0';
    fclose(f);
}

/* Before, only chat_template.jinja was looked at. */
static void what_is_not_used_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *says;
    } row[] = {
        {"tokenizer_config.json", "{\"chat_template\": \"x\"}", "chat_template is not a published"},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}]}",
         "chat_template tool_use is not a published"},
        {"chat_template.json", "{\"chat_template\": \"x\"}", "chat_template.json: chat_template is not"},
        {"adapter_config.json", "{}", "an adapter beside the model is not used"},
        {"adapter_model.safetensors", "", "an adapter beside the model is not used"},
        {"tokenizer_config.json", "{\"chat_variant\": \"small\"}", NULL},
        {"chat_template.json", "{}", NULL},
        {"chat_template.json", "{", NULL},
        {"chat_template.json", "{\"chat_template\": [1, {}, null]}", NULL},
    };
    char *dir = temp_dir(), said[2000];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        write_file(dir, row[i].file, row[i].text);
        notes_of(dir, said, sizeof said);
        if (row[i].says ? !strstr(said, row[i].says) : said[0] != 0)
            fail_msg("%s %s: %s", row[i].file, row[i].text, said);
        write_file(dir, row[i].file, NULL);
    }
    remove_dir(dir);
}

static void hashes(void **state)
{
    (void)state;
    char h[65], long_text[200];
    ek_sha256_hex(h, "abc", 3);
    assert_string_equal(h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ek_sha256_hex(h, "", 0);
    assert_string_equal(h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    memset(long_text, 'a', sizeof long_text);
    ek_sha256_hex(h, long_text, 119);
    assert_string_equal(h, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns),
                                       cmocka_unit_test(content_parts),
                                       cmocka_unit_test(thoughts),
                                       cmocka_unit_test(calls_and_results),
                                       cmocka_unit_test(declarations_where_they_are_referred_to),
                                       cmocka_unit_test(declarations),
                                       cmocka_unit_test(loose_declarations),
                                       cmocka_unit_test(knows_its_markers),
                                       cmocka_unit_test(continues_the_last_message),
                                       cmocka_unit_test(what_is_not_used_is_reported),
                                       cmocka_unit_test(chooses_the_variant),
                                       cmocka_unit_test(hashes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
