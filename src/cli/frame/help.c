/* --help of the program and of every command, and docs/OPTIONS.md, from the tables; the commands help and version. */
#include <stdio.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "cli/frame/cli.h"
#include "cli/frame/table.h"
#include "model/model.h"

enum { TEXT_COLUMN = 34, WIDTH = 100 };

/* Wraps text at WIDTH with a hanging indent; the cursor stands at TEXT_COLUMN. */
static void wrap(ek_buf *out, const char *text)
{
    int at = TEXT_COLUMN;
    for (const char *gap = ""; *text; gap = " ") {
        int n = (int)strcspn(text, " ");
        if (at + 1 + n > WIDTH && *gap) {
            ek_buf_fmt(out, "\n%*s", TEXT_COLUMN, "");
            at = TEXT_COLUMN;
            gap = "";
        }
        ek_buf_str(out, gap);
        ek_buf_add(out, text, (size_t)n);
        at += (int)strlen(gap) + n;
        text += n;
        text += *text == ' ';
    }
    ek_buf_char(out, '\n');
}

/* Whether a command is in a list of names separated by commas. */
static bool is_for(const char *list, size_t n, ek_cmd_id id)
{
    const char *name = ek_cmd_name(id);
    for (size_t i = 0; i < n;) {
        size_t len = strcspn(list + i, ",:");
        if (len == strlen(name) && !memcmp(list + i, name, len)) return true;
        i += len + strspn(list + i + len, ", ");
    }
    return false;
}

void ek_option_text(ek_buf *out, const ek_option *o, ek_cmd_id id)
{
    const char *text = o->text;
    const size_t from = out->len;
    bool any = false;
    while (*text) {
        if (strncmp(text, "{{", 2) != 0) {
            any = false;
            ek_buf_char(out, *text++);
            continue;
        }
        const char *list = text + 2, *words = strstr(list, ": ") + 2, *end = strstr(words, "}}");
        const size_t n = (size_t)(words - list) - 2;
        if (id == EK_CMD_COUNT || is_for(list, n, id)) {
            if (any && *words != ';') ek_buf_str(out, ", ");
            ek_buf_add(out, words, (size_t)(end - words));
            if (id == EK_CMD_COUNT) ek_buf_str(out, " ("), ek_buf_add(out, list, n), ek_buf_char(out, ')');
            any = true;
        }
        text = end + 2;
    }
    while (out->len > from && strchr("; ", out->data[out->len - 1])) out->data[--out->len] = '\0';
}

/* " -m, --model MODEL * the text (default x)". The legend explains the star: the option is part of the answer. */
static void option_row(ek_buf *out, const ek_option *o, ek_cmd_id id)
{
    ek_buf head = {0}, text = {0};
    char letter = ek_option_letter(o);
    if (letter) ek_buf_fmt(&head, "  -%c, ", letter);
    else ek_buf_str(&head, "      ");
    ek_name_flag(&head, o->name);
    if (*o->placeholder) ek_buf_fmt(&head, " %s", o->placeholder);
    if (o->effect == EFFECT_ANSWER) ek_buf_str(&head, " *");
    ek_buf_add(out, head.data, head.len);
    if (head.len + 2 > TEXT_COLUMN) ek_buf_fmt(out, "\n%*s", TEXT_COLUMN, "");
    else ek_buf_fmt(out, "%*s", TEXT_COLUMN - (int)head.len, "");
    ek_option_text(&text, o, id);
    if (o->def) ek_buf_fmt(&text, " (default %s)", o->def);
    wrap(out, ek_buf_text(&text));
    ek_buf_fini(&head);
    ek_buf_fini(&text);
}

static bool has(const ek_option *o, ek_cmd_id id)
{
    return o->commands >> id & 1;
}

/* Whether a name is one of the words of list. */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && !memcmp(p, name, n)) return true;
        p += len;
    }
    return false;
}

/* The listed options, in the order of the list. */
static void common_rows(ek_buf *out, ek_cmd_id id, const char *list)
{
    ek_buf_str(out, "\ncommon options:\n");
    bool argument;
    if (!ek_option_by_letter('p', id, &argument) && argument)
        ek_buf_fmt(out, "%-*s%s\n", TEXT_COLUMN, "  -p PROMPT *",
                   "the prompt, where an argument might be taken for a model");
    for (const char *p = list; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        for (int i = 0; i < ek_n_options; i++)
            if (has(&ek_options[i], id) && strlen(ek_options[i].name) == len && !memcmp(ek_options[i].name, p, len))
                option_row(out, &ek_options[i], id);
        p += len;
    }
}

/* Every option that is not in list, below the names of the groups. */
static void group_rows(ek_buf *out, ek_cmd_id id, const char *list)
{
    for (int g = 0; g < ek_n_option_groups; g++) {
        const int end = g + 1 < ek_n_option_groups ? ek_option_groups[g + 1].first : ek_n_options;
        bool any = false;
        for (int i = ek_option_groups[g].first; i < end; i++) {
            const ek_option *o = &ek_options[i];
            if (!has(o, id) || listed(list, o->name)) continue;
            if (!any) ek_buf_fmt(out, "\n%s:\n", ek_option_groups[g].text);
            any = true;
            option_row(out, o, id);
        }
    }
}

/* What the rows leave out is said once here, not on every line. */
static void legend(ek_buf *out, ek_cmd_id id, bool whole)
{
    int n = 0, answers = 0;
    for (int i = 0; i < ek_n_options; i++) {
        n += has(&ek_options[i], id);
        answers += has(&ek_options[i], id) && ek_options[i].effect == EFFECT_ANSWER;
    }
    if (!n) return;
    ek_buf_char(out, '\n');
    if (answers)
        ek_buf_str(out,
                   "*  part of the answer: with another value it may be another one. No other option changes a bit "
                   "of it.\n");
    ek_buf_str(out, "Each option is also EVENKEEL_NAME in the environment: --max-tokens 5 is EVENKEEL_MAX_TOKENS=5.\n");
    if (!whole) ek_buf_fmt(out, "`evenkeel %s --help-all` lists all %d options.\n", ek_cmd_name(id), n);
}

void ek_cli_help(ek_buf *out, ek_cmd_id id, bool all)
{
    const ek_command *c = &ek_commands[id];
    const char *list = ek_command_common(id), *more = ek_command_more(id);
    ek_buf_fmt(out, "evenkeel %s %s\n", c->name, c->text);
    ek_buf_fmt(out, "\nusage: evenkeel %s [OPTIONS]%s%s\n", c->name, *c->args ? " " : "", c->args);
    if (more) ek_buf_fmt(out, "\n%s", more);
    if (list) common_rows(out, id, list);
    if (all || !list) group_rows(out, id, list);
    legend(out, id, all || !list);
}

/* Commands for everyday use come first. */
static const struct {
    const char *title;
    ek_cmd_id command[10];
    int n;
} shelves[] = {
    {"every day", {EK_CMD_run, EK_CMD_serve, EK_CMD_ps, EK_CMD_stop, EK_CMD_agents}, 5},
    {"models", {EK_CMD_names, EK_CMD_pull, EK_CMD_list, EK_CMD_rm, EK_CMD_inspect, EK_CMD_convert}, 6},
    {"evaluations", {EK_CMD_batch, EK_CMD_diff, EK_CMD_replies}, 3},
    {"this machine and the promise",
     {EK_CMD_bench, EK_CMD_selftest, EK_CMD_replay, EK_CMD_receipts, EK_CMD_verify, EK_CMD_version, EK_CMD_help},
     7},
    {"inspection, for tests and tools",
     {EK_CMD_logits, EK_CMD_generate, EK_CMD_draft, EK_CMD_tokenize, EK_CMD_detokenize, EK_CMD_render, EK_CMD_parse,
      EK_CMD_preprocess, EK_CMD_features},
     9},
};

void ek_cli_usage(ek_buf *out)
{
    ek_buf_str(out, "evenkeel serves Google's Gemma 4 models with the same bits in every answer: alone or in a\n"
                    "batch, early or late, in chunks or at once, on any number of threads.\n"
                    "\nusage: evenkeel COMMAND [OPTIONS]\n"
                    "\n  evenkeel run          a chat with the bundled model, which is small and knows no facts\n"
                    "  evenkeel run e2b      a chat with Gemma 4 E2B; it is fetched if you agree\n"
                    "  evenkeel serve        an API and a page at http://127.0.0.1:8080/\n");
    for (size_t s = 0; s < sizeof shelves / sizeof *shelves; s++) {
        ek_buf_fmt(out, "\n%s:\n", shelves[s].title);
        for (int i = 0; i < shelves[s].n; i++) {
            const ek_command *c = &ek_commands[shelves[s].command[i]];
            ek_buf_fmt(out, "  %-12s%s\n", c->name, c->text);
        }
    }
    ek_buf_str(out, "\n`evenkeel COMMAND --help` lists a command's common options, --help-all all of them.\n");
}

/* Escapes bars, because they would end a table cell. */
static void cell(ek_buf *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '|') ek_buf_char(out, '\\');
        ek_buf_char(out, *s);
    }
}

static void command_row(ek_buf *out, const ek_command *c)
{
    ek_buf_fmt(out, "| `%s%s", c->name, *c->args ? " " : "");
    cell(out, c->args);
    ek_buf_fmt(out, "` | %s |\n", c->text);
}

/* The commands that open a model. They share many options. */
#define BIT(c) (1u << EK_CMD_##c)
#define OPENS_MODEL                                                                                              \
    (BIT(run) | BIT(serve) | BIT(verify) | BIT(bench) | BIT(selftest) | BIT(replay) | BIT(batch) | BIT(logits) | \
     BIT(generate) | BIT(draft) | BIT(features))

/* "*models*", with up to two of these commands that lack the option, and with other commands that have it; or a list of
 * names. */
static void command_list(ek_buf *out, const ek_option *o)
{
    const unsigned lack = OPENS_MODEL & ~o->commands;
    const bool models = __builtin_popcount(lack) <= 2;
    const char *comma = models ? " but " : "";
    if (models) ek_buf_str(out, "*models*");
    for (int c = 0; models && c < EK_CMD_COUNT; c++) {
        if (!(lack >> c & 1)) continue;
        ek_buf_fmt(out, "%s%s", comma, ek_cmd_name((ek_cmd_id)c));
        comma = ", ";
    }
    comma = models ? "; " : "";
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        if (!has(o, (ek_cmd_id)c) || (models && OPENS_MODEL >> c & 1)) continue;
        ek_buf_fmt(out, "%s%s", comma, ek_cmd_name((ek_cmd_id)c));
        comma = ", ";
    }
}

static void table_row(ek_buf *out, const ek_option *o)
{
    ek_buf_str(out, "| `");
    if (ek_option_letter(o)) ek_buf_fmt(out, "-%c`, `", ek_option_letter(o));
    ek_name_flag(out, o->name);
    if (*o->placeholder) ek_buf_char(out, ' ');
    cell(out, o->placeholder);
    ek_buf_fmt(out, "`%s | ", o->effect == EFFECT_ANSWER ? " \\*" : "");
    command_list(out, o);
    ek_buf_fmt(out, " | %s | ", o->def ? o->def : "");
    ek_buf text = {0};
    ek_option_text(&text, o, EK_CMD_COUNT);
    cell(out, ek_buf_text(&text));
    ek_buf_fini(&text);
    ek_buf_str(out, " |\n");
}

void ek_cli_markdown(ek_buf *out)
{
    ek_buf_str(out, "# Commands and options\n\n"
                    "Written by `evenkeel help --markdown` from src/cli/frame/options.def; a test compares the two.\n\n"
                    "## Commands\n\n| command | what it does |\n|---|---|\n");
    for (int c = 0; c < EK_CMD_COUNT; c++) command_row(out, &ek_commands[c]);
    ek_buf_str(
        out,
        "\n## Options\n\n"
        "Every option is also an environment variable: `--max-tokens 5` is `EVENKEEL_MAX_TOKENS=5`. The command line\n"
        "wins. \\*: another value may change the answer; no other option changes a bit of it.\n"
        "*models*: run, serve, bench, selftest, replay, verify, batch, logits, generate, draft, features.\n"
        "`evenkeel COMMAND --help` lists the common options, `--help-all` all of them.\n\n"
        "| option | commands | default | meaning |\n|---|---|---|---|\n");
    for (int i = 0; i < ek_n_options; i++)
        if (ek_options[i].commands) table_row(out, &ek_options[i]);
}

static int print(ek_buf *b)
{
    fputs(ek_buf_text(b), stdout);
    ek_buf_fini(b);
    return 0;
}

int ek_cmd_help(const ek_cli *cli)
{
    ek_buf b = {0};
    ek_cmd_id id = EK_CMD_COUNT;
    if (cli->arg) {
        ek_cli other;
        char *argv[] = {"evenkeel", (char *)(uintptr_t)cli->arg, "--help", NULL};
        if (ek_cli_parse(&other, 3, argv, NULL)) return ek_cli_wrong(cli, "%s", ek_err_text());
        id = other.command;
        ek_cli_fini(&other);
    }
    if (cli->completion) ek_cli_completion(&b, cli->completion);
    else if (cli->markdown) ek_cli_markdown(&b);
    else if (cli->man) ek_cli_manual(&b, id);
    else if (id == EK_CMD_COUNT) ek_cli_usage(&b);
    else ek_cli_help(&b, id, true); /* the help has the text of the man page */
    return print(&b);
}

int ek_cmd_version(const ek_cli *cli)
{
    if (cli->isas) {
        for (const char *const *isa = ek_cpu_isas(); *isa; isa++) printf("%s%s", *isa, isa[1] ? " " : "\n");
        return 0;
    }
    printf("evenkeel %s\n", EK_VERSION);
#ifdef __clang__
    printf("build clang %d.%d.%d", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    printf("build gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
#ifdef __x86_64__
    printf(" x86_64\n");
#elif defined __aarch64__
    printf(" aarch64\n");
#else
    printf("\n");
#endif
    /* the same for every model; a model adds its formats (system_fingerprint in its replies) */
    printf("numerics ek%d\n", EK_ARITHMETIC_VERSION);
    return 0;
}
