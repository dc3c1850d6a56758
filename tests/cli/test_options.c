/* The options table and everything that is made from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "cli/frame/table.h"
#include "parsing.h"

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
    assert_false(c.has.chunk);
    assert_string_equal(c.kv, "i12"); /* by default */
    assert_true(c.has.kv);
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

static void test_split(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve --split outputs"), EK_OK);
    assert_string_equal(c.split, "outputs");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel features --cut-audio"), EK_OK);
    assert_true(c.cut_audio);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel features --split"), EK_EINVAL);
    assert_string_equal(ek_err_text(), "--split is gone: --cut-audio cuts a sound");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --split layers"), EK_OK);
    assert_string_equal(c.split, "layers");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --split rows"), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "auto|layers|outputs"));
    ek_cli_fini(&c);
}

static void test_limits(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve"), EK_OK);
    assert_true(c.max_json_values == 1000000 && c.max_messages == 65536 && c.prepare_queue == 256 &&
                c.body_rate == 4096);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --limits max-messages=7,body-rate=2K,prepare-queue=1"), EK_OK);
    assert_true(c.max_json_values == 1000000 && c.max_messages == 7 && c.prepare_queue == 1 && c.body_rate == 2048);
    ek_cli_fini(&c);
    static const char *const wrong[][2] = {
        {"max-messages", "\"max-messages\": NAME=N is needed"},
        {"max-messages=1,", "\"\": NAME=N is needed"},
        {",", "\"\": NAME=N is needed"},
        {"max-messages=", "--limits max-messages \"\": a whole number from 1 to 100000000 is needed"},
        {"max-messages=0", "--limits max-messages 0: a whole number from 1 to"},
        {"max-json-values=99", "--limits max-json-values 99: a whole number from 100 to"},
        {"body-rate=2K,body-rate=-1", "--limits body-rate -1: a size from 0 to"},
        {"port=1", "--limits port: max-json-values, max-messages, prepare-queue or body-rate is needed"},
        {"max_messages=1", "--limits max_messages: max-json-values"},
        {"=1", "--limits : max-json-values"},
        {"max-messages=1111111111111111111111111111111111111111111111111111111", "NAME=N is needed"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(parse_value(&c, "serve", "--limits", wrong[i][0]), EK_EINVAL);
        if (!strstr(ek_err_text(), wrong[i][1])) fail_msg("%s: %s", wrong[i][0], ek_err_text());
        ek_cli_fini(&c);
    }
}

/* A flag with a word of its own; what follows without = is an argument. */
static void test_levels(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve"), EK_OK);
    assert_null(c.verbose);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel run -v e2b hello"), EK_OK);
    assert_string_equal(c.verbose, "on");
    assert_string_equal(c.arg, "hello");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --verbose=cache"), EK_OK);
    assert_string_equal(c.verbose, "cache");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --verbose=no"), EK_OK);
    assert_null(c.verbose);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --verbose=cach"), EK_EINVAL);
    assert_string_equal(ek_err_text(), "--verbose cach: one of cache, 1, 0, true, false, yes, no is needed");
    ek_cli_fini(&c);
}

static char *features_env(const char *name)
{
    static char value[] = "sm_80";
    return !strcmp(name, "EVENKEEL_FEATURES") ? value : NULL;
}

/* A test's stand-in, of commands with a device. */
static void test_features(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse_env(&c, features_env, "evenkeel bench --device cuda"), EK_OK);
    assert_string_equal(c.device, "cuda@sm_80");
    ek_cli_fini(&c);
    assert_int_equal(parse_env(&c, features_env, "evenkeel list"), EK_OK);
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
        {"evenkeel serve extra more", "one argument too many"},
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
        {"evenkeel generate --kv-start 256", "gain nothing: keys are in i12, values in i12"},
        {"evenkeel bench --synthetic e2b --layers 36", "--layers: e2b has 35 layers, 36 cannot be taken"},
        {"evenkeel selftest --synthetic 31b --layers 61", "31b has 60 layers"},
        {"evenkeel convert --synthetic 26b --layers 40 x --type mlx4", "26b has 30 layers"},
        {"evenkeel logits --weights=", "--weights \"\": one of auto|exact|8"},
        {"evenkeel generate --ignore-eos=", "--ignore-eos \"\": one of 1, 0"},
        {"evenkeel serve --max-gap 60001", "--max-gap 60001: a whole number from 0 to 60000"},
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
    assert_string_equal(c.cors_origins, "localhost,desktop");
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

/* Whether help has a row for the option: its name where a line begins, behind its letter if it has one. */
static bool has_row(const char *help, const ek_option *o)
{
    ek_buf flag = {0};
    if (ek_option_letter(o)) ek_buf_fmt(&flag, "\n  -%c, ", ek_option_letter(o));
    else ek_buf_str(&flag, "\n      ");
    ek_name_flag(&flag, o->name);
    const char *at = strstr(help, flag.data);
    while (at && at[flag.len] != ' ' && at[flag.len] != '\n') at = strstr(at + 1, flag.data);
    ek_buf_fini(&flag);
    return at != NULL;
}

/* Whether the command has an option of that name; commands may differ in what it is. */
static bool has_name(const ek_option *o, ek_cmd_id id)
{
    for (int i = 0; i < ek_n_options; i++)
        if (!strcmp(ek_options[i].name, o->name) && ek_options[i].commands >> id & 1) return true;
    return false;
}

static void test_help(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve --port x --help"), EK_OK);
    assert_true(c.help && !c.help_all);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel serve --port x --help-all"), EK_OK);
    assert_true(c.help && c.help_all);
    ek_cli_fini(&c);
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        ek_buf b = {0};
        ek_cli_help(&b, (ek_cmd_id)id, true);
        for (int i = 0; i < ek_n_options; i++)
            assert_int_equal(has_row(b.data, &ek_options[i]), has_name(&ek_options[i], (ek_cmd_id)id));
        /* what is part of the answer is said once */
        const char *legend = strstr(b.data, "part of the answer");
        assert_true(!legend || !strstr(legend + 1, "part of the answer"));
        ek_buf_fini(&b);
    }
}

/* The common options come first, are there, and are fewer; a name in common.def that no option has is a mistake. */
static void test_common_options(void **state)
{
    (void)state;
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        const char *list = ek_command_common((ek_cmd_id)id);
        if (!list) continue;
        ek_buf few = {0}, all = {0};
        ek_cli_help(&few, (ek_cmd_id)id, false);
        ek_cli_help(&all, (ek_cmd_id)id, true);
        int named = 0, known = 0, shown = 0, n = 0;
        for (const char *p = list; *p; p += strspn(p, " "), named++) p += strcspn(p, " ");
        for (int i = 0; i < ek_n_options; i++) {
            if (!(ek_options[i].commands >> id & 1)) continue;
            n++;
            shown += has_row(few.data, &ek_options[i]);
            const char *at = strstr(list, ek_options[i].name);
            size_t len = strlen(ek_options[i].name);
            while (at && ((at > list && at[-1] != ' ') || (at[len] && at[len] != ' ')))
                at = strstr(at + 1, ek_options[i].name);
            known += at != NULL;
        }
        assert_int_equal(known, named);
        assert_int_equal(shown, named);
        assert_true(shown < n);
        assert_non_null(strstr(few.data, "common options:"));
        assert_non_null(strstr(few.data, "--help-all` lists all"));
        assert_non_null(strstr(all.data, "\ncommon options:"));
        ek_buf_fini(&few);
        ek_buf_fini(&all);
    }
    ek_buf usage = {0};
    ek_cli_usage(&usage);
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        char row[64];
        snprintf(row, sizeof row, "\n  %-12s%.20s", ek_commands[id].name, ek_commands[id].text);
        if (!strstr(usage.data, row)) print_error("%s is not listed\n", ek_commands[id].name);
        assert_non_null(strstr(usage.data, row));
    }
    ek_buf_fini(&usage);
}

/* Help of a command says nothing of other commands' defaults. */
static void test_texts_of_others(void **state)
{
    (void)state;
    static const struct {
        ek_cmd_id id;
        const char *has, *has_not;
    } one[] = {{EK_CMD_run, "default: the rest of the context", "default: 128"},
               {EK_CMD_generate, "default: 128", "the rest of the"},
               {EK_CMD_inspect, "default: 8192", "the model's own limit"},
               {EK_CMD_serve, "default: the model's own limit", "8192)"},
               {EK_CMD_run, "stands before the prompt", "placeholder"},
               {EK_CMD_logits, "next placeholder in --ids", "before the prompt"},
               {EK_CMD_preprocess, "fill them; default: 280", "checkpoint's value"},
               {EK_CMD_replay, "gives the same order", "the same answer"},
               {EK_CMD_rm, "it removes a model", "fetches"},
               {EK_CMD_serve, "--verbose=cache", "it removes"},
               {EK_CMD_run, "what was opened", "--verbose=cache:"}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        ek_buf out = {0}, flat = {0};
        ek_cli_help(&out, one[i].id, true);
        for (const char *c = ek_buf_text(&out); *c; c++) /* as if it were not wrapped */
            if (*c == '\n' || *c == ' ') ek_buf_str(&flat, flat.len && flat.data[flat.len - 1] == ' ' ? "" : " ");
            else ek_buf_char(&flat, *c);
        if (!strstr(flat.data, one[i].has)) fail_msg("%s: %s is missing", ek_cmd_name(one[i].id), one[i].has);
        if (strstr(flat.data, one[i].has_not)) fail_msg("%s: %s is there", ek_cmd_name(one[i].id), one[i].has_not);
        ek_buf_fini(&out), ek_buf_fini(&flat);
    }
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        ek_buf out = {0};
        ek_cli_help(&out, (ek_cmd_id)id, true);
        assert_null(strstr(ek_buf_text(&out), "{{"));
        assert_null(strstr(ek_buf_text(&out), "}}"));
        ek_buf_fini(&out);
    }
    ek_buf run = {0};
    ek_cli_help(&run, EK_CMD_run, false);
    assert_non_null(strstr(run.data, "--image FILE"));
    assert_non_null(strstr(run.data, "--seed S"));
    assert_non_null(strstr(run.data, "-p PROMPT"));
    ek_buf_fini(&run);
}

static void test_letters(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel serve -m x -p 81 -c 100 -v"), EK_OK);
    assert_string_equal(c.model, "x");
    assert_int_equal(c.port, 81);
    assert_int_equal(c.ctx, 100);
    assert_true(c.verbose && c.has.model && c.has.port && c.has.ctx);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel bench -p=16,32 -m=x"), EK_OK);
    assert_int_equal(c.prompt.n, 2);
    assert_string_equal(c.model, "x");
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel generate -p 3 --ids 2"), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "-p is not an option"));
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel run -p"), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "-p needs a value"));
    ek_cli_fini(&c);
}

/* run's arguments: MODEL and PROMPT, one of them, or none. */
static void test_run_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *line, *model, *prompt;
    } good[] = {
        {"evenkeel run", NULL, NULL},
        {"evenkeel run hello", NULL, "hello"},
        {"evenkeel run e2b", "e2b", NULL},
        {"evenkeel run 26B:Q8", "26B:Q8", NULL},
        {"evenkeel run e2b hello", "e2b", "hello"},
        {"evenkeel run models/pocket hello", "models/pocket", "hello"},
        {"evenkeel run -p hello", NULL, "hello"},
        {"evenkeel run -p hello models/pocket", "models/pocket", "hello"},
        {"evenkeel run models/pocket -p hello", "models/pocket", "hello"},
        {"evenkeel run --model m hello", "m", "hello"},
        {"evenkeel run --model m e2b", "m", "e2b"},
        {"evenkeel run -- e2b", "e2b", NULL},
        {"evenkeel run google/gemma-4-E2B-it-qat-q4_0-gguf", "google/gemma-4-E2B-it-qat-q4_0-gguf", NULL},
        {"evenkeel run ./models/none", "./models/none", NULL},
        {"evenkeel run models/pocket", "models/pocket", NULL},
        {"evenkeel run /tmp/x", "/tmp/x", NULL},
        {"evenkeel run ~/x", "~/x", NULL},
        {"evenkeel run FILE.gguf", "FILE.gguf", NULL},
        {"evenkeel run model.SAFETENSORS", "model.SAFETENSORS", NULL},
        {"evenkeel run hf.co/org/name:Q4_0", "hf.co/org/name:Q4_0", NULL},
        {"evenkeel run gemma4:e2b", "gemma4:e2b", NULL},
        {"evenkeel run llama3", "llama3", NULL},
        {"evenkeel run mistral:7b", "mistral:7b", NULL},
        {"evenkeel run e2bb", "e2bb", NULL},
        {"evenkeel run e2b-it-q9", "e2b-it-q9", NULL},
        {"evenkeel run gemma-4-E2B-it", "gemma-4-E2B-it", NULL},
        {"evenkeel run Hello!", NULL, "Hello!"},
        {"evenkeel run why?", NULL, "why?"},
        {"evenkeel run keel", NULL, "keel"},
        {"evenkeel run hi", NULL, "hi"},
        {"evenkeel run test.", NULL, "test."},
        {"evenkeel run 3.5", NULL, "3.5"},
        {"evenkeel run 12:30", NULL, "12:30"},
        {"evenkeel run 1/2", NULL, "1/2"},
        {"evenkeel run llama", NULL, "llama"},
        {"evenkeel run gemma", NULL, "gemma"},
        {"evenkeel run -p e2b", NULL, "e2b"},
        {"evenkeel serve e2b", "e2b", NULL},
        {"evenkeel bench models/pocket", "models/pocket", NULL},
        {"evenkeel selftest 26b:q8", "26b:q8", NULL},
    };
    static char *const alone[][2] = {{"/tmp/cat.png What is it?", NULL}, {"~/a.png ~/b.png Which?", NULL},
                                     {"What is in model.gguf", NULL},    {"./x\ny", NULL},
                                     {"./my models/x.gguf", "model"},    {"/my/model", "model"}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        char *argv[] = {"evenkeel", "run", alone[i][0], NULL};
        ek_cli run;
        assert_int_equal(ek_cli_parse(&run, 3, argv, NULL), EK_OK);
        if (run.has.model != (alone[i][1] != NULL)) fail_msg("%s", alone[i][0]);
        ek_cli_fini(&run);
    }
    static const char *const bad[] = {"evenkeel run a b c", "evenkeel run --model m a b", "evenkeel run e2b a -p b",
                                      "evenkeel run --model m a -p b", "evenkeel serve a b"};
    ek_cli c;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (parse(&c, good[i].line)) fail_msg("%s: %s", good[i].line, ek_err_text());
        if (good[i].model) assert_string_equal(c.model, good[i].model);
        assert_int_equal(c.has.model, good[i].model != NULL);
        if (good[i].prompt) assert_string_equal(c.arg, good[i].prompt);
        assert_int_equal(c.arg != NULL, good[i].prompt != NULL);
        ek_cli_fini(&c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!parse(&c, bad[i])) fail_msg("%s is accepted", bad[i]);
        assert_non_null(strstr(ek_err_text(), "one argument too many"));
        ek_cli_fini(&c);
    }
}

static void test_set(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel run --seed 3"), EK_OK);
    assert_int_equal(ek_cli_set(&c, "max-tokens", "5"), EK_OK);
    assert_true(c.has.max_tokens && c.max_tokens == 5);
    assert_int_equal(ek_cli_set(&c, "top_p", "0.25"), EK_OK);
    assert_true(c.top_p == 0.25);
    assert_int_equal(ek_cli_set(&c, "seed", NULL), EK_OK);
    assert_true(!c.has.seed && c.seed == 0);
    assert_int_equal(ek_cli_set(&c, "top_p", "3"), EK_EINVAL);
    assert_string_equal(ek_err_text(), "top_p 3: a number from 0 to 1 is needed");
    assert_true(c.top_p == 0.25);
    assert_int_equal(ek_cli_set(&c, "port", "3"), EK_ENOTFOUND);
    ek_cli_fini(&c);
}

static void test_arguments_are_kept_in_order(void **state)
{
    (void)state;
    ek_cli c;
    assert_int_equal(parse(&c, "evenkeel batch merge out --seed 3 a b -- --c"), EK_OK);
    static const char *const want[] = {"merge", "out", "a", "b", "--c"};
    assert_int_equal(c.args.n, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(c.args.v[i], want[i]);
    ek_cli_fini(&c);
    assert_int_equal(parse(&c, "evenkeel batch in out --url http://a --url http://b"), EK_OK);
    assert_int_equal(c.url.n, 2);
    assert_string_equal(c.url.v[1], "http://b");
    assert_string_equal(c.shard, "1/1");
    ek_cli_fini(&c);
}

/* Defaults are read by the same parsers as given values. */
static void test_defaults_are_valid(void **state)
{
    (void)state;
    for (int id = 0; id < EK_CMD_COUNT; id++) {
        ek_cli c;
        char *argv[] = {"evenkeel", (char *)(uintptr_t)ek_commands[id].name, "x", "x", NULL};
        const int args = id == EK_CMD_inspect ? 1 : ek_commands[id].min_args; /* MODEL or --synthetic */
        assert_int_equal(ek_cli_parse(&c, 2 + args, argv, no_env), EK_OK);
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
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_empty_values),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_common_options),
        cmocka_unit_test(test_texts_of_others),
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_run_arguments),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_arguments_are_kept_in_order),
        cmocka_unit_test(test_defaults_are_valid),
        cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
