/* The rows of options.def and commands.def as data. Inside src/cli. */
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

/* Options that belong together, as options.def has them: from the index first up to the next group's. */
typedef struct ek_option_group {
    const char *text;
    int first;
} ek_option_group;

/* An option of earlier versions. */
typedef struct ek_gone_option {
    const char *name; /* with underscores */
    unsigned commands;
    const char *instead;
    bool has_variable; /* which stays */
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

/* Of a command, from common.def: the options that help begins with, with spaces between, NULL for all; lines below the
 * usage, NULL without. */
const char *ek_command_common(ek_cmd_id id);
const char *ek_command_more(ek_cmd_id id);
/* The letter of an option, 0 without. */
char ek_option_letter(const ek_option *o);
/* What a letter stands for in a command: NULL for nothing. *is_argument: for the argument of run; NULL then. */
const ek_option *ek_option_by_letter(char letter, ek_cmd_id id, bool *is_argument);

/* "max_tokens" as "--max-tokens" and "EVENKEEL_MAX_TOKENS". */
void ek_name_flag(ek_buf *out, const char *name);
void ek_name_env(ek_buf *out, const char *name);
void ek_option_flag(ek_buf *out, const ek_option *o); /* "--max-tokens" */
void ek_option_env(ek_buf *out, const ek_option *o);  /* "EVENKEEL_MAX_TOKENS" */

#endif
