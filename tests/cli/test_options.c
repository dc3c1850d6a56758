/* The options table and everything that is made from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "cli/frame/cli.h"
#include "cli/frame/table.h"

static char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static ek_err parse_env(ek_cli *cli, ek_env_fn *env, const char *line)
{
    static char text[512];
    static char *argv[32];
    int argc = 0;
    strncpy(text, line, sizeof text - 1);
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    argv[argc] = NULL;
    return ek_cli_parse(cli, argc, argv, env);
}

/* As a shell gives it: one value, whatever stands in it. */
static ek_err parse_value(ek_cli *cli, const char *command, const char *option, const char *value)
{
    char *argv[] = {"evenkeel", (char *)(uintptr_t)command, (char *)(uintptr_t)option, (char *)(uintptr_t)value, NULL};
    return ek_cli_parse(cli, 4, argv, no_env);
}

static ek_err parse(ek_cli *cli, const char *line)
{
    return parse_env(cli, no_env, line);
}

static void test_values(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(
        parse(&c, "evenkeel generate --ids 2,17,9 --max-tokens=5 --temperature 0.5 --ignore-eos --model m --seed 7"),
        EK_OK);
    assert_int_equal(c.command, EK_CMD_generate);
    assert_int_equal(c.ids.n, 3);
    assert_int_equal(c.ids.v[2], 9);
    assert_int_equal(c.max_tokens, 5);
    assert_true(c.temperature == 0.5);
    assert_true(c.ignore_eos);
    assert_string_equal(c.model, "m");
    assert_int_equal(c.seed, 7);
    assert_int_equal(c.chunk, 512);
    assert_true(c.has.chunk);
    assert_false(c.has.threads);
    ek_cli_fini(&c);

    assert_int_equal(parse(&c, "evenkeel serve --kv-memory 1.5G --port 0"), EK_OK);
    assert_true(c.kv_memory == 1.5 * 1073741824.0);
    assert_int_equal(c.port, 0);
    ek_cli_fini(&c);

    assert_int_equal(parse(&c, "evenkeel run -- --hello"), EK_OK);
    assert_string_equal(c.arg, "--hello");
    ek_cli_fini(&c);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"evenkeel", "command is needed"},
        {"evenkeel dance", "dance is not a command"},
        {"evenkeel serve --port 70000", "from 0 to 65535"},
        {"evenkeel serve --port 80x", "from 0 to 65535"},
        {"evenkeel serve --port -1", "from 0 to 65535"},
        {"evenkeel serve --port", "--port needs a value"},
        {"evenkeel serve --prot 1", "--prot is not an option"},
        {"evenkeel serve --ids 1", "--ids is not an option"},
        {"evenkeel serve extra", "one argument too many"},
        {"evenkeel inspect", "MODEL is missing"},
        {"evenkeel logits --ids 1,,2", "whole number"},
        {"evenkeel logits --ids 1,2,", "whole number"},
        {"evenkeel logits --ids 99999999999999999999", "whole number"},
        {"evenkeel logits --weights maybe", "auto|exact"},
        {"evenkeel logits --kv 3.5", "--kv"},
        {"evenkeel logits --isa mmx", "--isa"},
        {"evenkeel generate --temperature nan", "from 0 to 100"},
        {"evenkeel generate --top-p 1.5", "from 0 to 1"},
        {"evenkeel generate --max-tokens 0", "from 1"},
        {"evenkeel generate --ignore-eos=maybe", "true"},
        {"evenkeel serve --kv-memory 5X", "size"},
        {"evenkeel serve --kv-memory 1", "size"},
        {"evenkeel run --model=", "empty"},
        {"evenkeel generate --seed 9223372036854775808", "from 0 to 9223372036854775807"},
        {"evenkeel generate --seed -1", "from 0 to 9223372036854775807"},
        {"evenkeel generate --device gpu", "--device: device gpu; there are auto"},
        {"evenkeel inspect m --device cuda:", "cuda:N"},
        {"evenkeel generate --kv 8 --kv-start 100", "--kv-start: the first 100 positions"},
        {"evenkeel inspect m --kv 8 --kv-start 100", "multiple of 256"},
        {"evenkeel generate --kv-start 256 --kv f16", "gain nothing: keys are in f16"},
        {"evenkeel bench --synthetic e2b --layers 36", "--layers: e2b has 35 layers, 36 cannot be taken"},
        {"evenkeel selftest --synthetic 31b --layers 61", "31b has 60 layers"},
        {"evenkeel convert --synthetic 26b --layers 40 x --type mlx4", "26b has 30 layers"},
        {"evenkeel logits --weights=", "--weights \"\": one of auto|exact|8"},
        {"evenkeel generate --ignore-eos=", "--ignore-eos \"\": one of 1, 0"},
        {"evenkeel run --ctx 1", "--ctx 1: a whole number from 2 to 16777216"},
        {"evenkeel bench --layers 3", "--layers cuts a --synthetic model only"},
        {"evenkeel selftest --layers 3", "--layers cuts a --synthetic model only"},
        {"evenkeel selftest --synthetic e2b --model m", "not both"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_cli c;
        ek_err err = parse(&c, bad[i].line);
        if (err != EK_EINVAL || !strstr(ek_err_text(), bad[i].says))
            print_error("%s: %d %s\n", bad[i].line, err, ek_err_text());
        assert_int_equal(err, EK_EINVAL);
        assert_non_null(strstr(ek_err_text(), bad[i].says));
        assert_null(strchr(ek_err_text(), '\n'));
        ek_cli_fini(&c);
    }
}

/* What is no number to the end, in every kind of number; decimal notation is all there is. */
static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *command, *option;
    } kind[] = {{"serve", "--port"}, {"generate", "--temperature"}, {"serve", "--max-body"}, {"bench", "--batch"}};
    static const char *const never[] = {"",     " ",    "8080 ", " 8080", "8080\n", "+8080", "0x10",  "0X10",     "nan",
                                        "inf",  "-inf", "-1",    "1e",    "1e400",  "1,",    "8 080", "1_000",    "٣",
                                        "0.5 ", "1.5 ", "5 M",   "0.5\t", "M",      "1MM",   "1MB",   "infinity", "--"};
    ek_cli c;
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
            ek_err err = parse_value(&c, kind[k].command, kind[k].option, never[i]);
            if (err != EK_EINVAL) print_error("%s \"%s\" is accepted\n", kind[k].option, never[i]);
            assert_int_equal(err, EK_EINVAL);
            ek_cli_fini(&c);
        }
    static const struct {
        const char *command, *option, *value;
    } good[] = {{"serve", "--port", "08"},          {"generate", "--temperature", ".5"},
                {"generate", "--min-p", "1e-1"},    {"serve", "--max-body", "0.5m"},
                {"serve", "--max-body", "1048576"}, {"generate", "--seed", "9223372036854775807"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (parse_value(&c, good[i].command, good[i].option, good[i].value)) fail_msg("%s", ek_err_text());
        ek_cli_fini(&c);
    }
    assert_int_equal(parse_value(&c, "generate", "--seed", "9223372036854775807"), EK_OK);
    assert_true(c.seed == INT64_MAX);
    ek_cli_fini(&c);
    assert_int_equal(parse_value(&c, "serve", "--kv-memory", "0.5 "), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "--kv-memory \"0.5 \": a size from 1048576"));
    ek_cli_fini(&c);
}

static char *some_env(const char *name)
{
    if (!strcmp(name, "EVENKEEL_PORT")) return "1234";
    if (!strcmp(name, "EVENKEEL_MAX_REQUESTS")) return "3";
    if (!strcmp(name, "EVENKEEL_IDS")) return "nonsense"; /* another command's: not looked at */
    return NULL;
}

static char *bad_env(const char *name)
{
    return !strcmp(name, "EVENKEEL_PORT") ? "many" : NULL;
}

static void test_environment(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse_env(&c, some_env, "evenkeel serve --max-requests 5"), EK_OK);
    assert_int_equal(c.port, 1234);
    assert_int_equal(c.max_requests, 5);
    ek_cli_fini(&c);
    assert_int_equal(parse_env(&c, bad_env, "evenkeel serve"), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "EVENKEEL_PORT many"));
    ek_cli_fini(&c);
}

static char *empty_env(const char *name)
{
    static char empty[1];
    (void)name;
    return empty;
}

/* An empty text is no value, but for the list of origins, where it is none of them. */
static void test_empty_values(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve"), EK_OK);
    assert_string_equal(c.cors_origins, "localhost");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --cors-origins="), EK_OK);
    assert_string_equal(c.cors_origins, "");
    ek_cli_fini(&c);
    assert_int_equal(parse_env(&c, empty_env, "evenkeel serve"), EK_OK);
    assert_string_equal(c.cors_origins, "");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --model="), EK_EINVAL);
    ek_cli_fini(&c);
}

static void test_help(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve --port x --help"), EK_OK);
    assert_true(c.help);
    ek_cli_fini(&c);
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        ek_buf b = {0};
        ek_cli_help(&b, (ek_cmd_id)id);
        for (int i = 0; i < ek_n_options; i++) {
            ek_buf flag = {0};
            ek_buf_str(&flag, "\n  ");
            ek_option_flag(&flag, &ek_options[i]);
            const char *at = strstr(b.data, flag.data);
            while (at && at[flag.len] != ' ' && at[flag.len] != '\n') at = strstr(at + 1, flag.data);
            assert_int_equal(at != NULL, ek_options[i].commands >> id & 1);
            ek_buf_fini(&flag);
        }
        ek_buf_fini(&b);
    }
}

/* Defaults are read by the same parsers as given values. */
static void test_defaults_are_valid(void **state)
{
    (void)state;
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        ek_cli c;
        char *argv[] = {"evenkeel", (char *)(uintptr_t)ek_commands[id].name, "x", NULL};
        assert_int_equal(ek_cli_parse(&c, 2 + ek_commands[id].min_args, argv, no_env), EK_OK);
        ek_cli_fini(&c);
    }
}

static void test_document(void **state)
{
    (void)state;
    ek_buf want = {0}, got = {0};
    ek_cli_markdown(&want);
    assert_int_equal(ek_file_read(&got, "docs/OPTIONS.md", 1 << 20), EK_OK);
    if (strcmp(want.data, got.data))
        print_error("docs/OPTIONS.md is old; write it again: evenkeel help --markdown > docs/OPTIONS.md\n");
    assert_string_equal(want.data, got.data);
    ek_buf_fini(&want);
    ek_buf_fini(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_empty_values),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_defaults_are_valid),
        cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
