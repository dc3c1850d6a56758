/* The rows of options.def and commands.def as data, the values of options, and guesses at mistyped words. Inside
 * src/cli. */
#ifndef EK_CLI_TABLE_H
#define EK_CLI_TABLE_H

#include "cli/frame/cli.h"

typedef enum {
    OPT_STR,
    OPT_CHOICE,
    OPT_INT,
    OPT_NUM,
    OPT_SIZE,
    OPT_FLAG,
    OPT_LIST,
    OPT_FILES,
    OPT_PROGRAM,
    OPT_LEVEL
} ek_opt_kind;
typedef enum { EFFECT_ANSWER, EFFECT_SPEED, EFFECT_OTHER } ek_opt_effect;

typedef struct ek_option {
    ek_opt_kind kind;
    const char *name;        /* with underscores */
    const char *placeholder; /* CHOICE: the values, separated by | */
    const char *def;         /* NULL: none */
    double min, max;
    unsigned commands; /* bit 1 << ek_cmd_id */
    ek_opt_effect effect;
    const char *text;
    size_t field, has; /* offsets in ek_cli */
} ek_option;

/* Options that belong together in options.def: from index `first` to the next group's. */
typedef struct ek_option_group {
    const char *text;
    int first;
} ek_option_group;

/* An option of an earlier version. */
typedef struct ek_gone_option {
    const char *name; /* with underscores */
    unsigned commands;
    const char *instead;
    bool has_variable; /* its environment variable still works */
} ek_gone_option;

typedef struct ek_command {
    const char *name, *args;
    int min_args, max_args; /* arguments that are not options */
    const char *text;
} ek_command;

extern const ek_option ek_options[];
extern const int ek_n_options;
extern const ek_option_group ek_option_groups[];
extern const int ek_n_option_groups;
extern const ek_gone_option ek_gone_options[];
extern const int ek_n_gone_options;
extern const ek_command ek_commands[EK_CMD_COUNT];

/* From common.def, per command: the options at the beginning of its help, separated by spaces, NULL: all; and lines
 * below the usage, NULL: none. */
const char *ek_command_common(ek_cmd_id id);
const char *ek_command_more(ek_cmd_id id);
/* The letter of an option; 0: none. */
char ek_option_letter(const ek_option *o);
/* The option of a letter in a command; NULL: none. *is_argument: the letter is for run's argument; NULL then. */
const ek_option *ek_option_by_letter(char letter, ek_cmd_id id, bool *is_argument);

/* "max_tokens" as "--max-tokens" and "EVENKEEL_MAX_TOKENS". */
void ek_name_flag(ek_buf *out, const char *name);
void ek_name_env(ek_buf *out, const char *name);
/* The text of an option as it applies to one command, or (EK_CMD_COUNT) the texts for all commands, each followed by
 * its commands. */
void ek_option_text(ek_buf *out, const ek_option *o, ek_cmd_id id);

/* --- values --- */

/* An option's value and its place, for messages: "--chunk" or "EVENKEEL_CHUNK". */
typedef struct ek_given {
    const ek_option *o;
    const char *where, *value;
} ek_given;

/* Reads the value by the kind and bounds of options.def. EINVAL names the place, the value and the expected form. Texts
 * are kept as pointers; FILES are appended, a LIST replaces the previous one. */
ek_err ek_option_set(ek_cli *cli, const ek_given *g);
void ek_option_clear(ek_cli *cli, const ek_option *o); /* frees what ek_option_set allocated */

/* Whether an empty text is a value of its own: no origin at all. */
bool ek_option_may_be_empty(const ek_option *o);

/* Whether PROGRAM takes text as a path, not as a word or the next argument. */
bool ek_option_is_path(const char *text);

/* --- the end of parsing --- */

/* Applies rules between options, after the last one; n_args: number of given arguments. Opens nothing. EINVAL for
 * options that exclude each other. */
ek_err ek_cli_settle(ek_cli *cli, int n_args, ek_env_fn *env);

/* --- guesses --- */

/* Other programs' names of an option ("-ngl"), a command ("ls") or a chat line ("/set verbose"), from foreign.def:
 * appends "-ngl is llama.cpp's option; here: …". False if no program has it. */
typedef enum { EK_FOREIGN_OPTION, EK_FOREIGN_COMMAND, EK_FOREIGN_LINE } ek_foreign_kind;
bool ek_cli_foreign(ek_buf *out, ek_foreign_kind kind, const char *typed, size_t n);

/* The nearest one, if it is near (base/near.h), or NULL. */
const char *ek_cli_guess_command(const char *typed);
const ek_option *ek_cli_guess_option(const char *typed, size_t n, ek_cmd_id id); /* typed: "--prot" or "-prot" */

#endif
