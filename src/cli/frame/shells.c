/* Completions for bash, zsh and fish, from the tables. */
#include <ctype.h>
#include <string.h>

#include "cli/frame/cli.h"
#include "cli/frame/table.h"
#include "hub/name.h"

/* The kind of a value or an argument. */
typedef enum { NOTHING, WORDS, FILES, FOLDERS, MODELS, TEXT } value_kind;

/* The values that a placeholder lists: "auto cpu cuda" for "auto|cpu|cuda[:N]|cuda:all". For a value with a part after
 * a colon, only the part before the colon. */
static void words_of(ek_buf *out, const char *placeholder)
{
    const size_t from = out->len;
    for (const char *p = placeholder; *p; p += *p == '|') {
        const size_t all = strcspn(p, "|"), n = strcspn(p, "|[:");
        if (n && (n == all || p[n] == '[')) ek_buf_fmt(out, "%s%.*s", out->len > from ? " " : "", (int)n, p);
        p += all;
    }
}

static value_kind value_of(ek_buf *words, const ek_option *o)
{
    if (o->kind == OPT_FLAG || o->kind == OPT_LEVEL) return NOTHING;
    if (o->kind == OPT_CHOICE || (o->kind == OPT_STR && strchr(o->placeholder, '|'))) {
        words_of(words, o->placeholder);
        return WORDS;
    }
    if (!strcmp(o->placeholder, "MODEL")) return MODELS;
    if (!strcmp(o->placeholder, "DIR")) return FOLDERS;
    if (strstr(o->placeholder, "FILE") || strstr(o->placeholder, "PATH") || !strcmp(o->placeholder, "OUT"))
        return FILES;
    return TEXT;
}

static value_kind argument_of(ek_buf *words, ek_cmd_id id)
{
    const char *args = ek_commands[id].args;
    if (!*args || strstr(args, "WORD") || strstr(args, "PORT")) return NOTHING;
    if (id == EK_CMD_help) {
        for (int c = 0; c < EK_CMD_COUNT; c++) ek_buf_fmt(words, "%s%s", c ? " " : "", ek_commands[c].name);
        return WORDS;
    }
    if (islower((unsigned char)*args)) { /* a list of words */
        words_of(words, args);
        return WORDS;
    }
    return strstr(args, "MODEL") || id == EK_CMD_pull ? MODELS : strstr(args, "REPO") ? NOTHING : FILES;
}

static void models(ek_buf *out)
{
    for (int i = 0; i < ek_hub_n_shorts; i++) ek_buf_fmt(out, "%s%s", i ? " " : "", ek_hub_shorts[i].name);
}

/* The first words of an option's text: up to the end of its first clause. */
static void brief(ek_buf *out, const ek_option *o, ek_cmd_id id)
{
    ek_buf text = {0};
    ek_option_text(&text, o, id);
    const char *t = ek_buf_text(&text), *end = t + strlen(t);
    static const char *const ends[] = {"; ", ". ", ": ", " ("};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *at = strstr(t, ends[i]);
        if (at && at < end) end = at;
    }
    ek_buf_add(out, t, (size_t)(end - t));
    ek_buf_fini(&text);
}

/* A text in the shell's single quotes; each special character gets a backslash before it. */
static void quoted(ek_buf *out, const char *text, const char *specials, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'') {
            ek_buf_str(out, quote);
            continue;
        }
        if (strchr(specials, *text)) ek_buf_char(out, '\\');
        ek_buf_char(out, *text);
    }
}

static bool has(const ek_option *o, int id)
{
    return o->commands >> id & 1;
}

/* Every form of an option, separated by spaces: "-m --model", "--verbose --verbose=cache". */
static void forms(ek_buf *out, const ek_option *o)
{
    if (ek_option_letter(o)) ek_buf_fmt(out, "-%c ", ek_option_letter(o));
    ek_name_flag(out, o->name);
    if (o->kind != OPT_LEVEL) return;
    ek_buf_char(out, ' ');
    ek_name_flag(out, o->name);
    ek_buf_fmt(out, "%.*s", (int)strcspn(o->placeholder + 1, "]"), o->placeholder + 1);
}

/* ------------------------------------------------------------------ bash */

static void bash_value(ek_buf *out, value_kind kind, const char *words)
{
    switch (kind) {
    case WORDS: ek_buf_fmt(out, "kind=words words='%s'", words); break;
    case MODELS: ek_buf_str(out, "kind=models"); break;
    case FOLDERS: ek_buf_str(out, "kind=folders"); break;
    case FILES: ek_buf_str(out, "kind=files"); break;
    default: ek_buf_str(out, "kind=none");
    }
}

static void bash(ek_buf *out)
{
    ek_buf words = {0};
    ek_buf_str(out, "# bash completion of evenkeel, written by `evenkeel help --completion bash`.\n"
                    "_evenkeel()\n{\n"
                    "    local line=${COMP_LINE:0:COMP_POINT} cur before kind=none words='' options='' trim\n"
                    "    cur=${line##*[[:space:]]}\n"
                    "    before=${COMP_WORDS[COMP_CWORD-1]}\n"
                    "    COMPREPLY=()\n"
                    "    if [[ $cur == --*=* ]]; then before=${cur%%=*}; fi\n"
                    "    case ${COMP_WORDS[1]} in\n");
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        ek_buf_fmt(out, "    %s)\n        options='", ek_commands[c].name);
        for (int i = 0; i < ek_n_options; i++)
            if (has(&ek_options[i], c)) forms(out, &ek_options[i]), ek_buf_char(out, ' ');
        ek_buf_str(out, "--help --help-all'\n        ");
        ek_buf_clear(&words);
        const value_kind kind = argument_of(&words, (ek_cmd_id)c);
        bash_value(out, kind, ek_buf_text(&words));
        ek_buf_str(out, "\n        case $before in\n");
        for (int i = 0; i < ek_n_options; i++) {
            const ek_option *o = &ek_options[i];
            ek_buf_clear(&words);
            if (!has(o, c)) continue;
            const value_kind value = value_of(&words, o);
            if (value == NOTHING && o->kind != OPT_LEVEL) continue;
            ek_buf_str(out, "        ");
            if (ek_option_letter(o)) ek_buf_fmt(out, "-%c | ", ek_option_letter(o));
            ek_name_flag(out, o->name);
            if (o->kind == OPT_LEVEL) {
                ek_buf_fmt(out, ") if [[ $cur == *=* ]]; then kind=words words='%.*s'; fi ;;\n",
                           (int)strcspn(o->placeholder + 2, "]"), o->placeholder + 2);
                continue;
            }
            ek_buf_str(out, ") ");
            bash_value(out, value, ek_buf_text(&words));
            /* The next word is a path or the next argument. */
            ek_buf_str(out, o->kind == OPT_PROGRAM ? " ;;\n" : "; options='' ;;\n");
        }
        ek_buf_str(out, "        esac ;;\n");
    }
    ek_buf_str(out, "    esac\n    if ((COMP_CWORD == 1)); then\n        kind=words words='");
    for (int c = 0; c < EK_CMD_COUNT; c++) ek_buf_fmt(out, "%s ", ek_commands[c].name);
    ek_buf_str(out, "--help --version'\n"
                    "    elif [[ $cur == --*=* ]]; then\n        cur=${cur#*=}\n"
                    "    elif [[ $cur == -* && -n $options ]]; then\n        kind=words words=$options\n    fi\n"
                    "    if [[ $kind == models ]]; then words='");
    models(out);
    ek_buf_str(out, "'; fi\n"
                    "    if [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); fi\n"
                    "    # A word of readline ends at a colon or an equals sign.\n"
                    "    trim=${cur%\"${cur##*[=:]}\"}\n"
                    "    COMPREPLY=(\"${COMPREPLY[@]#\"$trim\"}\")\n"
                    "    case $kind in\n"
                    "    none | words) compopt +o default +o bashdefault 2>/dev/null ;;\n"
                    "    folders) compopt +o default +o bashdefault -o dirnames 2>/dev/null ;;\n"
                    "    esac\n"
                    "    if [[ -z ${COMPREPLY[0]-} ]]; then COMPREPLY=(); fi\n"
                    "}\n"
                    "complete -o bashdefault -o default -F _evenkeel evenkeel\n");
    ek_buf_fini(&words);
}

/* ------------------------------------------------------------------ zsh */

static void zsh_value(ek_buf *out, value_kind kind, const char *words)
{
    switch (kind) {
    case WORDS: ek_buf_fmt(out, "(%s)", words); break;
    case MODELS: ek_buf_str(out, "_evenkeel_models"); break;
    case FOLDERS: ek_buf_str(out, "_files -/"); break;
    case FILES: ek_buf_str(out, "_files"); break;
    default: ek_buf_str(out, " ");
    }
}

static void zsh_option(ek_buf *out, const ek_option *o, ek_cmd_id id)
{
    ek_buf all = {0}, text = {0}, words = {0};
    forms(&all, o);
    brief(&text, o, id);
    const value_kind value = value_of(&words, o);
    const char star = o->kind == OPT_FILES ? '*' : '\0';
    for (const char *form = ek_buf_text(&all); *form; form += strspn(form, " ")) {
        const size_t n = strcspn(form, " ");
        ek_buf_str(out, " \\\n            '");
        if (star) ek_buf_char(out, star);
        else ek_buf_fmt(out, "(%s)", ek_buf_text(&all));
        ek_buf_add(out, form, n);
        if (value != NOTHING && n > 2 && o->kind != OPT_PROGRAM) ek_buf_char(out, '=');
        if (o->kind == OPT_PROGRAM) ek_buf_str(out, "=-");
        ek_buf_char(out, '[');
        quoted(out, ek_buf_text(&text), "[]\\:", "'\\''");
        ek_buf_char(out, ']');
        if (value != NOTHING) {
            ek_buf_str(out, o->kind == OPT_PROGRAM ? "::" : ":");
            quoted(out, o->placeholder, "[]\\:", "'\\''");
            ek_buf_char(out, ':');
            zsh_value(out, value, ek_buf_text(&words));
        }
        ek_buf_char(out, '\'');
        form += n;
    }
    ek_buf_fini(&all), ek_buf_fini(&text), ek_buf_fini(&words);
}

static void zsh(ek_buf *out)
{
    ek_buf_str(out, "#compdef evenkeel\n# zsh completion of evenkeel, written by `evenkeel help --completion zsh`.\n"
                    "_evenkeel_models() {\n    local -a names=(");
    models(out);
    ek_buf_str(out, ")\n    compadd -- $names\n    _files\n}\n"
                    "_evenkeel() {\n    local context state line\n    typeset -A opt_args\n"
                    "    _arguments -C '1:command:->command' '*::argument:->argument'\n"
                    "    case $state in\n    command)\n        local -a commands=(");
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        ek_buf_fmt(out, "\n            '%s:", ek_commands[c].name);
        quoted(out, ek_commands[c].text, "\\:", "'\\''");
        ek_buf_char(out, '\'');
    }
    ek_buf_str(out, ")\n        _describe command commands\n        compadd -- --help --version ;;\n"
                    "    argument)\n        case $words[1] in\n");
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        ek_buf words = {0};
        ek_buf_fmt(out, "        %s)\n            _arguments", ek_commands[c].name);
        for (int i = 0; i < ek_n_options; i++)
            if (has(&ek_options[i], c)) zsh_option(out, &ek_options[i], (ek_cmd_id)c);
        ek_buf_str(out, " \\\n            '--help[the common options]' '--help-all[all options]'");
        const value_kind kind = argument_of(&words, (ek_cmd_id)c);
        if (kind != NOTHING) {
            ek_buf_str(out, " \\\n            '*:argument:");
            zsh_value(out, kind, ek_buf_text(&words));
            ek_buf_char(out, '\'');
        }
        ek_buf_str(out, " ;;\n");
        ek_buf_fini(&words);
    }
    ek_buf_str(out,
               "        esac ;;\n    esac\n}\n"
               "if [ \"$funcstack[1]\" = _evenkeel ]; then _evenkeel \"$@\"; else compdef _evenkeel evenkeel; fi\n");
}

/* ------------------------------------------------------------------ fish */

/* The condition that the command is one of these. */
static void fish_commands(ek_buf *out, unsigned commands)
{
    ek_buf_str(out, "complete -c evenkeel -n '__evenkeel_command");
    for (int c = 0; c < EK_CMD_COUNT; c++)
        if (commands >> c & 1) ek_buf_fmt(out, " %s", ek_commands[c].name);
    ek_buf_char(out, '\'');
}

/* required: the option has its value in the next word. */
static void fish_value(ek_buf *out, value_kind kind, const char *words, bool required)
{
    if (required && kind != NOTHING) ek_buf_str(out, kind == MODELS || kind == FILES ? " -r" : " -x");
    switch (kind) {
    case WORDS: ek_buf_fmt(out, " -a '%s'", words); break;
    case MODELS:
        ek_buf_str(out, " -F -a '");
        models(out);
        ek_buf_char(out, '\'');
        break;
    case FOLDERS: ek_buf_str(out, " -a '(__fish_complete_directories)'"); break;
    case FILES: ek_buf_str(out, " -F"); break;
    default: break;
    }
}

static void fish(ek_buf *out)
{
    ek_buf_str(out,
               "# fish completion of evenkeel, written by `evenkeel help --completion fish`.\n"
               "function __evenkeel_command\n    set -l typed (commandline -opc)\n"
               "    set -q typed[2]; and contains -- $typed[2] $argv\nend\n"
               "function __evenkeel_no_command\n    set -l typed (commandline -opc)\n    not set -q typed[2]\nend\n"
               "complete -c evenkeel -f\n"
               "complete -c evenkeel -n __evenkeel_no_command -l help -d 'the commands'\n"
               "complete -c evenkeel -n __evenkeel_no_command -l version -d 'the version'\n"
               "complete -c evenkeel -n 'not __evenkeel_no_command' -l help -d 'the common options'\n"
               "complete -c evenkeel -n 'not __evenkeel_no_command' -l help-all -d 'all options'\n");
    ek_buf words = {0}, text = {0};
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        ek_buf_fmt(out, "complete -c evenkeel -n __evenkeel_no_command -a %s -d '", ek_commands[c].name);
        quoted(out, ek_commands[c].text, "\\", "\\'");
        ek_buf_str(out, "'\n");
        ek_buf_clear(&words);
        const value_kind kind = argument_of(&words, (ek_cmd_id)c);
        if (kind == NOTHING) continue;
        fish_commands(out, 1u << c);
        fish_value(out, kind, ek_buf_text(&words), false);
        ek_buf_char(out, '\n');
    }
    for (int i = 0; i < ek_n_options; i++) {
        const ek_option *o = &ek_options[i];
        if (!o->commands) continue;
        ek_buf_clear(&words), ek_buf_clear(&text);
        const value_kind value = value_of(&words, o);
        brief(&text, o, EK_CMD_COUNT);
        fish_commands(out, o->commands);
        ek_buf flag = {0};
        ek_name_flag(&flag, o->name);
        ek_buf_fmt(out, " -l %s", ek_buf_text(&flag) + 2);
        ek_buf_fini(&flag);
        if (ek_option_letter(o)) ek_buf_fmt(out, " -s %c", ek_option_letter(o));
        fish_value(out, value, ek_buf_text(&words), o->kind != OPT_PROGRAM);
        ek_buf_str(out, " -d '");
        quoted(out, ek_buf_text(&text), "\\", "\\'");
        ek_buf_str(out, "'\n");
    }
    ek_buf_fini(&words), ek_buf_fini(&text);
}

void ek_cli_completion(ek_buf *out, const char *shell)
{
    if (!strcmp(shell, "bash")) bash(out);
    else if (!strcmp(shell, "zsh")) zsh(out);
    else fish(out);
}
