#include "base/near.h"

#include <string.h>

enum { LONGEST = EK_NOT_NEAR };

static int least(int a, int b)
{
    return a < b ? a : b;
}

int ek_distance(const char *a, size_t na, const char *b, size_t nb)
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

int ek_near(const char *typed, size_t n, const char *name)
{
    size_t len = strlen(name);
    if (n >= 3 && n < len && !strncmp(typed, name, n)) return 1;
    if (len >= 3 && len < n && !strncmp(typed, name, len)) return 2;
    int steps = ek_distance(typed, n, name, len);
    return steps * 3 <= (int)len || (steps == 1 && len == 2) ? steps : LONGEST;
}
