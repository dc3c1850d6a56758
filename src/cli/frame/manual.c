/* Man pages of the program and of each command, from the tables. */
#include <string.h>

#include "cli/frame/cli.h"
#include "cli/frame/table.h"

/* Writes one character in roff's form; `code` is bold. */
static void put_char(ek_buf *out, const char **text, bool *code)
{
    const unsigned char c = (unsigned char)**text;
    *text += 1;
    switch (c) {
    case '`': ek_buf_str(out, *code ? "\\fR" : "\\fB"), *code = !*code; return;
    case '\\': ek_buf_str(out, "\\e"); return;
    case '-': ek_buf_str(out, "\\-"); return;
    case '\'': ek_buf_str(out, "\\(aq"); return;
    case '~': ek_buf_str(out, "\\(ti"); return;
    case '^': ek_buf_str(out, "\\(ha"); return;
    default: break;
    }
    if (c < 0xc0) {
        ek_buf_char(out, (char)c);
        /* Marks a place where a long list of values may continue on the next line. */
        if (c == '|') ek_buf_str(out, "\\:");
        return;
    }
    /* The tables hold characters of up to three bytes. */
    const int more = c < 0xe0 ? 1 : 2;
    unsigned code_point = c & (more == 1 ? 0x1f : 0x0f);
    for (int i = 0; i < more; i++, *text += 1) code_point = code_point << 6 | ((unsigned char)**text & 0x3f);
    ek_buf_fmt(out, "\\[u%04X]", code_point);
}

/* Writes a text of one or more lines. */
static void put(ek_buf *out, const char *text)
{
    bool code = false, begins = true;
    while (*text) {
        if (begins && strchr(".'", *text)) ek_buf_str(out, "\\&"); /* else a request */
        begins = *text == '\n';
        put_char(out, &text, &code);
    }
    if (code) ek_buf_str(out, "\\fR");
}

static void put_line(ek_buf *out, const char *before, const char *text, const char *behind)
{
    ek_buf_str(out, before);
    put(out, text);
    ek_buf_fmt(out, "%s\n", behind);
}

static void heading(ek_buf *out, const char *request, const char *title)
{
    ek_buf_fmt(out, "%s%s\n", request, title);
}

/* "-m, --model MODEL *" and its text, as in the help. */
static void option_row(ek_buf *out, const ek_option *o, ek_cmd_id id)
{
    ek_buf flag = {0}, text = {0};
    const char letter = ek_option_letter(o);
    ek_buf_str(out, ".TP\n");
    if (letter) ek_buf_fmt(out, "\\fB\\-%c\\fR, ", letter);
    ek_name_flag(&flag, o->name);
    put_line(&text, "\\fB", ek_buf_text(&flag), "\\fR");
    text.data[--text.len] = '\0';
    ek_buf_str(out, ek_buf_text(&text));
    if (*o->placeholder) {
        ek_buf_str(out, " \\fI");
        put(out, o->placeholder);
        ek_buf_str(out, "\\fR");
    }
    ek_buf_str(out, o->effect == EFFECT_ANSWER ? " *\n" : "\n");
    ek_buf_clear(&text);
    ek_option_text(&text, o, id);
    if (o->def) ek_buf_fmt(&text, " (default %s)", o->def);
    put_line(out, "", ek_buf_text(&text), "");
    ek_buf_fini(&flag);
    ek_buf_fini(&text);
}

static void options(ek_buf *out, ek_cmd_id id)
{
    bool any = false;
    for (int g = 0; g < ek_n_option_groups; g++) {
        const int end = g + 1 < ek_n_option_groups ? ek_option_groups[g + 1].first : ek_n_options;
        bool of_group = false;
        for (int i = ek_option_groups[g].first; i < end; i++) {
            if (!(ek_options[i].commands >> id & 1)) continue;
            if (!any) ek_buf_str(out, ".SH OPTIONS\n");
            if (!of_group) heading(out, ".SS ", ek_option_groups[g].text);
            any = of_group = true;
            option_row(out, &ek_options[i], id);
        }
    }
    bool argument;
    if (!ek_option_by_letter('p', id, &argument) && argument)
        ek_buf_str(out, ".SS the prompt\n.TP\n\\fB\\-p\\fR \\fIPROMPT\\fR *\n"
                        "the prompt, where an argument might be taken for a model\n");
    if (!any) return;
    ek_buf_str(out, ".PP\nA star marks what is part of the answer: with another value it may be another one. No other "
                    "option changes a bit of it.\n"
                    ".SH ENVIRONMENT\n"
                    "Each option is also EVENKEEL_NAME in the environment: \\fB\\-\\-max\\-tokens 5\\fR is "
                    "EVENKEEL_MAX_TOKENS=5. The command line wins.\n");
}

static void begin(ek_buf *out, const char *name, const char *text)
{
    ek_buf_str(out, ".\\\" Written by `evenkeel help --man` from src/cli/frame/options.def.\n.TH ");
    for (const char *c = name; *c; c++) ek_buf_char(out, *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c);
    /* No hyphenation and no stretched spaces, because options have hyphens. */
    ek_buf_fmt(out, " 1 \"\" \"evenkeel %s\" evenkeel\n.nh\n.ad l\n.SH NAME\n", EK_VERSION);
    put(out, name);
    put_line(out, " \\- ", text, "");
    ek_buf_str(out, ".SH SYNOPSIS\n");
}

static void of_program(ek_buf *out)
{
    begin(out, "evenkeel", "inference server for Gemma 4 with the same bits in every answer");
    ek_buf_str(out, ".B evenkeel\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
                    "evenkeel serves Google\\(aqs Gemma 4 models with the same bits in every answer: alone or in a "
                    "batch, early or late, in chunks or at once, on any number of threads. Each command has a page of "
                    "its own, as in \\fBman evenkeel\\-run\\fR; \\fBevenkeel help run\\fR says the same.\n"
                    ".SH COMMANDS\n");
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        ek_buf_fmt(out, ".TP\n\\fB%s\\fR \\fI", ek_commands[c].name);
        put(out, ek_commands[c].args);
        ek_buf_str(out, "\\fR\n");
        put_line(out, "", ek_commands[c].text, "");
    }
}

void ek_cli_manual(ek_buf *out, ek_cmd_id id)
{
    if (id == EK_CMD_COUNT) {
        of_program(out);
    } else {
        const ek_command *c = &ek_commands[id];
        const char *more = ek_command_more(id);
        ek_buf name = {0};
        ek_buf_fmt(&name, "evenkeel-%s", c->name);
        begin(out, ek_buf_text(&name), c->text);
        ek_buf_fini(&name);
        ek_buf_fmt(out, ".B evenkeel %s\n[\\fIOPTIONS\\fR] \\fI", c->name);
        put(out, c->args);
        ek_buf_str(out, "\\fR\n");
        if (more) {
            ek_buf_str(out, ".SH DESCRIPTION\n.nf\n");
            put(out, more);
            ek_buf_str(out, ".fi\n");
        }
        options(out, id);
    }
    ek_buf_str(out,
               ".SH EXIT STATUS\n0; 1 for a failure; 2 for a wrong call. A line on standard error says the reason.\n"
               ".SH SEE ALSO\n");
    if (id != EK_CMD_COUNT) ek_buf_str(out, ".BR evenkeel (1)\n");
    for (int c = 0; id == EK_CMD_COUNT && c < EK_CMD_COUNT; c++)
        ek_buf_fmt(out, ".BR evenkeel\\-%s (1)%s\n", ek_commands[c].name, c + 1 < EK_CMD_COUNT ? "," : "");
}
