/* argv and environment to an ek_cli, driven by the options table. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "cli/frame/check.h"
#include "cli/frame/guess.h"
#include "cli/frame/table.h"
#include "hub/names.h"
#include "open/device.h"
#include "ops/kv/kv.h"

/* An option's value and where it was written, for messages: "--chunk" or "EVENKEEL_CHUNK". */
typedef struct given {
    const ek_option *o;
    const char *where, *value;
} given;

static void *field_of(ek_cli *cli, const ek_option *o)
{
    return (char *)cli + o->field;
}

static void bound_text(ek_buf *b, const ek_option *o, bool whole, double x)
{
    if (o->kind == OPT_INT && x >= 0x1p63) ek_buf_fmt(b, "%lld", (long long)INT64_MAX); /* which no double is */
    else if (whole) ek_buf_fmt(b, "%.0f", x);
    else ek_buf_fmt(b, "%g", x);
}

/* Around a value in a message, where it could not be seen without. */
static const char *quote_of(const char *value)
{
    return *value && !strpbrk(value, " \t\n") ? "" : "\"";
}

/* "--chunk 9: a whole number from 16 to 8192 is needed", of an item of a list too. */
static ek_err out_of_range(const given *g, const char *item, const char *what, const char *behind)
{
    ek_buf b = {0};
    bool whole = g->o->kind != OPT_NUM;
    const char *quote = quote_of(item);
    bound_text(&b, g->o, whole, g->o->min);
    ek_buf_str(&b, " to ");
    bound_text(&b, g->o, whole, g->o->max);
    ek_err err = ek_fail(EK_EINVAL, "%s %s%.60s%s: a %s from %s%s", g->where, quote, item, quote, what, ek_buf_text(&b),
                         behind);
    ek_buf_fini(&b);
    return err;
}

/* A whole number of [min, max] that ends at *end. */
static bool read_int(const char *s, const ek_option *o, int64_t *v, const char **end)
{
    char *stop;
    if (!(*s == '-' || (*s >= '0' && *s <= '9'))) return false;
    errno = 0;
    long long x = strtoll(s, &stop, 10);
    if (stop == s || errno || (double)x < o->min || (double)x > o->max) return false;
    *v = x;
    *end = stop;
    return true;
}

static ek_err set_int(ek_cli *cli, const given *g)
{
    const char *end;
    int64_t v;
    if (!read_int(g->value, g->o, &v, &end) || *end) return out_of_range(g, g->value, "whole number", " is needed");
    *(int64_t *)field_of(cli, g->o) = v;
    return EK_OK;
}

/* A decimal number that ends at *end, as strtod reads it less what else that takes: blanks before it, +, hexadecimal
 * digits, words. */
static bool read_real(const char *s, double *v, const char **end)
{
    char *stop;
    *v = strtod(s, &stop);
    *end = stop;
    return stop != s && *s != '+' && (size_t)(stop - s) <= strspn(s, "0123456789.eE+-");
}

static ek_err set_num(ek_cli *cli, const given *g)
{
    const char *end;
    double v;
    if (!read_real(g->value, &v, &end) || *end || !(v >= g->o->min && v <= g->o->max))
        return out_of_range(g, g->value, "number", " is needed");
    *(double *)field_of(cli, g->o) = v;
    return EK_OK;
}

static ek_err set_size(ek_cli *cli, const given *g)
{
    static const char units[] = "KMGT";
    const char *end;
    double v;
    bool ok = read_real(g->value, &v, &end);
    const char *unit = ok && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        v = ldexp(v, 10 * (int)(unit - units + 1));
        end++;
    }
    if (!ok || *end || !(v >= g->o->min && v <= g->o->max))
        return out_of_range(g, g->value, "size", " bytes is needed, as in 512M or 4G");
    *(double *)field_of(cli, g->o) = floor(v);
    return EK_OK;
}

static ek_err set_choice(ek_cli *cli, const given *g)
{
    size_t n = strlen(g->value);
    for (const char *p = g->o->placeholder; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && !memcmp(p, g->value, n)) {
            *(const char **)field_of(cli, g->o) = g->value;
            return EK_OK;
        }
        p += len + (p[len] == '|');
    }
    const char *quote = quote_of(g->value);
    return ek_fail(EK_EINVAL, "%s %s%.60s%s: one of %s is needed", g->where, quote, g->value, quote, g->o->placeholder);
}

static ek_err set_flag(ek_cli *cli, const given *g)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes"};
    for (int i = 0; i < 6; i++)
        if (!strcmp(g->value, words[i])) {
            *(bool *)field_of(cli, g->o) = i % 2;
            return EK_OK;
        }
    const char *quote = quote_of(g->value);
    return ek_fail(EK_EINVAL, "%s %s%.60s%s: one of 1, 0, true, false, yes, no is needed", g->where, quote, g->value,
                   quote);
}

static ek_err set_list(ek_cli *cli, const given *g)
{
    ek_list *list = field_of(cli, g->o);
    size_t room = 1;
    for (const char *p = g->value; *p; p++) room += *p == ',';
    free(list->v);
    list->v = ek_alloc(room * sizeof *list->v);
    list->n = 0;
    for (const char *p = g->value;;) {
        int64_t v;
        const char *end;
        if (!read_int(p, g->o, &v, &end) || (*end && *end != ','))
            return out_of_range(g, p, "whole number", " is needed");
        list->v[list->n++] = (int32_t)v;
        if (!*end) return EK_OK;
        p = end + 1;
    }
}

static ek_err set_files(ek_cli *cli, const given *g)
{
    ek_names *names = field_of(cli, g->o);
    if (!*g->value) return ek_fail(EK_EINVAL, "%s: an empty value", g->where);
    names->v = ek_realloc(names->v, (size_t)(names->n + 1) * sizeof *names->v);
    names->v[names->n++] = g->value;
    return EK_OK;
}

/* Where an empty text says something of its own: no origin at all. */
static bool may_be_empty(const ek_option *o)
{
    return !strcmp(o->name, "cors_origins");
}

/* Of texts whose grammar another layer owns. */
static ek_err parse_text(const given *g)
{
    ek_kv_format k, v;
    unsigned cpu;
    ek_device device;
    if (!strcmp(g->o->name, "kv")) return ek_kv_format_parse(g->value, &k, &v);
    if (!strcmp(g->o->name, "isa")) return ek_cpu_mask(g->value, &cpu);
    if (!strcmp(g->o->name, "device")) return ek_device_parse(&device, g->value);
    return EK_OK;
}

static ek_err set_str(ek_cli *cli, const given *g)
{
    if (!*g->value && !may_be_empty(g->o)) return ek_fail(EK_EINVAL, "%s: an empty value", g->where);
    if (parse_text(g)) return ek_fail_in(EK_EINVAL, "%s", g->where);
    *(const char **)field_of(cli, g->o) = g->value;
    return EK_OK;
}

static bool is_path(const char *s)
{
    return s[0] == '/' || !strncmp(s, "./", 2) || !strncmp(s, "../", 3);
}

static ek_err set_program(ek_cli *cli, const given *g)
{
    static const char *const words[] = {"off", "on", "0", "1", "false", "true", "no", "yes"};
    const char **to = field_of(cli, g->o), *quote = quote_of(g->value);
    if (is_path(g->value)) {
        *to = g->value;
        return EK_OK;
    }
    for (int i = 0; i < 8; i++)
        if (!strcmp(g->value, words[i])) {
            *to = i % 2 ? "on" : NULL;
            return EK_OK;
        }
    return ek_fail(EK_EINVAL, "%s %s%.60s%s: on, off, or a path that begins with / or . is needed", g->where, quote,
                   g->value, quote);
}

static ek_err set(ek_cli *cli, const given *g)
{
    static ek_err (*const by_kind[])(ek_cli *, const given *) = {
        [OPT_STR] = set_str,   [OPT_CHOICE] = set_choice, [OPT_INT] = set_int,
        [OPT_NUM] = set_num,   [OPT_SIZE] = set_size,     [OPT_FLAG] = set_flag,
        [OPT_LIST] = set_list, [OPT_FILES] = set_files,   [OPT_PROGRAM] = set_program,
    };
    EK_TRY(by_kind[g->o->kind](cli, g));
    *((bool *)((char *)cli + g->o->has)) = true;
    return EK_OK;
}

static ek_err set_defaults(ek_cli *cli, ek_env_fn *env)
{
    for (int i = 0; i < ek_n_options; i++) {
        const ek_option *o = &ek_options[i];
        if (o->def) {
            given g = {o, o->name, o->def};
            EK_TRY(set(cli, &g));
        }
        if (!env || !(o->commands >> cli->command & 1)) continue;
        ek_buf name = {0};
        ek_option_env(&name, o);
        given g = {o, ek_buf_text(&name), env(ek_buf_text(&name))};
        ek_err err = g.value && (*g.value || may_be_empty(o)) ? set(cli, &g) : EK_OK;
        ek_buf_fini(&name);
        EK_TRY(err);
    }
    return EK_OK;
}

/* The row for "--max-tokens" or "--max-tokens=3": the command's, else another one's. NULL if there is none. */
static const ek_option *find(const char *arg, ek_cmd_id command)
{
    const ek_option *other = NULL;
    size_t n = strcspn(arg, "=");
    for (int i = 0; i < ek_n_options; i++) {
        ek_buf flag = {0};
        ek_option_flag(&flag, &ek_options[i]);
        bool same = flag.len == n && !memcmp(flag.data, arg, n);
        ek_buf_fini(&flag);
        if (same && ek_options[i].commands >> command & 1) return &ek_options[i];
        if (same) other = &ek_options[i];
    }
    return other;
}

ek_err ek_cli_set(ek_cli *cli, const char *name, const char *value)
{
    for (int i = 0; i < ek_n_options; i++) {
        const ek_option *o = &ek_options[i];
        ek_buf flag = {0};
        ek_option_flag(&flag, o);
        bool same = !strcmp(name, o->name) || !strcmp(name, ek_buf_text(&flag) + 2);
        ek_buf_fini(&flag);
        if (!same || !(o->commands >> cli->command & 1)) continue;
        given g = {o, o->name, value ? value : o->def};
        if (g.value) EK_TRY(set(cli, &g));
        *((bool *)((char *)cli + o->has)) = value != NULL;
        return EK_OK;
    }
    return ek_fail(EK_ENOTFOUND, "%.80s is no option of %s", name, ek_cmd_name(cli->command));
}

/* "…; did you mean --port?", or which commands have it, or nothing that helps. */
static ek_err no_option(const ek_cli *cli, const ek_option *elsewhere, const char *arg, int n)
{
    const char *command = ek_cmd_name(cli->command);
    ek_buf more = {0};
    if (elsewhere) {
        ek_buf_str(&more, ", but of ");
        for (int c = 0, any = 0; c < EK_CMD_COUNT; c++)
            if (elsewhere->commands >> c & 1) ek_buf_fmt(&more, "%s%s", any++ ? ", " : "", ek_cmd_name((ek_cmd_id)c));
        ek_buf_str(&more, "; see");
    } else {
        const ek_option *near = ek_cli_guess_option(arg, (size_t)n, cli->command);
        if (near) {
            ek_buf_str(&more, "; did you mean ");
            ek_option_flag(&more, near);
            ek_buf_str(&more, "? See");
        }
    }
    ek_err err = ek_fail(EK_EINVAL, "%.*s is not an option of this command%s `evenkeel %s --help-all`", n < 60 ? n : 60,
                         arg, more.len ? ek_buf_text(&more) : "; see", command);
    ek_buf_fini(&more);
    return err;
}

/* One option at argv[*i]; moves *i over its value. */
static ek_err parse_option(ek_cli *cli, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    int n = (int)strcspn(arg, "=");
    bool prompt = false;
    const ek_option *o = n == 2 && arg[1] != '-' ? ek_option_by_letter(arg[1], cli->command, &prompt)
                                                 : find(arg, cli->command);
    if (!prompt && (!o || !(o->commands >> cli->command & 1))) return no_option(cli, o, arg, n);
    ek_buf where = {0};
    if (prompt) ek_buf_str(&where, "-p");
    else ek_option_flag(&where, o);
    given g = {o, ek_buf_text(&where), NULL};
    ek_err err = EK_OK;
    if (arg[n] == '=') g.value = arg + n + 1;
    else if (o && o->kind == OPT_FLAG) g.value = "1";
    else if (o && o->kind == OPT_PROGRAM && !(*i + 1 < argc && is_path(argv[*i + 1]))) g.value = "on";
    else if (*i + 1 < argc) g.value = argv[++*i];
    else err = ek_fail(EK_EINVAL, "%s needs a value: %s", g.where, prompt ? "PROMPT" : o->placeholder);
    if (!err && prompt) cli->text = g.value;
    else if (!err) err = set(cli, &g);
    ek_buf_fini(&where);
    return err;
}

static ek_err parse_command(ek_cli *cli, const char *name)
{
    for (int c = 0; c < EK_CMD_COUNT; c++)
        if (!strcmp(name, ek_commands[c].name)) {
            cli->command = (ek_cmd_id)c;
            return EK_OK;
        }
    const char *near = ek_cli_guess_command(name);
    if (near) return ek_fail(EK_EINVAL, "%.60s is not a command; did you mean %s? See `evenkeel --help`", name, near);
    return ek_fail(EK_EINVAL, "%.60s is not a command; see `evenkeel --help`", name);
}

/* run's arguments: a model and a prompt; one alone is a model where it is a short name, and beside -p. */
static ek_err settle_run(ek_cli *cli, int n_args)
{
    const char *model = n_args == 2                                                                    ? cli->arg_before
                        : n_args == 1 && !cli->has.model && (cli->text || ek_hub_short_find(cli->arg)) ? cli->arg
                                                                                                       : NULL;
    const char *prompt = n_args == 2 || (n_args == 1 && !model) ? cli->arg : NULL;
    if ((model && cli->has.model && n_args == 2) || (prompt && cli->text))
        return ek_fail(EK_EINVAL, "%.60s is one argument too many; usage: evenkeel run [OPTIONS] %s", cli->arg,
                       ek_commands[EK_CMD_run].args);
    if (model && !*model) return ek_fail(EK_EINVAL, "MODEL: an empty value");
    if (model) cli->model = model, cli->has.model = true;
    cli->arg = cli->text ? cli->text : prompt;
    cli->arg_before = NULL;
    return EK_OK;
}

/* They are a part of what says where the model runs. */
static ek_err settle_features(ek_cli *cli)
{
    ek_device device;
    const int n = snprintf(cli->device_text, sizeof cli->device_text, "%s@%s", cli->device, cli->features);
    if (n >= (int)sizeof cli->device_text)
        return ek_fail(EK_EINVAL, "--features: %.40s... is no architecture", cli->features);
    if (ek_device_parse(&device, cli->device_text)) return ek_fail_in(EK_EINVAL, "--features");
    cli->device = cli->device_text;
    return EK_OK;
}

/* --help, -h and --help-all, anywhere before "--". */
static bool asks_for_help(ek_cli *cli, int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
        cli->help_all = cli->help_all || !strcmp(argv[i], "--help-all");
        cli->help = cli->help || cli->help_all || !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
    }
    return cli->help;
}

ek_err ek_cli_parse(ek_cli *cli, int argc, char **argv, ek_env_fn *env)
{
    *cli = (ek_cli){.command = EK_CMD_help};
    if (argc < 2) return ek_fail(EK_EINVAL, "a command is needed; see `evenkeel --help`");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "--help-all")) return EK_OK;
    EK_TRY(parse_command(cli, !strcmp(argv[1], "--version") ? "version" : argv[1]));
    if (asks_for_help(cli, argc, argv)) return EK_OK;
    EK_TRY(set_defaults(cli, env));

    const ek_command *cmd = &ek_commands[cli->command];
    int n_args = 0;
    bool only_args = false;
    for (int i = 2; i < argc; i++) {
        if (!only_args && !strcmp(argv[i], "--")) {
            only_args = true;
        } else if (!only_args && argv[i][0] == '-' && argv[i][1]) {
            EK_TRY(parse_option(cli, argc, argv, &i));
        } else {
            if (n_args++ == cmd->max_args)
                return ek_fail(EK_EINVAL, "%.60s is one argument too many; usage: evenkeel %s [OPTIONS] %s", argv[i],
                               cmd->name, cmd->args);
            cli->arg_before = cli->arg;
            cli->arg = argv[i];
        }
    }
    if (n_args < cmd->min_args)
        return ek_fail(EK_EINVAL, "%s is missing; usage: evenkeel %s [OPTIONS] %s", cmd->args, cmd->name, cmd->args);
    if (cli->command == EK_CMD_run) EK_TRY(settle_run(cli, n_args));
    if (cli->has.features) EK_TRY(settle_features(cli));
    return ek_cli_check(cli);
}

void ek_cli_fini(ek_cli *cli)
{
    for (int i = 0; i < ek_n_options; i++) {
        if (ek_options[i].kind == OPT_FILES) {
            ek_names *names = field_of(cli, &ek_options[i]);
            free(names->v);
            *names = (ek_names){0};
        }
        if (ek_options[i].kind == OPT_LIST) {
            ek_list *list = field_of(cli, &ek_options[i]);
            free(list->v);
            *list = (ek_list){0};
        }
    }
}
