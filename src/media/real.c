#include "media/real.h"

#include <stdint.h>
#include <string.h>

static const double pi = 3.14159265358979323846;
/* ln 2 in two parts. The first part ends with 20 zero bits, so that its products with exponents are exact. */
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;

/* Taylor's series, summed from its smallest term, |x| <= pi / 4. */
static double cos_near(double x)
{
    double sum = 1.0;
    for (int k = 20; k >= 2; k -= 2) sum = 1.0 - sum * (x * x) / (double)(k * (k - 1));
    return sum;
}

static double sin_near(double x)
{
    double sum = 1.0;
    for (int k = 21; k >= 3; k -= 2) sum = 1.0 - sum * (x * x) / (double)(k * (k - 1));
    return x * sum;
}

/* The angle is reduced in eighths of a turn. Their borders are integers, so the remainder is exact. */
void ek_real_cos_sin(int i, int n, double *c, double *s)
{
    int64_t eighths = 8 * (int64_t)i, quarter = (eighths / n + 1) / 2;
    int64_t rest = eighths - 2 * quarter * n; /* -n to n */
    double angle = (double)rest * pi / (4.0 * (double)n), x = cos_near(angle), y = sin_near(angle);
    switch (quarter & 3) {
    case 0: *c = x, *s = y; break;
    case 1: *c = -y, *s = x; break;
    case 2: *c = -x, *s = -y; break;
    default: *c = y, *s = -x; break;
    }
}

static double scaled(double x, int e)
{
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double two;
    memcpy(&two, &bits, sizeof two);
    return x * two;
}

double ek_real_exp(double x)
{
    int n = (int)(x / ln2_high + (x < 0.0 ? -0.5 : 0.5));
    double r = x - n * ln2_high, sum = 1.0;
    r -= n * ln2_low;
    for (int k = 18; k >= 1; k--) sum = 1.0 + sum * r / k;
    return scaled(sum, n / 2) * scaled(1.0, n - n / 2);
}

/* x = 2^e m with m near 1; ln m = 2 artanh((m - 1) / (m + 1)). */
double ek_real_ln(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    double m = scaled(x, -e / 2) * scaled(1.0, -e - -e / 2);
    if (m > 1.41421356237309504880) m *= 0.5, e++;
    double t = (m - 1.0) / (m + 1.0), sum = 0.0;
    for (int k = 25; k >= 3; k -= 2) sum = (sum + 1.0 / k) * (t * t);
    return e * ln2_high + (e * ln2_low + 2.0 * (t + t * sum));
}
