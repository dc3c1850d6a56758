/* Near attention: float64 checks the values, memcmp that instruction sets agree, for heads of every size around the
 * vectors', spans up to the largest, and positions before and behind the span. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "ops/attn/attn_near.h"

enum { MAX_ROWS = 300, MAX_WIDTH = 8 * 128 };
static float q[MAX_ROWS * MAX_WIDTH], k[MAX_ROWS * MAX_WIDTH], v[MAX_ROWS * MAX_WIDTH], rel[MAX_ROWS * MAX_WIDTH];
static float want[MAX_ROWS * MAX_WIDTH], got[MAX_ROWS * MAX_WIDTH];

static const struct {
    int heads, head_dim, span, rows;
    float cap;
} shape[] = {
    {8, 128, 12, 40, 50.0f}, {4, 8, 12, 25, 50.0f},  {4, 16, 4, 13, 2.0f},   {2, 1, 1, 5, 50.0f},
    {3, 15, 7, 20, 50.0f},   {1, 17, 16, 40, 1.0f},  {2, 33, 17, 40, 30.0f}, {1, 3, EK_NEAR_MAX_SPAN, MAX_ROWS, 50.0f},
    {5, 24, 9, 30, 0.5f},    {2, 100, 13, 30, 50.0f}};

/* The formula in float64, of one head; returns the error that float32 may have. */
static void exact(double *o, int i, int at, int head_dim, int width, int span, double cap)
{
    double s[EK_NEAR_MAX_SPAN], total = 0;
    const int lo = i - span + 1 > 0 ? i - span + 1 : 0;
    for (int j = lo; j <= i; j++) {
        double sum = 0;
        for (int d = at; d < at + head_dim; d++)
            sum += (double)q[i * width + d] * ((double)k[j * width + d] + (double)rel[(i - j) * width + d]);
        s[j - lo] = exp(cap * tanh(sum / cap));
        total += s[j - lo];
    }
    for (int d = 0; d < head_dim; d++) {
        o[d] = 0;
        for (int j = lo; j <= i; j++) o[d] += s[j - lo] / total * (double)v[j * width + at + d];
    }
}

static void values(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof shape / sizeof *shape; t++) {
        const int width = shape[t].heads * shape[t].head_dim;
        const ek_near a = {shape[t].heads, shape[t].head_dim, shape[t].span, shape[t].cap, rel};
        const size_t n = (size_t)shape[t].rows * (size_t)width;
        check_fill(q, n, 1, 2.0f / sqrtf((float)shape[t].head_dim));
        check_fill(k, n, 2, 2.0f);
        check_fill(v, n, 3, 1.0f);
        check_fill(rel, (size_t)shape[t].span * (size_t)width, 4, 2.0f);
        CHECK_ISAS(isa, cpu)
        {
            ek_near_fn *near = ek_near_choose(cpu);
            float *o = cpu ? got : want;
            memset(o, 0x55, n * sizeof *o);
            for (int i = shape[t].rows - 1; i >= 0; i--) near(&a, o + i * width, q + i * width, k, v, width, i);
            if (cpu)
                check_bits("near attention", isa, want, got, n, "%d heads of %d, span %d, cap %g", a.heads, a.head_dim,
                           a.span, (double)a.cap);
        }
        for (int i = 0; i < shape[t].rows; i++)
            for (int h = 0; h < a.heads; h++) {
                double o[128], tol[128];
                exact(o, i, h * a.head_dim, a.head_dim, width, a.span, (double)a.cap);
                for (int d = 0; d < a.head_dim; d++) tol[d] = 4e-6;
                check_near("near attention", "scalar", o, want + i * width + h * a.head_dim, (size_t)a.head_dim, tol,
                           "row %d, head %d of shape %zu", i, h, t);
            }
    }
}

/* What lies before the span or behind the query is not read, and NaN that is read shows. */
static void others_do_not_count(void **state)
{
    (void)state;
    const ek_near a = {2, 24, 5, 50.0f, rel};
    enum { ROWS = 12, WIDTH = 48, AT = 8 };
    CHECK_ISAS(isa, cpu)
    {
        ek_near_fn *near = ek_near_choose(cpu);
        check_fill(q, ROWS * WIDTH, 1, 1.0f);
        check_fill(k, ROWS * WIDTH, 2, 1.0f);
        check_fill(v, ROWS * WIDTH, 3, 1.0f);
        check_fill(rel, 5 * WIDTH, 4, 1.0f);
        near(&a, want, q + AT * WIDTH, k, v, WIDTH, AT);
        for (int j = 0; j < ROWS; j++)
            for (int d = 0; d < WIDTH && (j < AT - 4 || j > AT); d++) k[j * WIDTH + d] = v[j * WIDTH + d] = NAN;
        near(&a, got, q + AT * WIDTH, k, v, WIDTH, AT);
        check_bits("near attention", isa, want, got, WIDTH, "beside NaN");
        k[(AT - 4) * WIDTH] = NAN; /* of the first head */
        near(&a, got, q + AT * WIDTH, k, v, WIDTH, AT);
        for (int d = 0; d < WIDTH; d++) assert_int_equal(isnan(got[d]) != 0, d < 24);
        check_bits("near attention", isa, want + 24, got + 24, 24, "beside a head with NaN");
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {CHECK_TEST(values), CHECK_TEST(others_do_not_count)};
    return CHECK_RUN(argc, argv, tests);
}
