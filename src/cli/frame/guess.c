#include "cli/frame/table.h"

#include <string.h>

#include "base/near.h"

const char *ek_cli_guess_command(const char *typed)
{
    const char *best = NULL;
    int least_far = EK_NOT_NEAR;
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        int far = ek_near(typed, strlen(typed), ek_commands[c].name);
        if (far < least_far) least_far = far, best = ek_commands[c].name;
    }
    return best;
}

const ek_option *ek_cli_guess_option(const char *typed, size_t n, ek_cmd_id id)
{
    const ek_option *best = NULL;
    int least_far = EK_NOT_NEAR;
    while (n && *typed == '-') typed++, n--;
    for (int i = 0; i < ek_n_options; i++) {
        if (!(ek_options[i].commands >> id & 1)) continue;
        ek_buf flag = {0};
        ek_option_flag(&flag, &ek_options[i]);
        int far = ek_near(typed, n, ek_buf_text(&flag) + 2);
        if (far < least_far) least_far = far, best = &ek_options[i];
        ek_buf_fini(&flag);
    }
    return best;
}
