/* Documents, results of a search and files in the messages of each API: which text they become, and how what is no
 * text is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/encoding.h"
#include "serve/api/dialect.h"
#include "serve/api/field.h"
#include "template_gets.h"
#include "text/json/json.h"

static ek_err parse(const ek_dialect *d, ek_api_request *r, const char *body)
{
    ek_api_limits limits = {
        .defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1}, .n_vocab = 1000, .ctx_tokens = 512};
    *r = (ek_api_request){0};
    return ek_api_parse(r, d, body, strlen(body), &limits);
}

#define USER(content)   "{\"messages\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define INPUT(content)  "{\"input\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define TEXT(s)         "{\"type\":\"text\",\"text\":\"" s "\"}"
#define DOCUMENT(rest)  "{\"type\":\"document\"," rest "}"
#define SOURCE(members) "\"source\":{" members "}"
#define PLAIN(s)        SOURCE("\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"" s "\"")
#define CODED(type, s)  SOURCE("\"type\":\"base64\",\"media_type\":\"" type "\",\"data\":\"" s "\"")
#define SEARCH(title, content)                                                                                         \
    "{\"type\":\"search_result\",\"source\":\"https://a.b\",\"title\":\"" title "\",\"citations\":{\"enabled\":true}," \
    "\"content\":[" content "]}"
#define FILE_OF(members) "{\"type\":\"file\",\"file\":{" members "}}"
#define INPUT_FILE(rest) "{\"type\":\"input_file\"," rest "}"
#define RESULT(content)                                                                                                      \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","      \
    "\"id\":\"t\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":" \
    "\"t\",\"content\":[" content "]}]}]}"

static void become_text(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *d;
        const char *body, *want; /* the last message's text */
    } rows[] = {
        {&ek_dialect_anthropic_count, USER(DOCUMENT(PLAIN("a\\nb"))), "<document>\na\nb\n</document>"},
        {&ek_dialect_anthropic_count,
         USER(TEXT("see") "," DOCUMENT(
             PLAIN("a") ",\"title\":\"T\",\"context\":\"C\",\"citations\":{\"enabled\":true}") "," TEXT("q")),
         "see\n<document>\n<title>T</title>\n<context>C</context>\na\n</document>\nq"},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(PLAIN("") ",\"title\":null,\"context\":\"\"")),
         "<document>\n\n</document>"},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(SOURCE("\"type\":\"content\",\"content\":\"x\""))),
         "<document>\nx\n</document>"},
        {&ek_dialect_anthropic_count,
         USER(DOCUMENT(SOURCE("\"type\":\"content\",\"content\":[" TEXT("x") "," TEXT("y") "]"))),
         "<document>\nx\ny\n</document>"},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(CODED("text/plain", "w6QK"))), "<document>\nä\n\n</document>"},
        {&ek_dialect_anthropic_count, USER(SEARCH("T", TEXT("x") "," TEXT("y"))),
         "<search_result>\n<source>https://a.b</source>\n<title>T</title>\nx\ny\n</search_result>"},
        {&ek_dialect_anthropic_count, RESULT(TEXT("r") "," SEARCH("T", TEXT("x")) "," DOCUMENT(PLAIN("a"))),
         "r\n<search_result>\n<source>https://a.b</source>\n<title>T</title>\nx\n</search_result>\n"
         "<document>\na\n</document>"},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"filename\":\"n.txt\",\"file_data\":\"data:text/plain;base64,aGk=\"")),
         "<document>\n<filename>n.txt</filename>\nhi\n</document>"},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"data:text/csv;charset=utf-8,a%2cb%zz\"")),
         "<document>\na,b%zz\n</document>"},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"data:;base64,aGk\"")), "<document>\nhi\n</document>"},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"data:application/ld+json,{}\"")),
         "<document>\n{}\n</document>"},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"aGk=\"")), "<document>\nhi\n</document>"},
        {&ek_dialect_responses,
         INPUT(INPUT_FILE(
             "\"filename\":\"n.txt\",\"file_data\":\"data:text/plain;base64,aGk=\"") ",{\"type\":\"input_text\","
                                                                                     "\"text\":\"q\"}"),
         "<document>\n<filename>n.txt</filename>\nhi\n</document>\nq"},
        {&ek_dialect_responses,
         "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","
         "\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\","
         "\"text\":\"r\"}," INPUT_FILE("\"file_data\":\"aGk=\"") "]}]}",
         "r\n<document>\nhi\n</document>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        if (parse(rows[i].d, &r, rows[i].body)) fail_msg("%s in %s", ek_err_text(), rows[i].body);
        const ek_message *m = &r.conversation.messages[r.conversation.n_messages - 1];
        assert_int_equal(m->n_blocks, 1);
        assert_string_equal(m->blocks[0].text.data, rows[i].want);
        ek_api_request_fini(&r);
    }
}

#define IMAGE \
    "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"iVBORw0KGgo=\"}}"
#define IMAGE_CLASS    "(capability_rejected: image_block)"
#define DOCUMENT_CLASS "(capability_rejected: document_block)"

/* Claude Code looks for the token, and for none of the characters that could continue it behind it. */
static void are_refused(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *d;
        const char *body, *says, *class;
    } rows[] = {
        {&ek_dialect_anthropic_count, USER(IMAGE), "blocks of type \"image\" are not taken in a message of the user",
         IMAGE_CLASS},
        {&ek_dialect_anthropic_count, RESULT(TEXT("r") "," IMAGE), "\"image\" are not taken in a tool_result",
         IMAGE_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(SOURCE("\"type\":\"content\",\"content\":[" IMAGE "]"))),
         "\"image\" are not taken in the content of a document", IMAGE_CLASS},
        {&ek_dialect_anthropic_count,
         "{\"system\":[" IMAGE "],"
         "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
         "\"image\" are not taken in system", IMAGE_CLASS},
        {&ek_dialect_anthropic_count,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[" IMAGE "]}]}",
         "\"image\" are not taken in a message of the assistant", IMAGE_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(CODED("application/pdf", "JVBERi0="))), "\"application/pdf\"",
         DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(CODED("text/plain", "JVBERi0="))), "\"application/pdf\"",
         DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, RESULT(DOCUMENT(CODED("application/pdf", "JVBERi0="))),
         "\"application/pdf\" are not taken in a tool_result", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(CODED("text/plain", "/w=="))), "not text in UTF-8", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(CODED("text/plain", "AA=="))), "not text in UTF-8", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(CODED("text/plain", "a-b="))), "not valid base64", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(SOURCE("\"type\":\"url\",\"url\":\"https://a.b\""))),
         "documents with a source of type \"url\"", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(SOURCE("\"type\":\"file\",\"file_id\":\"f\""))),
         "documents with a source of type \"file\"", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT("\"title\":\"T\"")), "blocks of type \"document\"", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER(DOCUMENT(SOURCE("\"type\":\"text\""))), "needs a text data", DOCUMENT_CLASS},
        {&ek_dialect_anthropic_count, USER("{\"type\":\"search_result\",\"content\":\"x\"}"), "needs a list content",
         ""},
        {&ek_dialect_openai_chat, USER("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,\"}}"),
         "content parts of type \"image_url\"", ""},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_id\":\"f\"")), "without file_data", ""},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"data:application/pdf;base64,JVBERi0=\"")),
         "files of type \"application/pdf\"", ""},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"JVBERi0=\"")), "files of type \"application/pdf\"", ""},
        {&ek_dialect_openai_chat, USER(FILE_OF("\"file_data\":\"data:text/plain\"")), "no comma", ""},
        {&ek_dialect_openai_chat, USER("{\"type\":\"file\"}"), "without file_data", ""},
        {&ek_dialect_responses, INPUT(INPUT_FILE("\"file_url\":\"https://a.b\"")), "files of type \"file_url\"", ""},
        {&ek_dialect_responses, INPUT(INPUT_FILE("\"file_id\":\"f\"")), "files of type \"file_id\"", ""},
        {&ek_dialect_responses, INPUT(INPUT_FILE("\"file_data\":\"data:image/png;base64,aGk=\"")),
         "files of type \"image/png\"", ""},
        {&ek_dialect_responses, INPUT("{\"type\":\"input_image\",\"image_url\":\"data:\"}"), "\"input_image\"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        ek_err err = parse(rows[i].d, &r, rows[i].body);
        size_t n = strlen(ek_err_text()), len = strlen(rows[i].class);
        if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), rows[i].says) || n < len ||
            strcmp(ek_err_text() + n - len, rows[i].class))
            fail_msg("%s: %s", rows[i].body, err ? ek_err_text() : "taken");
        if (!*rows[i].class && strstr(ek_err_text(), "capability_rejected")) fail_msg("%s", ek_err_text());
        ek_api_request_fini(&r);
    }
}

static void base64(void **state)
{
    (void)state;
    ek_buf b = {0};
    static const char *const good[][2] = {
        {"", ""}, {"Zg==", "f"}, {"Zg", "f"}, {"Zm8=", "fo"}, {"Zm9v\r\nYmFy", "foobar"}, {" Z m\t9v\f", "foo"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ek_buf_clear(&b);
        assert_true(ek_base64_decode(&b, good[i][0], strlen(good[i][0])));
        assert_string_equal(ek_buf_text(&b), good[i][1]);
    }
    static const char *const bad[] = {"Z",        "Zg=",   "Zg===", "Z===",  "Zm8==", "=",
                                      "Zg==Zg==", "Zm9v=", "Zm-v",  "Zg%3D", "Zg \v"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_buf_clear(&b);
        ek_buf_str(&b, "x");
        if (ek_base64_decode(&b, bad[i], strlen(bad[i]))) fail_msg("%s is taken", bad[i]);
        assert_string_equal(b.data, "x");
    }
    ek_buf_fini(&b);
}

/* What a client wrote, in a sentence: one line that moves no terminal, at most 80 characters of it. */
static void quotes(void **state)
{
    (void)state;
    char b[EK_QUOTED];
    ek_buf many = {0};
    static const char wild[] = "a\"\\\n\x1b[2J\x7f\xC2\x9B\xE2\x80\xAE\xFF";
    assert_string_equal(ek_field_quote(b, wild, sizeof wild - 1),
                        "\"a\\\"\\\\\\n\\u001b[2J\\u007f\\u009b\\u202e\xEF\xBF\xBD\"");
    for (int i = 0; i < 81; i++) ek_buf_str(&many, "ä");
    assert_int_equal(strlen(ek_field_quote(b, many.data, 160)), 162);
    assert_int_equal(strlen(ek_field_quote(b, many.data, many.len)), 162 + strlen("…"));
    ek_buf_fini(&many);
    static const struct {
        const char *body, *says;
    } rows[] = {
        {"{\"messages\":[{\"role\":\"to\\nol\",\"content\":\"x\"}]}", "assistant, tool, function, not \"to\\nol\""},
        {"{\"messages\":[{\"role\":5,\"content\":\"x\"}]}", ", not 5"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":[1]}", "is needed, not a list"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_p\":1.5}", "from 0 to 1 is needed, not 1.5"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":\"two\"}", "from 1 to 64 is needed, not \"two\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":\"yes\"}", "is needed, not \"yes\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        ek_err err = parse(&ek_dialect_openai_chat, &r, rows[i].body);
        if (!err || !strstr(ek_err_text(), rows[i].says))
            fail_msg("%s: %s", rows[i].body, err ? ek_err_text() : "taken");
        ek_api_request_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(become_text),
        cmocka_unit_test(are_refused),
        cmocka_unit_test(base64),
        cmocka_unit_test(quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
