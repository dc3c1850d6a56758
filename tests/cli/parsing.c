#include "parsing.h"

#include <string.h>

char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

ek_err parse_env(ek_cli *cli, ek_env_fn *env, const char *line)
{
    static char text[512];
    static char *argv[32];
    int argc = 0;
    strncpy(text, line, sizeof text - 1);
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    argv[argc] = NULL;
    return ek_cli_parse(cli, argc, argv, env);
}

ek_err parse_value(ek_cli *cli, const char *command, const char *option, const char *value)
{
    char *argv[] = {"evenkeel", (char *)(uintptr_t)command, (char *)(uintptr_t)option, (char *)(uintptr_t)value, NULL};
    return ek_cli_parse(cli, 4, argv, no_env);
}

ek_err parse(ek_cli *cli, const char *line)
{
    return parse_env(cli, no_env, line);
}
