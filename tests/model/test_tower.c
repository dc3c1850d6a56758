/* Pictures through vision towers and the 12B's patches: against float64 by the formulas, and the same bits whatever the
 * instruction set, the threads, the slices and the type of the stored weights. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/files.h"
#include "base/machine/cpu.h"
#include "model/tower/tower_vision.h"
#include "tensor/dtype.h"
#include "tower_case.h"

static const tower_case cases[] = {
    /* E: clipped, no standardisation; odd sizes of rows that no vector divides */
    {"E", 32, 2, 2, 2, 16, 48, 16, 3, 1024, 48, true, false, false, false, 0, NULL, 0},
    {"E, bounds infinite", 32, 1, 2, 2, 16, 48, 16, 3, 1024, 48, true, true, false, false, 0, NULL, 0},
    {"L", 36, 2, 2, 2, 12, 37, 16, 3, 1024, 48, false, false, true, false, 4e4, NULL, 0},
    {"L, one KV head", 36, 2, 2, 1, 12, 37, 16, 3, 1024, 48, false, false, true, false, 4e4, NULL, 0},
    {"L, patches of 4, 2 x 2", 36, 2, 2, 2, 12, 37, 4, 2, 1024, 48, false, false, true, false, 4e4, NULL, 0},
    {"heads of 72 and 4", 72, 1, 3, 1, 72, 64, 4, 3, 256, 20, true, false, true, false, 10, NULL, 0},
    {"heads of 4", 64, 1, 4, 2, 4, 64, 4, 3, 256, 33, true, false, false, false, 0, NULL, 0},
    {"12B", 40, 0, 0, 0, 0, 0, 16, 3, 1120, 48, false, false, false, true, 0, NULL, 0},
    {"12B, patches of 12", 128, 0, 0, 0, 0, 0, 4, 3, 64, 129, false, false, false, true, 0, NULL, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static const tower_layout hf = {.dtype = "BF16", .prefix = "model."};

typedef struct run_opts {
    unsigned cpu;
    int threads;
    double slice; /* multiply-adds; 0: all at once */
    bool exact, quantise;
    int integers_from;
} run_opts;

/* The rows of a picture, the caller's. */
static float *rows_of(const char *dir, const ek_picture *p, const run_opts *o, int *n)
{
    ek_pool *pool = NULL;
    ek_towers *t;
    ek_tower_work *w;
    ek_tower_cost cost;
    bool done = false;
    if (o->threads > 1) assert_int_equal(ek_pool_open(&pool, o->threads), EK_OK);
    const ek_towers_opts opts = {
        .cpu = o->cpu, .pool = pool, .exact = o->exact, .quantise = o->quantise, .integers_from = o->integers_from};
    if (ek_towers_open(&t, dir, &opts)) fail_msg("%s", ek_err_text());
    if (ek_tower_begin_image(&w, t, p)) fail_msg("%s", ek_err_text());
    assert_int_equal(ek_tower_cost_image(&cost, t, &p->fit), EK_OK);
    assert_true(fabs(ek_tower_left(w) - cost.macs) < 1);
    int slices = 0;
    for (double left = cost.macs; !done; slices++, left = ek_tower_left(w)) {
        ek_tower_advance(w, o->slice > 0 ? o->slice : cost.macs + 1, &done);
        assert_true(ek_tower_left(w) < left);
    }
    assert_true(o->slice > 0 && o->slice < cost.macs ? slices > 1 : slices == 1);
    assert_true(ek_tower_left(w) == 0);
    const float *rows = ek_tower_rows(w, n);
    assert_int_equal(*n, p->fit.tokens);
    const size_t bytes = sizeof *rows * (size_t)*n * (size_t)ek_towers_get(t)->hidden;
    float *copy = malloc(bytes);
    memcpy(copy, rows, bytes);
    ek_tower_free(w);
    ek_towers_close(t);
    if (pool) ek_pool_close(pool);
    return copy;
}

/* The largest difference as a share of the largest number. */
static double worst(const float *got, const double *want, int n)
{
    double top = 0, max = 0;
    for (int i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - want[i]);
        top = fmax(top, fabs(want[i]));
        if (!(d <= max)) max = d;
    }
    return max / top;
}

static void against_float64(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        tower_case c = cases[i];
        ek_picture p;
        int n;
        char *dir = temp_dir();
        tower_make(&c);
        tower_write(dir, &c, &hf);
        tower_picture(&p, &c, 100, 75, 70);
        float *got = rows_of(dir, &p, &(run_opts){.cpu = ek_cpu_detect(), .threads = 2}, &n);
        double *want = tower_oracle(&c, &p), d = worst(got, want, n * c.hidden);
        printf("measured: %s: %.2g of the largest number\n", c.name, d);
        if (!(d < 2e-5)) fail_msg("%s: %g", c.name, d);
        free(got), free(want);
        ek_picture_free(&p), tower_free(&c);
        remove_dir(dir);
    }
}

static void same(const char *what, const float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        if (ek_f32_bits(x[i]) != ek_f32_bits(y[i]))
            fail_msg("%s: number %d is %a and %a", what, i, (double)x[i], (double)y[i]);
}

static void same_bits(int integers_from)
{
    for (int i = 0; i < N_CASES; i++) {
        if (integers_from && i != 0 && i != 3 && i != 5) continue; /* three will do */
        tower_case c = cases[i];
        ek_picture p;
        int n;
        char *dir = temp_dir();
        tower_make(&c);
        tower_write(dir, &c, &hf);
        tower_picture(&p, &c, 90, 61, 70);
        float *want = rows_of(dir, &p, &(run_opts){.threads = 1, .integers_from = integers_from}, &n);
        for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
            unsigned cpu;
            assert_int_equal(ek_cpu_mask(*isa, &cpu), EK_OK);
            static const double slices[] = {0, 1, 3e5};
            for (int s = cpu ? 0 : 2; s < 3; s++) {
                const run_opts o = {.cpu = cpu, .threads = 1 + s, .slice = slices[s], .integers_from = integers_from};
                float *got = rows_of(dir, &p, &o, &n);
                same(c.name, want, got, n * c.hidden);
                free(got);
            }
        }
        free(want);
        ek_picture_free(&p), tower_free(&c);
        remove_dir(dir);
    }
}

static void same_bits_in_any_company(void **state)
{
    (void)state;
    same_bits(0);
}

static void same_bits_in_integers(void **state)
{
    (void)state;
    same_bits(1);
}

/* Attention is in floats below EK_VISION_INTEGERS patches and in integers from there on, which are near. */
static void large_pictures_are_in_integers(void **state)
{
    (void)state;
    static const int tokens[] = {560, 1120};
    tower_case c = {"large", 16, 1, 1, 1, 8, 16, 4, 2, 256, 16, false, false, false, false, 0, NULL, 0};
    char *dir = temp_dir();
    tower_make(&c);
    tower_write(dir, &c, &hf);
    for (int i = 0; i < 2; i++) {
        ek_picture p;
        int n;
        run_opts o = {.cpu = ek_cpu_detect(), .threads = 2};
        tower_picture(&p, &c, 256, 256, tokens[i]);
        const int patches = p.fit.width / 4 * (p.fit.height / 4);
        assert_int_equal(patches >= EK_VISION_INTEGERS, i);
        float *got = rows_of(dir, &p, &o, &n);
        o.integers_from = patches + 1;
        float *floats = rows_of(dir, &p, &o, &n);
        o.integers_from = patches;
        float *integers = rows_of(dir, &p, &o, &n);
        double of[16 * 1120];
        for (int k = 0; k < n * c.hidden; k++) of[k] = (double)floats[k];
        const double d = worst(integers, of, n * c.hidden);
        printf("measured: %d patches in integers: %.2g of the largest number\n", patches, d);
        assert_true(d > 0 && d < 5e-3);
        assert_memory_equal(got, i ? integers : floats, sizeof *got * (size_t)(n * c.hidden));
        free(got), free(floats), free(integers);
        ek_picture_free(&p);
    }
    tower_free(&c);
    remove_dir(dir);
}

/* A second picture through the same towers, of another size: nothing is left of the first. */
static void works_do_not_meet(void **state)
{
    (void)state;
    tower_case c = cases[2];
    ek_picture p[2];
    ek_towers *t;
    ek_tower_work *w[2];
    char *dir = temp_dir();
    tower_make(&c);
    tower_write(dir, &c, &hf);
    tower_picture(&p[0], &c, 90, 61, 70);
    tower_picture(&p[1], &c, 20, 300, 70);
    const ek_towers_opts opts = {.cpu = ek_cpu_detect()};
    assert_int_equal(ek_towers_open(&t, dir, &opts), EK_OK);
    bool done[2] = {false, false};
    for (int i = 0; i < 2; i++) assert_int_equal(ek_tower_begin_image(&w[i], t, &p[i]), EK_OK);
    while (!done[0] || !done[1])
        for (int i = 0; i < 2; i++) ek_tower_advance(w[i], 1e5, &done[i]);
    for (int i = 0; i < 2; i++) {
        int n;
        float *alone = rows_of(dir, &p[i], &(run_opts){.threads = 1}, &n);
        same("alone", alone, ek_tower_rows(w[i], &n), n * c.hidden);
        ek_tower_free(w[i]);
        ek_picture_free(&p[i]);
        free(alone);
    }
    assert_int_equal(ek_tower_begin_image(&w[0], t, &(ek_picture){.fit = {.width = 48, .height = 48, .tokens = 1}}),
                     EK_EINVAL); /* cut for another model */
    ek_towers_close(t);
    tower_free(&c);
    remove_dir(dir);
}

/* The same values as F32, F16 and BF16, in the names of mlx-vlm, and as codes that stand for them. */
static void layouts_of_the_same_values(void **state)
{
    (void)state;
    static const tower_layout other[] = {{.dtype = "F32", .prefix = "model."},
                                         {.dtype = "F16", .prefix = "model."},
                                         {.dtype = "BF16", .prefix = ""},
                                         {.dtype = "BF16", .prefix = "", .quantise_bits = 8}};
    for (int i = 0; i < N_CASES; i++) {
        tower_case c = cases[i];
        ek_picture p;
        int n;
        char *dir = temp_dir();
        tower_make(&c);
        tower_write(dir, &c, &hf);
        tower_picture(&p, &c, 64, 64, 70);
        float *want = rows_of(dir, &p, &(run_opts){.threads = 1}, &n);
        for (int l = 0; l < 4; l++) {
            tower_write(dir, &c, &other[l]);
            float *got = rows_of(dir, &p, &(run_opts){.threads = 2, .cpu = ek_cpu_detect(), .exact = true}, &n);
            same(c.name, want, got, n * c.hidden);
            free(got);
        }
        /* Products in integers are near, on every instruction set the same. */
        float *first = NULL;
        double *wanted = tower_oracle(&c, &p);
        for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
            unsigned cpu;
            assert_int_equal(ek_cpu_mask(*isa, &cpu), EK_OK);
            float *got = rows_of(dir, &p, &(run_opts){.cpu = cpu, .threads = 2}, &n);
            if (first) same(c.name, first, got, n * c.hidden);
            const double d = worst(got, wanted, n * c.hidden);
            if (!(d < 2e-2)) fail_msg("%s in integers: %g", c.name, d);
            free(first);
            first = got;
        }
        free(first), free(want), free(wanted);
        ek_picture_free(&p), tower_free(&c);
        remove_dir(dir);
    }
}

static uint64_t digest_of(const char *dir, unsigned cpu, int threads, bool quantise)
{
    ek_pool *pool = NULL;
    ek_towers *t;
    uint64_t digest;
    if (threads > 1) assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
    assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){.cpu = cpu, .pool = pool, .quantise = quantise}), EK_OK);
    assert_int_equal(ek_towers_digest_image(t, &digest), EK_OK);
    ek_towers_close(t);
    if (pool) ek_pool_close(pool);
    return digest;
}

/* One bit of a weight, of a bound, of a table or a number of the configuration changes the digest; where and how it is
 * computed does not. */
static void the_digest_is_of_all_that_counts(void **state)
{
    (void)state;
    static const char *const changed[] = {"vision_tower.encoder.layers.1.mlp.down_proj.linear.weight",
                                          "vision_tower.encoder.layers.0.self_attn.k_proj.input_max",
                                          "vision_tower.patch_embedder.position_embedding_table",
                                          "vision_tower.encoder.layers.0.self_attn.q_norm.weight"};
    tower_case c = cases[0];
    char *dir = temp_dir();
    tower_make(&c);
    tower_write(dir, &c, &hf);
    const uint64_t of = digest_of(dir, 0, 1, false);
    assert_true(of == digest_of(dir, ek_cpu_detect(), 3, false));
    assert_true(of != digest_of(dir, 0, 1, true));
    for (int i = 0; i < 4; i++) {
        float *v = tower_find(&c, changed[i])->v, was = *v;
        *v = was + 0.25f;
        tower_write(dir, &c, &hf);
        assert_true(of != digest_of(dir, 0, 1, false));
        *v = was;
    }
    ek_towers *t;
    uint64_t other;
    assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){.integers_from = EK_VISION_INTEGERS + 1}), EK_OK);
    assert_int_equal(ek_towers_digest_image(t, &other), EK_OK);
    assert_true(of != other);
    ek_towers_close(t);
    tower_write(dir, &c,
                &(tower_layout){
                    .dtype = "BF16", .prefix = "model.", .change = "\"rope_theta\":100.0", .to = "\"rope_theta\":90"});
    assert_true(of != digest_of(dir, 0, 1, false));
    tower_free(&c);
    remove_dir(dir);
}

static void what_a_model_takes(void **state)
{
    (void)state;
    tower_case c = cases[0];
    ek_towers *t;
    char *dir = temp_dir();
    tower_make(&c);
    tower_write(dir, &c, &hf);
    const ek_towers_opts opts = {0};
    assert_int_equal(ek_towers_open(&t, dir, &opts), EK_OK);
    const ek_towers_info *i = ek_towers_get(t);
    assert_true(i->image && !i->sound && !i->bidirectional && i->image_kind == EK_PATCH_TOWER);
    assert_int_equal(i->patching.side, 16);
    assert_int_equal(i->patching.pool, 3);
    assert_int_equal(i->hidden, 48);
    assert_int_equal(i->boi, 503);
    assert_int_equal(i->image_token, 500);
    assert_int_equal(i->eoi, 504);
    assert_int_equal(i->video_token, -1); /* the default id is beyond the vocabulary */
    assert_int_equal(ek_towers_takes_sound(t), EK_EUNSUPPORTED);
    assert_string_equal(ek_err_text(), "this model takes no audio: it has no audio tower");
    ek_towers_close(t);
    /* the tensors are gone, the configuration stayed */
    tower_case moved = c;
    for (int k = 0; k < moved.n_tensors; k++) memcpy(moved.tensor[k].name, "other", 5);
    tower_write(dir, &moved, &hf);
    assert_int_equal(ek_towers_open(&t, dir, &opts), EK_OK);
    assert_int_equal(ek_towers_takes_image(t), EK_EUNSUPPORTED);
    assert_string_equal(ek_err_text(), "this model takes no images: it has no vision tower");
    ek_towers_close(t);
    tower_free(&c);
    remove_dir(dir);
}

static void what_cannot_be_is_reported(void **state)
{
    (void)state;
    static const struct {
        int of;
        const char *skip, *change, *to, *says;
    } row[] = {
        {0, "vision_tower.encoder.layers.1.mlp.up_proj.output_min", NULL, NULL,
         "vision_tower.encoder.layers.1.mlp.up_proj.output_min is missing"},
        {0, "vision_tower.encoder.layers.0.mlp.up_proj.linear.weight", NULL, NULL,
         "vision_tower.encoder.layers.0.mlp.up_proj.linear.weight of the towers is missing"},
        {2, "vision_tower.std_scale", NULL, NULL, "vision_tower.std_scale of the towers is missing"},
        {0, NULL, "\"pooling_kernel_size\":3", "\"pooling_kernel_size\":1", "pooling_kernel_size is 1"},
        {0, NULL, "\"pooling_kernel_size\":3", "\"pooling_kernel_size\":true", "pooling_kernel_size is true"},
        {0, NULL, "\"pooling_kernel_size\":3", "\"pooling_kernel_size\":100", "100 x 100 patches of 16 pixels"},
        {0, NULL, "\"head_dim\":16", "\"head_dim\":18", "head_dim is 18, must be a multiple of 4"},
        {0, NULL, "\"num_key_value_heads\":2", "\"num_key_value_heads\":3", "2 heads cannot share 3"},
        {0, NULL, "\"num_hidden_layers\":2", "\"num_hidden_layers\":3",
         "vision_tower.encoder.layers.2.self_attn.q_proj.input_min is missing"},
        {0, NULL, "\"intermediate_size\":48", "\"intermediate_size\":47", "has shape [48, 32]"},
        {0, NULL, "\"position_embedding_size\":1024", "\"position_embedding_size\":1023", "has shape [2, 1024, 32]"},
        {0, NULL, "gelu_pytorch_tanh", "silu", "hidden_activation is silu"},
        {2, NULL, "\"vision\"", "\"all\"", "use_bidirectional_attention is all"},
        {7, NULL, "\"output_proj_dims\":40", "\"output_proj_dims\":41", "output_proj_dims is 41, mm_embed_dim 40"},
        {7, "embed_vision.patch_ln1.bias", NULL, NULL, "embed_vision.patch_ln1.bias of the towers is missing"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tower_case c = cases[row[i].of];
        tower_layout l = hf;
        ek_towers *t = NULL;
        char *dir = temp_dir();
        l.skip = row[i].skip, l.change = row[i].change, l.to = row[i].to;
        tower_make(&c);
        tower_write(dir, &c, &l);
        ek_err err = ek_towers_open(&t, dir, &(ek_towers_opts){0});
        if (!err || !strstr(ek_err_text(), row[i].says))
            fail_msg("row %zu: %s, not: %s", i, err ? ek_err_text() : "no error", row[i].says);
        assert_null(t);
        tower_free(&c);
        remove_dir(dir);
    }
}

/* A bound that is no number, and a lower one above the upper. */
static void bounds_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float to;
        const char *says;
    } row[] = {{"input_max", NAN, "is no number"}, {"output_min", 9, "is 9, above its output_max"}};
    for (int i = 0; i < 2; i++) {
        tower_case c = cases[0];
        char *dir = temp_dir(), name[128];
        ek_towers *t;
        tower_make(&c);
        snprintf(name, sizeof name, "vision_tower.encoder.layers.1.self_attn.o_proj.%s", row[i].name);
        *tower_find(&c, name)->v = row[i].to;
        tower_write(dir, &c, &hf);
        assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){0}), EK_EFORMAT);
        if (!strstr(ek_err_text(), row[i].says)) fail_msg("%s", ek_err_text());
        tower_free(&c);
        remove_dir(dir);
    }
}

/* A picture that is wider than the table of positions. */
static void positions_end(void **state)
{
    (void)state;
    tower_case c = cases[0];
    ek_picture p;
    ek_towers *t;
    ek_tower_work *w;
    char *dir = temp_dir();
    c.positions = 40;
    tower_make(&c);
    tower_write(dir, &c, &hf);
    tower_picture(&p, &c, 900, 30, 70);
    assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){0}), EK_OK);
    assert_int_equal(ek_tower_begin_image(&w, t, &p), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "this model has positions for 40"));
    ek_picture_free(&p), tower_free(&c);
    ek_towers_close(t);
    remove_dir(dir);
}

/* Parameters and multiply-adds of the published towers, as their configurations give them: 167.4 and 569.5 million
 * numbers with 15.7 and 23.6 million of them in the table of positions; a picture of 280 tokens has 2,520 patches. */
static void published_towers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double bytes, macs;
        int hidden;
    } row[] = {{"e2b", 2 * (167.4e6 - 15.7e6), (0.76e12 + 0.31e12) / 2, 1536},
               {"e4b", 2 * (167.4e6 - 15.7e6), (0.76e12 + 0.31e12) / 2, 2560},
               {"26b", 2 * (569.5e6 - 23.6e6), (2.75e12 + 0.79e12) / 2, 2816},
               {"31b", 2 * (569.5e6 - 23.6e6), (2.75e12 + 0.79e12) / 2, 5376},
               {"12b", 2 * (6912 * 3840 + 3840 * 3840), 280.0 * (6912 * 3840 + 3840 * 3840), 3840}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ek_towers *t;
        ek_tower_cost cost;
        ek_image_fit fit;
        assert_int_equal(ek_towers_open(&t, NULL, &(ek_towers_opts){.synthetic = row[i].name}), EK_OK);
        assert_int_equal(ek_towers_get(t)->hidden, row[i].hidden);
        assert_int_equal(ek_image_fit_budget(&fit, 960, 672, 280, ek_towers_get(t)->patching), EK_OK);
        assert_int_equal(ek_tower_cost_image(&cost, t, &fit), EK_OK);
        assert_int_equal(cost.rows, 280);
        if (!(fabs(cost.macs / row[i].macs - 1) < 0.02)) fail_msg("%s: %g multiply-adds", row[i].name, cost.macs);
        const double bytes = (double)ek_towers_image_bytes(t) -
                             2.0 * row[i].hidden * (i < 4 ? (i < 2 ? 768 : 1152) : 0);
        if (!(fabs(bytes / row[i].bytes - 1) < 0.01)) fail_msg("%s: %g bytes", row[i].name, bytes);
        ek_towers_close(t);
    }
    ek_towers *t;
    assert_int_equal(ek_towers_open(&t, NULL, &(ek_towers_opts){.synthetic = "3b"}), EK_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_float64),
        cmocka_unit_test(same_bits_in_any_company),
        cmocka_unit_test(same_bits_in_integers),
        cmocka_unit_test(large_pictures_are_in_integers),
        cmocka_unit_test(works_do_not_meet),
        cmocka_unit_test(layouts_of_the_same_values),
        cmocka_unit_test(the_digest_is_of_all_that_counts),
        cmocka_unit_test(what_a_model_takes),
        cmocka_unit_test(what_cannot_be_is_reported),
        cmocka_unit_test(bounds_are_checked),
        cmocka_unit_test(positions_end),
        cmocka_unit_test(published_towers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
