#include "cli/frame/table.h"

#include <ctype.h>

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

const ek_command ek_commands[EK_CMD_COUNT] = {
#define CMD(name, args, min_args, max_args, text) {#name, args, min_args, max_args, text},
#include "cli/frame/commands.def"
#undef CMD
};

const char *ek_cmd_name(ek_cmd_id id)
{
    return ek_commands[id].name;
}

static void spelled(ek_buf *out, const char *name, bool env)
{
    for (; *name; name++) {
        if (env) ek_buf_char(out, (char)toupper((unsigned char)*name));
        else ek_buf_char(out, *name == '_' ? '-' : *name);
    }
}

void ek_option_flag(ek_buf *out, const ek_option *o)
{
    ek_buf_str(out, "--");
    spelled(out, o->name, false);
}

void ek_option_env(ek_buf *out, const ek_option *o)
{
    ek_buf_str(out, "EVENKEEL_");
    spelled(out, o->name, true);
}
