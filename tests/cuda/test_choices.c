/* Which kernel computes a product and how it is launched, on an H100: kernel, grid, shared memory, turns, slots, parts,
 * scratch memory, for every product of the five published models, every kind of weights that the device has a layout
 * for, one and two limbs, and 1 to MAX_ROWS rows. tests/cuda/choices.txt has what was chosen; a change of it shall be
 * meant. No bit depends on it, but every time does. No GPU is needed.
 *
 * `test_choices --write` writes the table anew; `test_choices --show KIND` prints all choices for weights of a kind, as
 * "q4.64/64 bf16 biased auto", or of "all", for a comparison of two revisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash/rng.h"
#include "choices.h"
#include "cuda/product/product.h"
#include "cuda/tiles.h"
#include "model/config/config.h"
#include "model/weights/role.h"
#include "model/weights/weights.h"
#include "ops/weights/quantised_type.h"

#define TABLE "tests/cuda/choices.txt"
enum { MAX_ROWS = 512, MAX_KINDS = 256, MAX_MEMO = 1 << 16 };

/* --- weights */

/* A matrix, or none (n 0), of weights as a model of the type and activations has them. */
typedef struct kind {
    const ek_weight_type *type;
    ek_activations activations;
    char name[64];
} kind;

static ek_cuda_linear matrix(const kind *of, ek_matrix_role role, int n, int k)
{
    ek_cuda_linear l = {0};
    ek_linear w;
    if (!n || ek_linear_plan(&w, 0, n, k, of->type)) return l;
    if (of->type->unpack)
        assert_int_equal(ek_linear_set_acts(&w, ek_role_acts(role, of->type, of->activations)), EK_OK);
    if (ek_cuda_linear_plan(&l, &w)) return (ek_cuda_linear){0};
    return l;
}

static int kinds(kind *out)
{
    static const ek_activations activations[] = {EK_ACTIVATIONS_AUTO, EK_ACTIVATIONS_8, EK_ACTIVATIONS_16};
    int n = 0, count;
    const ek_weight_type *const types = ek_weight_types(&count);
    for (int i = 0; i < count + EK_MINIFLOAT_TYPES; i++)
        for (size_t a = 0; a < sizeof activations / sizeof *activations; a++) {
            kind one = {.type = i < count ? &types[i] : &ek_minifloat_types[i - count], .activations = activations[a]};
            if (a && !one.type->unpack) continue;
            ek_buf name = {0};
            const ek_cuda_linear q = matrix(&one, EK_ROLE_Q, 64, 1024), k = matrix(&one, EK_ROLE_K, 64, 1024);
            if (!q.n) continue;
            choices_say_form(&name, &q);
            if (q.units) ek_buf_fmt(&name, " %s", q.limbs != k.limbs ? "auto" : q.limbs == 1 ? "8" : "16");
            snprintf(one.name, sizeof one.name, "%s", ek_buf_text(&name));
            ek_buf_fini(&name);
            bool known = false;
            for (int j = 0; j < n; j++) known = known || !strcmp(out[j].name, one.name);
            if (!known && n < MAX_KINDS) out[n++] = one;
        }
    return n;
}

/* --- a model's line of the table */

typedef struct line {
    uint64_t digest[COLUMNS]; /* 0: nothing was asked */
    const char *model;
    bool show;
    ek_buf *names;      /* NULL: not wanted */
    uint64_t seen[512]; /* uses */
    int n_seen;
} line;

/* What was said of a use before, for other models or activations. */
static struct {
    uint64_t key, digest;
} memo[MAX_MEMO];

static void say_matrix(ek_buf *to, const ek_cuda_linear *l)
{
    if (!l) return;
    ek_buf_fmt(to, " %dx%d ", l->n, l->k);
    choices_say_form(to, l);
    if (l->units) ek_buf_fmt(to, " l%d zero %d", l->limbs, l->zero);
}

/* The kernels that a text of a choice names. */
static void say_kernels(ek_buf *to, const char *text)
{
    int n = 0;
    for (const char *at = strstr(text, "ek_"); at; at = strstr(at + 1, "ek_"))
        ek_buf_fmt(to, "%s%.*s", n++ ? "+" : "", (int)strcspn(at, " ") - 3, at + 3);
    if (!n) ek_buf_str(to, "none");
}

/* All choices for a use, by runs of rows; to names, where it is there, the kernels' alone. */
static uint64_t digest_of(column c, const use *u, const char *title, bool show, ek_buf *names)
{
    ek_buf now = {0}, before = {0}, kernel = {0}, last = {0};
    uint64_t digest = 1;
    if (show) printf("%s:%s\n", choices_columns[c].name, title);
    if (names) ek_buf_fmt(names, "%s%s:", choices_columns[c].name, title);
    for (int rows = 1; rows <= MAX_ROWS; rows++) {
        ek_buf_clear(&now);
        choices_columns[c].say(&now, u, rows);
        if (rows > 1 && !strcmp(ek_buf_text(&now), ek_buf_text(&before))) continue;
        if (show) printf("  %d%s\n", rows, now.len ? ek_buf_text(&now) : " none");
        digest = ek_hash64(digest + (uint64_t)rows, ek_buf_text(&now), now.len);
        if (names) {
            ek_buf_clear(&kernel);
            say_kernels(&kernel, ek_buf_text(&now));
            if (rows == 1 || strcmp(ek_buf_text(&kernel), ek_buf_text(&last)) != 0)
                ek_buf_fmt(names, " %d %s", rows, ek_buf_text(&kernel));
            const ek_buf was = last;
            last = kernel, kernel = was;
        }
        const ek_buf kept = before;
        before = now, now = kept;
    }
    if (names) ek_buf_char(names, '\n');
    ek_buf_fini(&now), ek_buf_fini(&before), ek_buf_fini(&kernel), ek_buf_fini(&last);
    return digest;
}

static void add(line *to, column c, use u)
{
    if (!u.a && c == WIDE_HEADS && u.b->n == 0) return;
    if ((u.a && !u.a->n) || (u.b && !u.b->n)) return; /* a matrix that the type cannot hold */
    if (u.c && !u.c->n) u.c = NULL;
    if ((c == FIRST || c == SECOND || c == END) && !u.c) return;
    ek_buf title = {0};
    say_matrix(&title, u.a);
    say_matrix(&title, u.b);
    say_matrix(&title, u.c);
    if (!u.a) ek_buf_str(&title, " without q");
    if (u.tile) ek_buf_fmt(&title, " jobs of %d", u.tile);
    const uint64_t key = ek_hash64((uint64_t)c + 1, ek_buf_text(&title), title.len);
    bool seen = false;
    for (int i = 0; i < to->n_seen; i++) seen = seen || to->seen[i] == key;
    if (!seen) {
        assert_true(to->n_seen < (int)(sizeof to->seen / sizeof *to->seen));
        to->seen[to->n_seen++] = key;
        size_t at = key % MAX_MEMO;
        while (memo[at].key && memo[at].key != key) at = (at + 1) % MAX_MEMO;
        if (!memo[at].key || to->show || to->names) {
            memo[at].key = key;
            memo[at].digest = digest_of(c, &u, ek_buf_text(&title), to->show, to->names);
        }
        to->digest[c] = ek_hash64(to->digest[c], &memo[at].digest, sizeof memo[at].digest);
    }
    ek_buf_fini(&title);
}

static void add_experts(line *to, const kind *of, const ek_config *c, const ek_cuda_linear *down)
{
    const int hidden = c->hidden_size, inter = c->moe_intermediate_size;
    const ek_cuda_linear gate = matrix(of, EK_ROLE_EXPERT_GATE, inter, hidden),
                         expert_down = matrix(of, EK_ROLE_EXPERT_DOWN, hidden, inter);
    static const int tiles[] = {4, 8, EK_CUDA_MID_JOB_FEW, EK_CUDA_MID_JOB_MORE, 32, EK_CUDA_WIDE_COLUMNS};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const int tile = tiles[i];
        const use u = {.a = &gate, .b = &expert_down, .experts = c->n_experts, .top_k = c->top_k_experts, .tile = tile};
        use one = u;
        add(to, GATE, u);
        if (tile == EK_CUDA_WIDE_COLUMNS) add(to, WIDE_GATE, u);
        one.b = NULL;
        add(to, EXPERTS, one);
        one.a = &expert_down;
        add(to, EXPERTS, one);
        one.a = &gate, one.b = down, one.c = &expert_down;
        if (tile <= 8) add(to, SECOND, one);
    }
}

/* Beside matrices of other kinds: what reads a gate's products, k of q, what a layer's end writes for. */
static void add_mixed(line *to, const kind *of, const ek_config *c, const ek_layer_config *l)
{
    static const char *const others[] = {"f16", "q8.64", "q4_0", "q6_k"};
    const int hidden = c->hidden_size, key = l->n_kv_heads * l->head_dim, inter = l->intermediate_size;
    const ek_cuda_linear q = matrix(of, EK_ROLE_Q, c->n_heads * l->head_dim, hidden),
                         gate = matrix(of, EK_ROLE_GATE, inter, hidden),
                         narrow = matrix(of, EK_ROLE_PER_LAYER_GATE, c->per_layer_size, hidden),
                         wide = matrix(of, EK_ROLE_PER_LAYER_PROJECTION, hidden, c->per_layer_size);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const kind other = {.type = ek_weight_type_named(others[i]), .activations = of->activations};
        const ek_cuda_linear k = matrix(&other, EK_ROLE_K, key, hidden), v = matrix(of, EK_ROLE_V, key, hidden),
                             down = matrix(&other, EK_ROLE_DOWN, hidden, inter),
                             next = matrix(&other, EK_ROLE_Q, hidden, hidden),
                             router = matrix(&other, EK_ROLE_ROUTER, c->n_experts, hidden);
        add(to, HEADS, (use){.a = &q, .b = &k});
        add(to, HEADS, (use){.a = &q, .b = &k, .c = &v});
        add(to, WIDE_HEADS, (use){.a = &q, .b = &k});
        add(to, WIDE_HEADS, (use){.a = &q, .b = &k, .c = &v});
        add(to, GATE, (use){.a = &gate, .b = &down});
        add(to, WIDE_GATE, (use){.a = &gate, .b = &down});
        if (narrow.n) add(to, END, (use){.a = &narrow, .b = &wide, .c = &next});
        if (router.n) add(to, FIRST, (use){.a = &gate, .b = &down, .c = &router});
    }
}

static void add_layer(line *to, const kind *of, const ek_config *c, const ek_layer_config *l,
                      const ek_cuda_linear *next)
{
    const int hidden = c->hidden_size, query = c->n_heads * l->head_dim, key = l->n_kv_heads * l->head_dim,
              inter = l->intermediate_size;
    const ek_cuda_linear q = matrix(of, EK_ROLE_Q, query, hidden), k = matrix(of, EK_ROLE_K, key, hidden),
                         v = matrix(of, EK_ROLE_V, l->k_eq_v ? 0 : key, hidden),
                         o = matrix(of, EK_ROLE_O, hidden, query), gate = matrix(of, EK_ROLE_GATE, inter, hidden),
                         down = matrix(of, EK_ROLE_DOWN, hidden, inter),
                         router = matrix(of, EK_ROLE_ROUTER, c->n_experts, hidden),
                         router_f = matrix(&(kind){.type = ek_weight_type_float(EK_F32)}, EK_ROLE_ROUTER, c->n_experts,
                                           hidden),
                         narrow = matrix(of, EK_ROLE_PER_LAYER_GATE, c->per_layer_size, hidden),
                         wide = matrix(of, EK_ROLE_PER_LAYER_PROJECTION, hidden, c->per_layer_size);
    const ek_cuda_linear *const alone[] = {&q, &k, &v, &o, &gate, &down, &router, &narrow, &wide};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i]->n) add(to, PRODUCT, (use){.a = alone[i]});
    add(to, HEADS, (use){.a = &q, .b = &k, .c = &v});
    add(to, WIDE_HEADS, (use){.a = &q, .b = &k, .c = &v});
    add(to, WIDE_HEADS, (use){.b = &k, .c = &v});
    add(to, TWO, (use){.a = &v});
    add(to, TWO, (use){.a = &gate});
    add(to, GATE, (use){.a = &gate, .b = &down});
    add(to, WIDE_GATE, (use){.a = &gate, .b = &down});
    if (c->per_layer_size) {
        add(to, GATE, (use){.a = &narrow, .b = &wide, .c = &narrow});
        add(to, END, (use){.a = &narrow, .b = &wide, .c = next});
    }
    if (!to->names) add_mixed(to, of, c, l);
    if (!c->n_experts) return;
    add_experts(to, of, c, &down);
    add(to, FIRST, (use){.a = &gate, .b = &down, .c = &router});
    if (router.units) add(to, FIRST, (use){.a = &gate, .b = &down, .c = &router_f});
}

static void fill(line *to, const kind *of, const char *model)
{
    ek_config c;
    assert_int_equal(ek_config_published(&c, model, 0), EK_OK);
    to->model = model;
    const int before = c.per_layer_size * ek_prompt_layers(&c), all = c.per_layer_size * c.n_layers;
    const ek_cuda_linear head = matrix(of, EK_ROLE_HEAD, c.vocab_size, c.hidden_size),
                         first = matrix(of, EK_ROLE_PER_LAYER_MODEL_PROJECTION, before, c.hidden_size),
                         rest = matrix(of, EK_ROLE_PER_LAYER_MODEL_PROJECTION, all - before, c.hidden_size);
    add(to, PRODUCT, (use){.a = &head});
    if (first.n) add(to, PRODUCT, (use){.a = &first});
    if (rest.n) add(to, PRODUCT, (use){.a = &rest});
    for (int i = 0; i < c.n_layers; i++) {
        const ek_cuda_linear q = matrix(of, EK_ROLE_Q, c.n_heads * c.layer[i].head_dim, c.hidden_size);
        add_layer(to, of, &c, &c.layer[i], &q);
        if (i + 1 == c.n_layers) add_layer(to, of, &c, &c.layer[i], &head);
    }
}

static const char *const models[] = {"e2b", "e4b", "12b", "26b", "31b"};
enum { MODELS = sizeof models / sizeof *models };

static void put_table(ek_buf *to)
{
    static kind all[MAX_KINDS];
    const int n = kinds(all);
    ek_buf_str(
        to,
        "# What is chosen on an H100 for 1 to 512 rows: a digest for each kind of weights (codes, groups of weights and\n"
        "# activations, scales, limbs), model and use. tests/cuda/test_choices.c writes it and says more.\n#");
    for (int c = 0; c < COLUMNS; c++) ek_buf_fmt(to, " %s", choices_columns[c].name);
    ek_buf_char(to, '\n');
    for (int i = 0; i < n; i++)
        for (int m = 0; m < MODELS; m++) {
            line one = {0};
            fill(&one, &all[i], models[m]);
            ek_buf_fmt(to, "%s, %s:", all[i].name, models[m]);
            for (int c = 0; c < COLUMNS; c++)
                if (one.digest[c]) ek_buf_fmt(to, " %08x", (unsigned)(one.digest[c] >> 32));
                else ek_buf_str(to, " -");
            ek_buf_char(to, '\n');
        }
}

/* Of what most models have, the kernels by name, each behind the number of rows from which on it is chosen. */
static void put_names(ek_buf *to)
{
    static const char *const wanted[] = {"bf16", "q4.64/64 bf16 biased auto", "q8.64/64 bf16 biased 16",
                                         "planes4.32/32 f16 auto", "planes4.32/32 f32 biased auto"};
    static kind all[MAX_KINDS];
    const int n = kinds(all);
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++)
        for (int i = 0; i < n; i++)
            for (int m = 0; m < MODELS && !strcmp(all[i].name, wanted[w]); m++) {
                line one = {.names = to};
                ek_buf_fmt(to, "\n%s, %s\n", all[i].name, models[m]);
                fill(&one, &all[i], models[m]);
            }
}

static void test_stored(void **state)
{
    (void)state;
    ek_buf now = {0};
    put_table(&now);
    put_names(&now);
    FILE *f = fopen(TABLE, "r");
    assert_non_null(f);
    static char text[1 << 14];
    int differ = 0;
    const char *at = ek_buf_text(&now);
    while (fgets(text, sizeof text, f)) {
        const char *end = strchr(at, '\n');
        const size_t n = end ? (size_t)(end - at) + 1 : 0;
        if (strlen(text) != n || memcmp(text, at, n) != 0) {
            print_error("stored: %snow:    %.*s", text, (int)n, at);
            differ++;
        }
        at += n;
    }
    fclose(f);
    assert_int_equal(differ, 0);
    assert_string_equal(at, "");
    ek_buf_fini(&now);
}

/* Of every architecture that kernels are built for, nothing is chosen that is not there. */
static void test_other_chips(void **state)
{
    (void)state;
    static const int chips[][2] = {{80, 108}, {86, 28}, {89, 128}, {100, 148}, {120, 170}};
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        ek_buf names = {0};
        choices_of_chip(chips[i][0], chips[i][1]);
        put_names(&names);
        assert_int_equal(choices_impossible, 0);
        ek_buf_fini(&names);
    }
}

/* Rows longer than any published model's: where a block lacks the room for their sums, the gate is a launch of its own,
 * or tiles compute few rows, too. */
static void test_long_rows(void **state)
{
    (void)state;
    static const int chips[][2] = {{80, 108}, {86, 28}, {90, 132}, {120, 170}},
                     ks[] = {5376, 21504, 22528, 32768, 65280};
    int gated = 0, apart = 0;
    for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
        for (int t = 0; t < 5; t++)
            for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
                for (int rows = 1; rows <= 16; rows *= 4) {
                    const ek_cuda_chip chip = ek_cuda_chip_like(chips[c][0], chips[c][1]);
                    const ek_weight_type *type = t == 4 ? ek_weight_type_float(EK_BF16)
                                                        : ek_weight_type_named(t == 2 ? "q4_0" : "q8_0");
                    if (t < 2) assert_int_equal(ek_weight_type_affine(&type, t ? 8 : 4, 64, EK_BF16, true), EK_OK);
                    const kind of = {.type = type, .activations = t % 2 ? EK_ACTIVATIONS_16 : EK_ACTIVATIONS_8};
                    const ek_cuda_linear up = matrix(&of, EK_ROLE_GATE, 4096, ks[k]),
                                         down = matrix(&of, EK_ROLE_DOWN, ks[k], 4096);
                    ek_cuda_product p = ek_cuda_product_plan(&up, rows, &chip, 0);
                    assert_true(up.n && down.n);
                    const bool plain = p.grid.shared <= chip.block_shared;
                    const bool one = plain && ek_cuda_gated_plan(&p, &up, rows, 0, EK_CUDA_GATE_MATRIX, &down, &chip);
                    if (!plain || (one && p.grid.shared > chip.block_shared))
                        fail_msg("sm_%d, %s, %d inputs, %d rows: %zu bytes", chip.features, p.name, ks[k], rows,
                                 p.grid.shared);
                    gated += one, apart += !one;
                }
    assert_true(gated && apart);
}

static int write_table(void)
{
    ek_buf now = {0};
    put_table(&now);
    put_names(&now);
    FILE *f = fopen(TABLE, "w");
    if (!f) return 1;
    fputs(ek_buf_text(&now), f);
    ek_buf_fini(&now);
    return fclose(f) ? 1 : 0;
}

static int show(const char *name)
{
    static kind all[MAX_KINDS];
    const int n = kinds(all);
    for (int i = 0; i < n; i++)
        for (int m = 0; m < MODELS && (!strcmp(name, "all") || !strcmp(all[i].name, name)); m++) {
            line one = {.show = true};
            printf("%s, %s\n", all[i].name, models[m]);
            fill(&one, &all[i], models[m]);
        }
    return 0;
}

int main(int argc, char **argv)
{
    choices_of_chip(90, 132);
    if (argc == 2 && !strcmp(argv[1], "--write")) return write_table();
    if (argc == 3 && !strcmp(argv[1], "--show")) return show(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stored), cmocka_unit_test(test_other_chips),
                                       cmocka_unit_test(test_long_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
