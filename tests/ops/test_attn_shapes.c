/* Attention at the published models' heads, head sizes and windows, one test per format of keys and values, over
 * several segments: the definition against softmax in float64, every instruction set against the contract written
 * down once more and against the definition, bit for bit. */
/* tier: all */
#include <stdlib.h>
#include <string.h>

#include "attn_scene.h"
#include "base/machine/cpu.h"

typedef struct model_shape {
    const char *model;
    int n_heads, n_kv_heads, head_dim, window;
} model_shape;

/* model/config/published.c, and head sizes of other models of the family. */
static const model_shape shapes[] = {
    {"E2B sliding", 8, 1, 256, 512},           {"E2B full", 8, 1, 512, 0},     {"E4B sliding", 8, 2, 256, 512},
    {"26B, 12B sliding", 16, 8, 256, 1024},    {"12B full", 16, 1, 512, 0},    {"26B full", 16, 2, 512, 0},
    {"31B sliding", 32, 16, 256, 1024},        {"31B full", 32, 4, 512, 0},    {"heads of 64", 8, 1, 64, 0},
    {"heads of 128, sliding", 8, 4, 128, 512}, {"heads of 128", 4, 2, 128, 0}, {"heads of 64, sliding", 4, 1, 64, 1024},
};
enum { N_MODELS = sizeof shapes / sizeof *shapes };

/* The last key of a segment, the first of the next, and depths where windows of 512 and 1024 begin inside a segment
 * and inside a page. */
static const int positions[] = {255, 256, 767, 1093};
enum { N_ROWS = sizeof positions / sizeof *positions, N_KEYS = 1094 };

/* Which rows the slow references judge: the definition alone walks all. */
static bool judged(int row, const model_shape *m)
{
    return row == N_ROWS - 1 || (row == 1 && m->n_heads <= 8);
}

static void check_model(const model_shape *m, ek_kv_format k, ek_kv_format v, uint64_t seed)
{
    const attn_case c = {{m->window ? EK_SLIDING : EK_FULL, k, v, m->n_heads, m->n_kv_heads, m->head_dim, 0},
                         m->window};
    const size_t width = q_width(&c.shape), dim = (size_t)m->head_dim;
    scene s;
    scene_open(&s, &c.shape, N_KEYS, 1, seed);
    float *q = queries(&c.shape, N_ROWS, seed + 7), out[512];
    double want[512], tol[512];
    ek_attn_row rows[N_ROWS];
    for (int r = 0; r < N_ROWS; r++) rows[r] = row_at(&c, 0, positions[r]);
    float *definition = attend(0, NULL, &c.shape, &s.view, rows, N_ROWS, q);
    for (int r = 0; r < N_ROWS; r++)
        for (int h = 0; h < m->n_heads && judged(r, m); h += m->n_heads / m->n_kv_heads) {
            const size_t at = (size_t)r * width + (size_t)h * dim;
            reference(&s, &rows[r], q + at, h, want, tol);
            check_near("attn", "scalar", want, definition + at, dim, tol, "%s: %s, position %d, head %d", m->model,
                       case_text(&c), positions[r], h);
            contract(&s, &rows[r], q + at, h, out);
            check_bits("contract", "scalar", out, definition + at, dim, "%s: %s, position %d, head %d", m->model,
                       case_text(&c), positions[r], h);
        }
    CHECK_ISAS(isa, cpu)
    {
        if (!cpu) continue; /* the definition itself, the slowest of all */
        float *got = attend(cpu, NULL, &c.shape, &s.view, rows, N_ROWS, q);
        for (int r = 0; r < N_ROWS; r++)
            for (int h = 0; h < m->n_heads; h++)
                check_bits("attn", isa, definition + (size_t)r * width + (size_t)h * dim,
                           got + (size_t)r * width + (size_t)h * dim, dim, "%s: %s, position %d, head %d", m->model,
                           case_text(&c), positions[r], h);
        free(got);
    }
    free(definition);
    free(q);
    scene_close(&s);
}

/* A format with another group of a width that is there already: shapes that differ in size alone are left out. */
static void check_format(ek_kv_format f)
{
    const bool again = strchr(ek_kv_format_name(f), '.');
    for (int i = 0; i < N_MODELS; i++)
        if (!again || i == 0 || i == 5 || i >= 8) check_model(&shapes[i], f, f, 1000 + (uint64_t)i);
}

#define FORMAT_TEST(id, name, rule, bits, group) \
    static void format_##id(void **state)        \
    {                                            \
        (void)state;                             \
        check_format(EK_KV_##id);                \
    }
EK_KV_FORMATS(FORMAT_TEST)

/* Keys in one format, values in another. Scores know nothing of the format of values: each with a few others of either
 * kind stands for all pairs. */
static void mixed(void **state)
{
    (void)state;
    for (int k = 0; k < EK_KV_FORMAT_COUNT; k++)
        for (int v = 0; v < EK_KV_FORMAT_COUNT; v++) {
            const bool both = k <= EK_KV_Q4 && v <= EK_KV_Q4;
            if (k != v && (both || (k * 5 + v) % 11 == 0))
                check_model(&shapes[8 + (k + v) % 4], (ek_kv_format)k, (ek_kv_format)v, 2000);
        }
}

#define FORMAT_ENTRY(id, name, rule, bits, group) CHECK_TEST(format_##id),

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {EK_KV_FORMATS(FORMAT_ENTRY) CHECK_TEST(mixed)};
    return CHECK_RUN(argc, argv, tests);
}
