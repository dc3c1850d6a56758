/* Grammars in Lark's notation: the texts that their patterns match. */
#include "../support/regex.h"
#include "helper.h"

#include "text/regex/regex.h"
#include "text/utf8.h"

/* Whether the automaton of the grammar takes the whole text. */
static bool takes(const ek_regex *r, const char *s)
{
    int32_t state = 0;
    for (size_t i = 0, n = strlen(s); i < n && state >= 0;) {
        uint32_t cp;
        i += (size_t)ek_utf8_next(s + i, n - i, &cp);
        state = ek_regex_step(r, state, cp);
    }
    return state >= 0 && r->accepts[state];
}

typedef struct row {
    const char *grammar, *yes[6], *no[6];
} row;

static void check(const row *x)
{
    ek_buf pattern = {0};
    ek_regex *r;
    if (ek_lark_pattern(&pattern, x->grammar, strlen(x->grammar))) fail_msg("%s: %s", x->grammar, ek_err_text());
    if (regex_open(&r, pattern.data, pattern.len)) fail_msg("%s: %s", pattern.data, ek_err_text());
    for (int i = 0; i < 6 && x->yes[i]; i++)
        if (!takes(r, x->yes[i])) fail_msg("%s does not take \"%s\"", pattern.data, x->yes[i]);
    for (int i = 0; i < 6 && x->no[i]; i++)
        if (takes(r, x->no[i])) fail_msg("%s takes \"%s\"", pattern.data, x->no[i]);
    ek_regex_close(r);
    ek_buf_fini(&pattern);
}

static void texts_and_operators(void **state)
{
    (void)state;
    static const row rows[] = {
        {"start: \"a\"", {"a"}, {"", "aa", "b"}},
        {"start: \"a\" | \"b\" \"c\"\n", {"a", "bc"}, {"b", "ac", "abc"}},
        {"start: \"a\"\n  | \"b\"\n\n  | \"c\"\n", {"a", "b", "c"}, {"", "ab"}},
        {"start: x+ y? z*\nx: \"x\"\ny: \"y\"\nz: \"z\"\n", {"x", "xxy", "xzz"}, {"", "y", "xyy"}},
        {"start: [\"a\"] (\"b\" | \"c\")~2 \"d\"~1..2", {"abcd", "bbdd"}, {"abd", "abcddd", "bcx"}},
        {"start: \"a\"..\"c\"+ \"0\"..\"9\"", {"a0", "abc9"}, {"d0", "0", "a"}},
        {"start: \"select\"i \" \"", {"select ", "SeLeCT "}, {"selec ", "select"}},
        {"start: \"*+.?()[]{}|^$/\\\\\\\"-\"", {"*+.?()[]{}|^$/\\\"-"}, {"", "*"}},
        {"start: \"\\n\\t\\x41\\u00e4ä\"", {"\n\tAää"}, {"\n\tA"}},
        {"start: /[a-c]{2}\\// // a comment\n# and one more\n", {"ab/"}, {"a/", "ab"}},
        {"?start: (a | b) -> named\n!a.2: \"a\"\n_b: \"x\"\nb: _b", {"a", "x"}, {""}},
        {"start: | \"a\"", {"", "a"}, {"b"}},
        {"start: /a|b/ \"c\"", {"ac", "bc"}, {"a", "b"}},
        {"%import common.INT\n%import common.CNAME -> ID\n%import common (WS_INLINE, ESCAPED_STRING)\n"
         "start: ID \"=\" (INT | ESCAPED_STRING)\n%ignore WS_INLINE\n",
         {"a=1", " a_1 =  22 ", "x= \"a\\\"b\""},
         {"1=a", "a b=1", "a=1 1", "x=\"a\nb\""}},
        {"start: WORD \",\" WORD\nWORD: (\"a\" | \"b\")+\n%ignore \" \"", {"ab,a", "a , b"}, {"a b,a"}},
        {"%import common.SIGNED_NUMBER\nstart: SIGNED_NUMBER", {"-1", "+1.5e3", ".5", "7"}, {"", "e5", "1e"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&rows[i]);
}

/* What Codex sends with its tool apply_patch. */
static void a_patch(void **state)
{
    (void)state;
    static const row patch = {
        "start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\nend_patch: \"*** End Patch\" LF?\n\n"
        "hunk: add_hunk | delete_hunk | update_hunk\nadd_hunk: \"*** Add File: \" filename LF add_line+\n"
        "delete_hunk: \"*** Delete File: \" filename LF\n"
        "update_hunk: \"*** Update File: \" filename LF change_move? change?\n\nfilename: /(.+)/\n"
        "add_line: \"+\" /(.*)/ LF -> line\n\nchange_move: \"*** Move to: \" filename LF\n"
        "change: (change_context | change_line)+ eof_line?\nchange_context: (\"@@\" | \"@@ \" /(.+)/) LF\n"
        "change_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\neof_line: \"*** End of File\" LF\n\n%import common.LF\n",
        {"*** Begin Patch\n*** Add File: a.txt\n+hi\n+\n*** End Patch",
         "*** Begin Patch\n*** Update File: ä b\n*** Move to: c\n@@ f()\n-old\n+new\n stays\n*** End of File\n*** End "
         "Patch\n",
         "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n*** End Patch\n"},
        {"", "*** Begin Patch\n*** End Patch\n", "*** Begin Patch\n*** Add File: a.txt\n*** End Patch\n",
         "*** Begin Patch\n*** Update File: a\nnew\n*** End Patch\n", "hello"}};
    check(&patch);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *says;
    } rows[] = {
        {"", "no rule start"},
        {"a: \"x\"", "no rule start"},
        {"start: x", "line 1: x is not defined"},
        {"start: x\nx: \"(\" x? \")\"", "line 2: x comes to itself again"},
        {"start: a\na: b\nb: \"b\" start | \"c\"", "line 3: start comes to itself again"},
        {"start: \"a\"\nstart: \"b\"", "line 2: start is defined twice"},
        {"start: \"a", "line 1: a text without its second quote"},
        {"start: /a", "line 1: a pattern without its second slash"},
        {"start: /a/s", "the flag s"},
        {"start: \"\\q\"", "an escape"},
        {"start: (\"a\"", "a bracket is not closed"},
        {"start: \"a\")", "line 1: ) has no meaning here"},
        {"start: sep{\"a\"}", "the template sep"},
        {"start: \"b\"..\"a\"", "in order"},
        {"start: \"a\"~x", "behind ~"},
        {"%import python.NAME\nstart: NAME", "%import of python"},
        {"%import common.NO\nstart: NO", "common.NO is not known"},
        {"%declare X\nstart: X", "%declare is not supported"},
        {"start: X\nX: y\ny: \"a\"", "a terminal has the rule y"},
        {"start \"a\"", "a colon is needed behind start"},
        {"start: \"a\" & \"b\"", "no meaning"},
    };
    ek_buf b = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_err err = ek_lark_pattern(&b, rows[i].grammar, strlen(rows[i].grammar));
        if (err != EK_EINVAL || !strstr(ek_err_text(), rows[i].says))
            fail_msg("%s: %s", rows[i].grammar, err ? ek_err_text() : "taken");
    }
    /* Rules that double, and brackets inside each other, end at the limits. */
    ek_buf g = {0};
    ek_buf_str(&g, "start: r0\n");
    for (int i = 0; i < 40; i++) ek_buf_fmt(&g, "r%d: r%d r%d\n", i, i + 1, i + 1);
    ek_buf_str(&g, "r40: \"a\"\n");
    assert_int_equal(ek_lark_pattern(&b, g.data, g.len), EK_ETOOLARGE);
    ek_buf_clear(&g);
    ek_buf_str(&g, "start: ");
    for (int i = 0; i < 100000; i++) ek_buf_char(&g, '(');
    assert_int_equal(ek_lark_pattern(&b, g.data, g.len), EK_ETOOLARGE);
    ek_buf_fini(&g);
    ek_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_operators),
        cmocka_unit_test(a_patch),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
