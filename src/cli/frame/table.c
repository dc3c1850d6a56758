#include "cli/frame/table.h"

#include <ctype.h>
#include <string.h>

const ek_option ek_options[] = {
#define OPT(kind, name, ph, def, min, max, cmds, effect, text) \
    {OPT_##kind,                                               \
     #name,                                                    \
     ph,                                                       \
     def,                                                      \
     min,                                                      \
     max,                                                      \
     cmds,                                                     \
     EFFECT_##effect,                                          \
     text,                                                     \
     offsetof(ek_cli, name),                                   \
     offsetof(ek_cli, has.name)},
#include "cli/frame/options.def"
#undef OPT
};
const int ek_n_options = sizeof ek_options / sizeof *ek_options;

/* Numbers options and the borders of groups in one row. GROUP takes no number. */
enum {
#define OPT(kind, name, ph, def, min, max, cmds, effect, text) AT_##name,
#define GROUP(name, text)                                      FROM_##name, BEFORE_##name = FROM_##name - 1,
#include "cli/frame/options.def"
#undef OPT
    AT_END
};

const ek_option_group ek_option_groups[] = {
#define OPT(kind, name, ph, def, min, max, cmds, effect, text)
#define GROUP(name, text) {text, FROM_##name},
#include "cli/frame/options.def"
#undef OPT
};
const int ek_n_option_groups = sizeof ek_option_groups / sizeof *ek_option_groups;

const ek_gone_option ek_gone_options[] = {
#define OPT(kind, name, ph, def, min, max, cmds, effect, text)
#define GONE(name, cmds, instead)      {#name, cmds, instead, false},
#define GONE_FLAG(name, cmds, instead) {#name, cmds, instead, true},
#include "cli/frame/options.def"
#undef OPT
};
const int ek_n_gone_options = sizeof ek_gone_options / sizeof *ek_gone_options;

const ek_command ek_commands[EK_CMD_COUNT] = {
#define CMD(name, args, min_args, max_args, text) {#name, args, min_args, max_args, text},
#include "cli/frame/commands.def"
#undef CMD
};

typedef struct said {
    ek_cmd_id command;
    const char *text;
} said;

static const char *find(const said *v, size_t n, ek_cmd_id id)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].command == id) return v[i].text;
    return NULL;
}

const char *ek_command_common(ek_cmd_id id)
{
    static const said v[] = {
#define COMMON(command, options) {EK_CMD_##command, options},
#define LETTER(letter, option)
#define MORE(command, text)
#include "cli/frame/common.def"
    };
    return find(v, sizeof v / sizeof *v, id);
}

const char *ek_command_more(ek_cmd_id id)
{
    static const said v[] = {
#define COMMON(command, options)
#define LETTER(letter, option)
#define MORE(command, text) {EK_CMD_##command, text},
#include "cli/frame/common.def"
    };
    return find(v, sizeof v / sizeof *v, id);
}

static const struct {
    char letter;
    const char *option;
} letters[] = {
#define COMMON(command, options)
#define LETTER(letter, option) {letter, option},
#define MORE(command, text)
#include "cli/frame/common.def"
};

char ek_option_letter(const ek_option *o)
{
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (!strcmp(letters[i].option, o->name)) return letters[i].letter;
    return 0;
}

const ek_option *ek_option_by_letter(char letter, ek_cmd_id id, bool *is_argument)
{
    *is_argument = false;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        if (letters[i].letter != letter) continue;
        if (!*letters[i].option && id == EK_CMD_run) {
            *is_argument = true;
            return NULL;
        }
        for (int k = 0; k < ek_n_options; k++)
            if (!strcmp(letters[i].option, ek_options[k].name) && ek_options[k].commands >> id & 1)
                return &ek_options[k];
    }
    return NULL;
}

const char *ek_cmd_name(ek_cmd_id id)
{
    return ek_commands[id].name;
}

static void spelled(ek_buf *out, const char *name, bool env)
{
    /* Two commands may have options of the same name. "__" and the text after it distinguish their fields and
     * variables. */
    for (; *name && (env || strncmp(name, "__", 2)); name++) {
        if (env) ek_buf_char(out, (char)toupper((unsigned char)*name));
        else ek_buf_char(out, *name == '_' ? '-' : *name);
    }
}

void ek_name_flag(ek_buf *out, const char *name)
{
    ek_buf_str(out, "--");
    spelled(out, name, false);
}

void ek_name_env(ek_buf *out, const char *name)
{
    ek_buf_str(out, "EVENKEEL_");
    spelled(out, name, true);
}
