/* argv and environment to an ek_cli, driven by the options table. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/frame/table.h"

static const char ENV_PREFIX[] = "EVENKEEL_";

static bool is_option(const char *name)
{
    for (int i = 0; i < ek_n_options; i++)
        if (!strcmp(ek_options[i].name, name) && ek_options[i].commands) return true;
    return false;
}

/* Refuses variables of removed options, because they would have no effect. Names that other commands still have are
 * skipped. */
static ek_err refuse_gone(const ek_cli *cli, ek_env_fn *env)
{
    ek_err err = EK_OK;
    for (int i = 0; i < ek_n_gone_options && !err; i++) {
        const ek_gone_option *g = &ek_gone_options[i];
        if (!(g->commands >> cli->command & 1) || g->has_variable || is_option(g->name)) continue;
        ek_buf name = {0};
        ek_name_env(&name, g->name);
        const char *value = env(ek_buf_text(&name));
        if (value && *value) err = ek_fail(EK_EINVAL, "%s is gone: %s", ek_buf_text(&name), g->instead);
        ek_buf_fini(&name);
    }
    return err;
}

static ek_err set_defaults(ek_cli *cli, ek_env_fn *env)
{
    if (env) EK_TRY(refuse_gone(cli, env));
    for (int i = 0; i < ek_n_options; i++) {
        const ek_option *o = &ek_options[i];
        if (o->def) {
            ek_given g = {o, o->name, o->def};
            EK_TRY(ek_option_set(cli, &g));
        }
        if (!env || !(o->commands >> cli->command & 1)) continue;
        ek_buf name = {0};
        ek_name_env(&name, o->name);
        ek_given g = {o, ek_buf_text(&name), env(ek_buf_text(&name))};
        ek_err err = g.value && (*g.value || ek_option_may_be_empty(o)) ? ek_option_set(cli, &g) : EK_OK;
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
        ek_name_flag(&flag, ek_options[i].name);
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
        ek_name_flag(&flag, o->name);
        bool same = !strcmp(name, o->name) || !strcmp(name, ek_buf_text(&flag) + 2);
        ek_buf_fini(&flag);
        if (!same || !(o->commands >> cli->command & 1)) continue;
        ek_given g = {o, o->name, value ? value : o->def};
        if (g.value) EK_TRY(ek_option_set(cli, &g));
        *((bool *)((char *)cli + o->has)) = value != NULL;
        return EK_OK;
    }
    return ek_fail(EK_ENOTFOUND, "%.80s is no option of %s", name, ek_cmd_name(cli->command));
}

static const ek_gone_option *find_gone(const char *arg, size_t n, ek_cmd_id command)
{
    const ek_gone_option *found = NULL;
    for (int i = 0; i < ek_n_gone_options && !found; i++) {
        const ek_gone_option *g = &ek_gone_options[i];
        ek_buf flag = {0};
        ek_name_flag(&flag, g->name);
        if (g->commands >> command & 1 && flag.len == n && !memcmp(flag.data, arg, n)) found = g;
        ek_buf_fini(&flag);
    }
    return found;
}

/* "…; did you mean --port?", or the commands that have the option, or no help. */
static ek_err no_option(const ek_cli *cli, const ek_option *elsewhere, const char *arg, int n)
{
    const char *command = ek_cmd_name(cli->command);
    ek_buf more = {0};
    const ek_gone_option *gone = find_gone(arg, (size_t)n, cli->command);
    if (gone) return ek_fail(EK_EINVAL, "%.*s is gone: %s", n, arg, gone->instead);
    if (!elsewhere && ek_cli_foreign(&more, EK_FOREIGN_OPTION, arg, (size_t)n)) {
        const ek_err foreign = ek_fail(EK_EINVAL, "%s", ek_buf_text(&more));
        ek_buf_fini(&more);
        return foreign;
    }
    if (elsewhere) {
        ek_buf_str(&more, ", but of ");
        for (int c = 0, any = 0; c < EK_CMD_COUNT; c++)
            if (elsewhere->commands >> c & 1) ek_buf_fmt(&more, "%s%s", any++ ? ", " : "", ek_cmd_name((ek_cmd_id)c));
        ek_buf_str(&more, "; see");
    } else {
        const ek_option *near = ek_cli_guess_option(arg, (size_t)n, cli->command);
        if (near) {
            ek_buf_str(&more, "; did you mean ");
            ek_name_flag(&more, near->name);
            ek_buf_str(&more, "? See");
        }
    }
    ek_err err = ek_fail(EK_EINVAL, "%.*s is not an option of this command%s `evenkeel %s --help-all`", n < 60 ? n : 60,
                         arg, more.len ? ek_buf_text(&more) : "; see", command);
    ek_buf_fini(&more);
    return err;
}

/* Reads one option at argv[*i] and moves *i over its value. */
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
    else ek_name_flag(&where, o->name);
    ek_given g = {o, ek_buf_text(&where), NULL};
    ek_err err = EK_OK;
    if (arg[n] == '=') g.value = arg + n + 1;
    else if (o && (o->kind == OPT_FLAG || o->kind == OPT_LEVEL)) g.value = "1";
    else if (o && o->kind == OPT_PROGRAM && !(*i + 1 < argc && ek_option_is_path(argv[*i + 1]))) g.value = "on";
    else if (*i + 1 < argc) g.value = argv[++*i];
    else err = ek_fail(EK_EINVAL, "%s needs a value: %s", g.where, prompt ? "PROMPT" : o->placeholder);
    if (!err && prompt) cli->text = g.value;
    else if (!err) err = ek_option_set(cli, &g);
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
    ek_buf foreign = {0};
    if (ek_cli_foreign(&foreign, EK_FOREIGN_COMMAND, name, strlen(name))) {
        const ek_err err = ek_fail(EK_EINVAL, "%s", ek_buf_text(&foreign));
        ek_buf_fini(&foreign);
        return err;
    }
    const char *near = ek_cli_guess_command(name);
    if (near) return ek_fail(EK_EINVAL, "%.60s is not a command; did you mean %s? See `evenkeel --help`", name, near);
    return ek_fail(EK_EINVAL, "%.60s is not a command; see `evenkeel --help`", name);
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

/* Names of environment variables that no option has: for tests, for tools, and for clients' keys. */
static bool is_other_variable(const char *name)
{
    static const char *const others[] = {"FEATURES", "KEY", "BENCH_KEY"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i])) return true;
    for (int i = 0; i < ek_n_options; i++) {
        ek_buf known = {0};
        ek_name_env(&known, ek_options[i].name);
        const bool same = ek_options[i].commands && !strcmp(ek_buf_text(&known) + sizeof ENV_PREFIX - 1, name);
        ek_buf_fini(&known);
        if (same) return true;
    }
    for (int i = 0; i < ek_n_gone_options; i++) {
        ek_buf known = {0};
        ek_name_env(&known, ek_gone_options[i].name);
        const bool same = !strcmp(ek_buf_text(&known) + sizeof ENV_PREFIX - 1, name);
        ek_buf_fini(&known);
        if (same) return true;
    }
    return false;
}

void ek_cli_check_variables(ek_buf *out, char *const *environ)
{
    for (; environ && *environ; environ++) {
        const size_t n = strcspn(*environ, "=");
        char name[64], flag[64];
        if (strncmp(*environ, ENV_PREFIX, sizeof ENV_PREFIX - 1) != 0 || n >= sizeof name) continue;
        memcpy(name, *environ, n);
        name[n] = '\0';
        if (is_other_variable(name + sizeof ENV_PREFIX - 1)) continue;
        size_t m = 0;
        for (const char *c = name + sizeof ENV_PREFIX - 1; *c; c++)
            flag[m++] = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
        const ek_option *near = NULL;
        for (int c = 0; c < EK_CMD_COUNT && !near; c++) near = ek_cli_guess_option(flag, m, (ek_cmd_id)c);
        ek_buf_fmt(out, "evenkeel: %s is no option's variable", name);
        if (near) ek_buf_str(out, "; did you mean "), ek_name_env(out, near->name), ek_buf_char(out, '?');
        ek_buf_str(out, near ? "\n" : "; `evenkeel COMMAND --help-all` lists the options\n");
    }
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
            cli->args.v = ek_realloc(cli->args.v, (size_t)n_args * sizeof *cli->args.v);
            cli->args.v[cli->args.n++] = argv[i];
            cli->arg_before = cli->arg;
            cli->arg = argv[i];
        }
    }
    if (n_args < cmd->min_args)
        return ek_fail(EK_EINVAL, "%s is missing; usage: evenkeel %s [OPTIONS] %s", cmd->args, cmd->name, cmd->args);
    return ek_cli_settle(cli, n_args, env);
}

void ek_cli_fini(ek_cli *cli)
{
    for (int i = 0; i < ek_n_options; i++) ek_option_clear(cli, &ek_options[i]);
    free(cli->args.v);
    cli->args = (ek_names){0};
}
