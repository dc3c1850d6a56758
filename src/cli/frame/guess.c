#include "cli/frame/table.h"

#include <string.h>

enum { LONGEST = 32 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

int ek_cli_distance(const char *a, size_t na, const char *b, size_t nb)
{
    int d[LONGEST + 1][LONGEST + 1];
    int n = na < LONGEST ? (int)na : LONGEST, m = nb < LONGEST ? (int)nb : LONGEST;
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int k = 0; k <= m; k++) d[0][k] = k;
    for (int i = 1; i <= n; i++)
        for (int k = 1; k <= m; k++) {
            int best = least(d[i - 1][k], d[i][k - 1]) + 1;
            best = least(best, d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) best = least(best, d[i - 2][k - 2] + 1);
            d[i][k] = best;
        }
    return d[n][m];
}

/* How far typed is from name; a large number where it is not near. */
static int how_far(const char *typed, size_t n, const char *name)
{
    size_t len = strlen(name);
    if (n >= 3 && n < len && !strncmp(typed, name, n)) return 1;
    if (len >= 3 && len < n && !strncmp(typed, name, len)) return 2;
    int steps = ek_cli_distance(typed, n, name, len);
    return steps * 3 <= (int)len || (steps == 1 && len == 2) ? steps : LONGEST;
}

const char *ek_cli_guess_command(const char *typed)
{
    const char *best = NULL;
    int least_far = LONGEST;
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        int far = how_far(typed, strlen(typed), ek_commands[c].name);
        if (far < least_far) least_far = far, best = ek_commands[c].name;
    }
    return best;
}

const ek_option *ek_cli_guess_option(const char *typed, size_t n, ek_cmd_id id)
{
    const ek_option *best = NULL;
    int least_far = LONGEST;
    while (n && *typed == '-') typed++, n--;
    for (int i = 0; i < ek_n_options; i++) {
        if (!(ek_options[i].commands >> id & 1)) continue;
        ek_buf flag = {0};
        ek_option_flag(&flag, &ek_options[i]);
        int far = how_far(typed, n, ek_buf_text(&flag) + 2);
        if (far < least_far) least_far = far, best = &ek_options[i];
        ek_buf_fini(&flag);
    }
    return best;
}
