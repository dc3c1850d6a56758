/* --help of the program and of every command, and docs/OPTIONS.md, from the tables. */
#include <string.h>

#include "cli/frame/table.h"

enum { TEXT_COLUMN = 30, WIDTH = 100 };

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

static void describe(ek_buf *b, const ek_option *o)
{
    ek_buf_str(b, o->text);
    const char *sep = " (";
    if (o->def) {
        ek_buf_fmt(b, "%sdefault %s", sep, o->def);
        sep = "; ";
    }
    if (o->effect != EFFECT_OTHER) {
        ek_buf_fmt(b, "%s%s", sep, o->effect == EFFECT_SPEED ? "speed only" : "part of the answer");
        sep = "; ";
    }
    if (*sep == ';') ek_buf_char(b, ')');
}

static void option_row(ek_buf *out, const ek_option *o)
{
    ek_buf head = {0}, text = {0};
    ek_buf_str(&head, "  ");
    ek_option_flag(&head, o);
    if (*o->placeholder) ek_buf_fmt(&head, " %s", o->placeholder);
    ek_buf_add(out, head.data, head.len);
    if (head.len + 2 > TEXT_COLUMN) ek_buf_fmt(out, "\n%*s", TEXT_COLUMN, "");
    else ek_buf_fmt(out, "%*s", TEXT_COLUMN - (int)head.len, "");
    describe(&text, o);
    wrap(out, ek_buf_text(&text));
    ek_buf_fini(&head);
    ek_buf_fini(&text);
}

void ek_cli_help(ek_buf *out, ek_cmd_id id)
{
    const ek_command *c = &ek_commands[id];
    ek_buf_fmt(out, "evenkeel %s %s\n", c->name, c->text);
    ek_buf_fmt(out, "\nusage: evenkeel %s [OPTIONS]%s%s\n", c->name, *c->args ? " " : "", c->args);
    bool any = false;
    for (int i = 0; i < ek_n_options; i++) {
        if (!(ek_options[i].commands >> id & 1)) continue;
        if (!any) ek_buf_str(out, "\noptions, each also as EVENKEEL_NAME in the environment:\n");
        any = true;
        option_row(out, &ek_options[i]);
    }
}

void ek_cli_usage(ek_buf *out)
{
    ek_buf_str(out, "evenkeel serves Google's Gemma 4 models with the same bits in every answer: alone or in a\n"
                    "batch, early or late, in chunks or at once, on any number of threads.\n"
                    "\nusage: evenkeel COMMAND [OPTIONS]\n\ncommands:\n");
    for (int c = 0; c < EK_CMD_COUNT; c++) ek_buf_fmt(out, "  %-12s%s\n", ek_commands[c].name, ek_commands[c].text);
    ek_buf_str(out, "\n`evenkeel COMMAND --help` lists a command's options.\n");
}

static const char *effect_words(ek_opt_effect e)
{
    return e == EFFECT_SPEED ? "speed only" : e == EFFECT_ANSWER ? "answer" : "";
}

/* Bars would end a table cell. */
static void cell(ek_buf *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '|') ek_buf_char(out, '\\');
        ek_buf_char(out, *s);
    }
}

void ek_cli_markdown(ek_buf *out)
{
    ek_buf_str(
        out,
        "# Commands and options\n\nWritten by `evenkeel help --markdown` from src/cli/frame/options.def; a test compares the two.\n\n"
        "Every option can also be set in the environment: `--max-tokens 5` is `EVENKEEL_MAX_TOKENS=5`; the\n"
        "command line wins. *speed only*: no bit of any logit depends on it. *answer*: part of what is answered.\n");
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        const ek_command *cmd = &ek_commands[c];
        ek_buf_fmt(out, "\n## evenkeel %s%s%s\n\nThis command %s.\n", cmd->name, *cmd->args ? " " : "", cmd->args,
                   cmd->text);
        bool any = false;
        for (int i = 0; i < ek_n_options; i++) {
            const ek_option *o = &ek_options[i];
            if (!(o->commands >> c & 1)) continue;
            if (!any) ek_buf_str(out, "\n| option | default | meaning | effect |\n|---|---|---|---|\n");
            any = true;
            ek_buf_str(out, "| `");
            ek_option_flag(out, o);
            if (*o->placeholder) {
                ek_buf_char(out, ' ');
                cell(out, o->placeholder);
            }
            ek_buf_fmt(out, "` | %s | ", o->def ? o->def : "");
            cell(out, o->text);
            ek_buf_fmt(out, " | %s |\n", effect_words(o->effect));
        }
    }
}
