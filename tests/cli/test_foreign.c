/* Words that are none of ours: misspelt commands, options and variables, those of other programs, and those that are
 * gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/near.h"
#include "cli/frame/table.h"
#include "parsing.h"

/* A wrong word is answered with the right one, where there is one. */
static void test_guesses(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } wrong[] = {
        {"evenkeel sevre", "did you mean serve?"},
        {"evenkeel chat", "chat is vLLM's command; here: evenkeel run"},
        {"evenkeel ls", "here: evenkeel list"},
        {"evenkeel show e2b", "here: evenkeel inspect"},
        {"evenkeel create x", "has no counterpart here"},
        {"evenkeel llama-server -m x", "here: serve -m FILE"},
        {"evenkeel blah", "see `evenkeel --help`"},
        {"evenkeel tokenise", "did you mean tokenize?"},
        {"evenkeel benchmark", "here: evenkeel bench"},
        {"evenkeel insp x", "did you mean inspect?"},
        {"evenkeel pss", "did you mean ps?"},
        {"evenkeel serve --prot 1", "did you mean --port? See `evenkeel serve --help-all`"},
        {"evenkeel serve --ctx-size 1", "llama.cpp's option; here: -c N, --ctx N"},
        {"evenkeel run -ngl 99", "here: --device cuda:0,cpu --gpu-memory 12G"},
        {"evenkeel run --n-gpu-layers=99", "here: --device cuda:0,cpu --gpu-memory 12G"},
        {"evenkeel serve -hf a/b", "here: -m ORG/NAME:Q4_K_M"},
        {"evenkeel run -t 2", "here: --threads N"},
        {"evenkeel run -n 5", "--max-tokens N of run"},
        {"evenkeel serve -np 4", "here: --max-requests N"},
        {"evenkeel serve --max-model-len 100", "vLLM's option; here: --ctx"},
        {"evenkeel serve --tensor-parallel-size 2", "here: --device cuda:0-3"},
        {"evenkeel serve --max-kv-size 2", "mlx-lm's option; here: --ctx"},
        {"evenkeel serve -mg 1", "llama.cpp's option and has no counterpart here"},
        {"evenkeel serve -port 1", "did you mean --port?"},
        {"evenkeel run --temprature 1", "did you mean --temperature?"},
        {"evenkeel run --max_tokens 1", "did you mean --max-tokens?"},
        {"evenkeel run --repeat 1", "--repeat is not an option of this command; see"},
        {"evenkeel serve --ids 1", "but of logits, generate, draft; see"},
        {"evenkeel run -z 1", "-z is not an option of this command; see"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ek_cli c;
        assert_int_equal(parse(&c, wrong[i].line), EK_EINVAL);
        if (!strstr(ek_err_text(), wrong[i].says)) fail_msg("%s: %s", wrong[i].line, ek_err_text());
        ek_cli_fini(&c);
    }
    static const struct {
        const char *line, *says;
    } chat[] = {
        {"/set parameter temperature 0.9",
         "/set parameter temperature 0.9 is Ollama's; here: /set temperature 0.7; /set lists"},
        {"/set parameter seed 5", "here: /set temperature 0.7; /set lists"},
        {"/set parameter num_predict 250", "here: /set max_tokens 100"},
        {"/set parameter repeat_penalty 1.15", "here: /set repetition_penalty 1.1"},
        {"/set verbose", "here: /stats on"},
        {"/set colour red", NULL},
    };
    for (size_t i = 0; i < sizeof chat / sizeof *chat; i++) {
        ek_buf out = {0};
        const bool is = ek_cli_foreign(&out, EK_FOREIGN_LINE, chat[i].line, strlen(chat[i].line));
        assert_int_equal(is, chat[i].says != NULL);
        if (is && !strstr(ek_buf_text(&out), chat[i].says)) fail_msg("%s: %s", chat[i].line, ek_buf_text(&out));
        ek_buf_fini(&out);
    }
    assert_int_equal(ek_distance("abcd", 4, "abdc", 4), 1);
    assert_int_equal(ek_distance("", 0, "abc", 3), 3);
    assert_int_equal(ek_distance("kitten", 6, "sitting", 7), 3);
}

/* Variables that begin as those of options do and are none. */
static void test_unknown_variables(void **state)
{
    (void)state;
    static const struct {
        char *variable;
        const char *says;
    } one[] = {{"EVENKEEL_THREDS=2", "did you mean EVENKEEL_THREADS?"},
               {"EVENKEEL_MAX_TOKEN=2", "did you mean EVENKEEL_MAX_TOKENS?"},
               {"EVENKEEL_PROT=2", "did you mean EVENKEEL_PORT?"},
               {"EVENKEEL_XYZZY=2", "--help-all"},
               {"EVENKEEL_THREADS=2", NULL},
               {"EVENKEEL_FEATURES=80", NULL},
               {"EVENKEEL_KEY=x", NULL},
               {"PATH=/bin", NULL}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        char *list[] = {one[i].variable, NULL};
        ek_buf out = {0};
        ek_cli_check_variables(&out, list);
        if (one[i].says ? !strstr(ek_buf_text(&out), one[i].says) : out.len > 0)
            fail_msg("%s: %s", one[i].variable, ek_buf_text(&out));
        ek_buf_fini(&out);
    }
    char *both[] = {"EVENKEEL_A=1", "EVENKEEL_B=1", NULL};
    ek_buf out = {0};
    ek_cli_check_variables(&out, both);
    assert_non_null(strstr(ek_buf_text(&out), "EVENKEEL_A is"));
    assert_non_null(strstr(ek_buf_text(&out), "\nevenkeel: EVENKEEL_B is"));
    ek_buf_fini(&out);
}

/* docs/FROM.md has the rows of foreign.def, in their order, and no others in these tables. */
static void test_foreign_page(void **state)
{
    (void)state;
    static const struct {
        const char *theirs, *ours;
    } row[] = {
#define FOREIGN(program, theirs, ours) {theirs, ours},
#include "cli/frame/foreign.def"
    };
    static const char *const tables[] = {
        "\n| Ollama | evenkeel |\n|---|---|\n", "\n| in a chat of Ollama | evenkeel |\n|---|---|\n",
        "\n| llama-server | evenkeel serve |\n|---|---|\n", "\n| vllm serve | evenkeel serve |\n|---|---|\n",
        "\n| mlx_lm | evenkeel |\n|---|---|\n"};
    ek_buf page = {0}, want = {0};
    assert_int_equal(ek_file_read(&page, "docs/FROM.md", 1 << 20), EK_OK);
    size_t next = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const char *at = strstr(ek_buf_text(&page), tables[i]);
        assert_non_null(at);
        for (at += strlen(tables[i]); *at == '|'; at += want.len, next++) {
            assert_true(next < sizeof row / sizeof *row);
            ek_buf_clear(&want);
            ek_buf_fmt(&want, "| %s | %s |\n", row[next].theirs, row[next].ours);
            if (strncmp(at, ek_buf_text(&want), want.len) != 0)
                fail_msg("docs/FROM.md and foreign.def differ: %.*s, %s", (int)strcspn(at, "\n"), at,
                         ek_buf_text(&want));
        }
    }
    assert_int_equal(next, sizeof row / sizeof *row);
    ek_buf_fini(&page), ek_buf_fini(&want);
}

static const char *gone_variable;

static char *gone_env(const char *name)
{
    static char value[] = "1";
    return gone_variable && !strcmp(name, gone_variable) ? value : NULL;
}

static bool is_option(const char *name)
{
    for (int k = 0; k < ek_n_options; k++)
        if (!strcmp(ek_options[k].name, name) && ek_options[k].commands) return true;
    return false;
}

/* The flag and the variable of an option that is gone are refused, for its commands alone, and the line says what to
 * use. */
static void test_gone(void **state)
{
    (void)state;
    assert_true(ek_n_gone_options > 0);
    for (int i = 0; i < ek_n_gone_options; i++) {
        const ek_gone_option *g = &ek_gone_options[i];
        for (int cmd = 0; cmd < EK_CMD_COUNT; cmd++) {
            const bool has = g->commands >> cmd & 1;
            ek_buf line = {0}, flag = {0}, variable = {0};
            ek_cli c;
            ek_name_flag(&flag, g->name), ek_name_env(&variable, g->name);
            ek_buf_fmt(&line, "evenkeel %s %s=1", ek_commands[cmd].name, ek_buf_text(&flag));
            const ek_err err = parse(&c, ek_buf_text(&line));
            const char *text = ek_err_text();
            if (has) assert_int_equal(err, EK_EINVAL);
            if (has && !(strstr(text, g->instead) && !strncmp(text, ek_buf_text(&flag), flag.len)))
                fail_msg("%s: %s", ek_buf_text(&line), text);
            if (!has && err && strstr(text, " is gone: ")) fail_msg("%s: %s", ek_buf_text(&line), text);
            ek_cli_fini(&c);
            gone_variable = ek_buf_text(&variable);
            ek_buf_clear(&line);
            ek_buf_fmt(&line, "evenkeel %s", ek_commands[cmd].name);
            const bool refused = parse_env(&c, gone_env, ek_buf_text(&line)) && strstr(ek_err_text(), " is gone: ");
            assert_int_equal(refused, has && !g->has_variable && !is_option(g->name));
            gone_variable = NULL;
            ek_cli_fini(&c);
            ek_buf_fini(&line), ek_buf_fini(&flag), ek_buf_fini(&variable);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_unknown_variables),
        cmocka_unit_test(test_foreign_page),
        cmocka_unit_test(test_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
