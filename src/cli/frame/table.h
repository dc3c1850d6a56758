/* The rows of options.def and commands.def as data. Inside src/cli. */
#ifndef EK_CLI_TABLE_H
#define EK_CLI_TABLE_H

#include "cli/frame/cli.h"

typedef enum { OPT_STR, OPT_CHOICE, OPT_INT, OPT_NUM, OPT_SIZE, OPT_FLAG, OPT_LIST } ek_opt_kind;
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

typedef struct ek_command {
    const char *name, *args;
    int min_args, max_args; /* arguments that are not options */
    const char *text;
} ek_command;

extern const ek_option ek_options[];
extern const int ek_n_options;
extern const ek_command ek_commands[EK_CMD_COUNT];

void ek_option_flag(ek_buf *out, const ek_option *o); /* "--max-tokens" */
void ek_option_env(ek_buf *out, const ek_option *o);  /* "EVENKEEL_MAX_TOKENS" */

#endif
