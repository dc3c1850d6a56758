/* The command line: a table of commands, a table of options, and the parsed call, which every command gets. A command
 * is `int ek_cmd_NAME(const ek_cli *)` in a folder of src/cli. It returns the exit status: 0; 1 for a failure
 * (ek_cli_failed); 2 for a wrong call (ek_cli_wrong). */
#ifndef EK_CLI_CLI_H
#define EK_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef enum ek_cmd_id {
#define CMD(name, args, min_args, max_args, text) EK_CMD_##name,
#include "cli/frame/commands.def"
#undef CMD
    EK_CMD_COUNT
} ek_cmd_id;

typedef struct ek_list {
    int32_t *v; /* owned by the ek_cli */
    int n;
} ek_list;

typedef struct ek_names {
    const char **v; /* the list is owned by the ek_cli, the texts are not */
    int n;
} ek_names;

/* Field types by kind of option. */
#define EK_OPT_T_STR     const char *
#define EK_OPT_T_CHOICE  const char *
#define EK_OPT_T_INT     int64_t
#define EK_OPT_T_NUM     double
#define EK_OPT_T_SIZE    double
#define EK_OPT_T_FLAG    bool
#define EK_OPT_T_LIST    ek_list
#define EK_OPT_T_FILES   ek_names
#define EK_OPT_T_LEVEL   const char * /* "on", or a word of the placeholder; NULL: off */
#define EK_OPT_T_PROGRAM const char * /* a path that begins with / or .; "on": the usual place; NULL: off */

/* A parsed call. Options of other commands keep their defaults. */
typedef struct ek_cli {
    ek_cmd_id command;
    bool help;              /* --help was given; nothing else was checked */
    bool help_all;          /* --help-all was given: the same, with every option */
    const char *arg;        /* the last argument that is not an option; NULL if absent */
    const char *arg_before; /* the one before it; NULL if there is one or none */
    ek_names args;          /* all arguments, in order */
    const char *text;       /* run: -p TEXT; NULL: none */
    char device_text[128];  /* text of `device` with EVENKEEL_FEATURES */
#define OPT(kind, name, ph, def, min, max, cmds, effect, text) EK_OPT_T_##kind name;
#include "cli/frame/options.def"
#undef OPT
    struct { /* whether an option was given on the command line or in the environment */
#define OPT(kind, name, ph, def, min, max, cmds, effect, text) bool name;
#include "cli/frame/options.def"
#undef OPT
    } has;
} ek_cli;

/* Parses argv (argv[0] is the program's name). env looks up EVENKEEL_NAME like getenv; it may be NULL. EINVAL with a
 * sentence that names the fault and the expected form. Strings point into argv or the environment. Call ek_cli_fini in
 * any case. */
typedef char *ek_env_fn(const char *name);
ek_err ek_cli_parse(ek_cli *cli, int argc, char **argv, ek_env_fn *env);
void ek_cli_fini(ek_cli *cli);

/* Appends a line, with a guess, for each variable of the environment ("NAME=VALUE", ends with NULL) that has the prefix
 * of options' variables but belongs to no option. */
void ek_cli_check_variables(ek_buf *out, char *const *environ);

/* Sets one option of cli's command from a text, like the command line; name with dashes or underscores. value NULL: as
 * if it had not been given. EINVAL names the option. Not for lists and files. */
ek_err ek_cli_set(ek_cli *cli, const char *name, const char *value);

/* ETOOLONG for a --ctx beyond the model's context, max. */
ek_err ek_cli_check_ctx(const ek_cli *cli, int max);

const char *ek_cmd_name(ek_cmd_id id);
void ek_cli_help(ek_buf *out, ek_cmd_id id, bool all);  /* help of a command; all: with every option */
void ek_cli_usage(ek_buf *out);                         /* help of the program */
void ek_cli_markdown(ek_buf *out);                      /* docs/OPTIONS.md */
void ek_cli_manual(ek_buf *out, ek_cmd_id id);          /* a man page; EK_CMD_COUNT: the program's */
void ek_cli_completion(ek_buf *out, const char *shell); /* "bash", "zsh" or "fish" */

/* Print one line on standard error, "evenkeel CMD: …", and return the exit status. failed prints ek_err_text() and
 * returns 1. wrong returns 2. refused prints ek_err_text() and returns 2 for ETOOLONG (options that ask for more than
 * the model's context), else 1. */
int ek_cli_failed(const ek_cli *cli);
int ek_cli_refused(const ek_cli *cli, ek_err err);
__attribute__((format(printf, 2, 3))) int ek_cli_wrong(const ek_cli *cli, const char *fmt, ...);

/* The exit status of a command that returned status: 141, without a message, if the reader closed standard output; 1
 * instead of 0 if output could not be written, which is reported unless the command reported a failure. */
int ek_cli_end(const ek_cli *cli, int status);

#define CMD(name, args, min_args, max_args, text) int ek_cmd_##name(const ek_cli *cli);
#include "cli/frame/commands.def"
#undef CMD

#endif
