/* The vision tower of a device with its real kernels, which run on the CPU (tests/emulate): rows of pictures with the
 * bits of the host's tower, whatever the slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../model/tower_case.h"
#include "../support/files.h"
#include "emulated.h"
#include "gpu/tower/encoder.h"
#include "gpu/tower/vision.h"

static ek_gpu *open_device(void)
{
    const ek_gpu_driver d = emulated();
    ek_gpu *g;
    assert_int_equal(ek_gpu_open_towers(&g, &d, 0), EK_OK);
    return g;
}

static const struct {
    tower_case c;
    const char *dtype;
    int width, height;
} cases[] = {
    {{"E", 32, 2, 2, 2, 16, 48, 16, 3, 1024, 48, true, false, false, false, 0, NULL, 0}, "BF16", 100, 75},
    {{"E, bounds infinite", 32, 1, 2, 2, 16, 48, 16, 3, 1024, 48, true, true, false, false, 0, NULL, 0}, "F32", 9, 90},
    {{"L", 36, 2, 2, 2, 12, 37, 16, 3, 1024, 48, false, false, true, false, 4e4, NULL, 0}, "F16", 640, 480},
    {{"L, one KV head", 36, 2, 2, 1, 12, 37, 4, 2, 1024, 48, false, false, true, false, 4e4, NULL, 0}, "BF16", 64, 64},
    {{"heads of 72", 72, 1, 3, 1, 72, 64, 4, 3, 256, 20, true, false, true, false, 10, NULL, 0}, "BF16", 90, 61},
    {{"heads of 4", 64, 1, 4, 2, 4, 64, 4, 3, 256, 33, true, false, false, false, 0, NULL, 0}, "BF16", 50, 61}};

static float *rows_of_host(ek_towers *t, const ek_picture *p)
{
    ek_tower_work *w;
    bool done;
    int n;
    assert_int_equal(ek_tower_begin_image(&w, t, p), EK_OK);
    ek_tower_advance(w, 1e18, &done);
    assert_true(done);
    const float *rows = ek_tower_rows(w, &n);
    const size_t bytes = sizeof *rows * (size_t)n * (size_t)ek_towers_get(t)->hidden;
    float *copy = malloc(bytes);
    memcpy(copy, rows, bytes);
    ek_tower_free(w);
    return copy;
}

static void same_bits_as_the_host(void **state)
{
    (void)state;
    ek_gpu *g = open_device();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tower_case c = cases[i].c;
        const tower_layout layout = {.dtype = cases[i].dtype, .prefix = "model."};
        const ek_towers_opts opts = {0};
        char *dir = temp_dir();
        ek_picture p;
        ek_towers *t;
        ek_gpu_vision *v;
        tower_make(&c);
        tower_write(dir, &c, &layout);
        tower_picture(&p, &c, cases[i].width, cases[i].height, 70);
        assert_int_equal(ek_towers_open(&t, dir, &opts), EK_OK);
        float *want = rows_of_host(t, &p);
        if (ek_gpu_vision_open(&v, g, ek_towers_vision(t))) fail_msg("%s: %s", c.name, ek_err_text());
        const size_t n = (size_t)p.fit.tokens * (size_t)c.hidden;
        float *got = malloc(n * sizeof *got);
        for (int whole = 0; whole < 2; whole++) {
            int slices = 0;
            memset(got, 0xff, n * sizeof *got);
            if (ek_gpu_vision_begin(v, &p, got)) fail_msg("%s: %s", c.name, ek_err_text());
            for (bool done = false; !done; slices++)
                if (ek_gpu_vision_advance(v, whole ? 1e18 : 1, &done)) fail_msg("%s: %s", c.name, ek_err_text());
            assert_int_equal(slices, whole ? 1 : c.layers);
            for (size_t k = 0; k < n; k++)
                if (memcmp(&want[k], &got[k], sizeof *got) != 0)
                    fail_msg("%s: number %zu is %a, on the device %a", c.name, k, (double)want[k], (double)got[k]);
        }
        assert_int_equal(ek_gpu_vision_begin(v, &p, got), EK_OK);
        ek_gpu_vision_drop(v); /* and the next one is begun anew */
        assert_int_equal(ek_gpu_vision_begin(v, &p, got), EK_OK);
        ek_gpu_vision_close(v);
        free(got), free(want);
        ek_towers_close(t);
        ek_picture_free(&p), tower_free(&c);
        remove_dir(dir);
    }
    ek_gpu_close(g);
}

static void quantised_weights_are_refused(void **state)
{
    (void)state;
    tower_case c = cases[0].c;
    const tower_layout layout = {.dtype = "BF16", .prefix = "model."};
    const ek_towers_opts opts = {.quantise = true};
    char *dir = temp_dir();
    ek_towers *t;
    ek_gpu_vision *v;
    ek_gpu *g = open_device();
    tower_make(&c);
    tower_write(dir, &c, &layout);
    assert_int_equal(ek_towers_open(&t, dir, &opts), EK_OK);
    assert_null(ek_towers_vision(t)); /* nothing is packed yet */
    assert_int_equal(ek_towers_load_image(t), EK_OK);
    assert_int_equal(ek_gpu_vision_open(&v, g, ek_towers_vision(t)), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "quantised"));
    ek_gpu_close(g);
    ek_towers_close(t);
    tower_free(&c);
    remove_dir(dir);
}

/* What the engine calls: a picture, one that is dropped, the picture again; by the device, or where its kernels lack
 * something by the host. */
static void the_executor_has_an_encoder(void **state)
{
    (void)state;
    static ek_config config;
    const ek_model_opts mo = {0};
    const ek_gpu_driver d = emulated();
    ek_model *m;
    ek_gpu *g;
    assert_int_equal(ek_config_tiny(&config, "Q1"), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &config, 0, 5, &mo), EK_OK);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    for (int quantised = 0; quantised < 2; quantised++) {
        tower_case c = cases[0].c;
        const tower_layout layout = {.dtype = "BF16", .prefix = "model."};
        const ek_towers_opts opts = {.quantise = quantised};
        char *dir = temp_dir();
        ek_towers *t;
        c.hidden = config.hidden_size;
        tower_make(&c);
        tower_write(dir, &c, &layout);
        assert_int_equal(ek_towers_open(&t, dir, &opts), EK_OK);
        ek_media media = {.kind = EK_PART_IMAGE}, other = {.kind = EK_PART_FRAME};
        tower_picture(&media.picture, &c, 100, 75, 70), tower_picture(&other.picture, &c, 50, 75, 70);
        const size_t n = (size_t)media.picture.fit.tokens * (size_t)c.hidden;
        float *want = rows_of_host(t, &media.picture), *got = calloc(n, sizeof *got);
        float *unused = malloc((size_t)other.picture.fit.tokens * (size_t)c.hidden * sizeof *unused);
        ek_executor on = ek_gpu_executor(g);
        const double room = on.room;
        assert_int_equal(ek_gpu_encoder_open(&on, g, t), EK_OK);
        assert_true(on.room < room && on.room >= 1);
        assert_int_equal(ek_encoder_load(&on.encoder), EK_OK);
        bool done = false;
        assert_int_equal(on.encoder.begin(on.encoder.arg, &other, unused), EK_OK);
        assert_int_equal(on.encoder.advance(on.encoder.arg, 1, &done), EK_OK);
        assert_false(done);
        on.encoder.drop(on.encoder.arg);
        assert_int_equal(on.encoder.begin(on.encoder.arg, &media, got), EK_OK);
        while (!done) assert_int_equal(on.encoder.advance(on.encoder.arg, 1e6, &done), EK_OK);
        assert_memory_equal(want, got, n * sizeof *got);
        on.encoder.close(on.encoder.arg);
        on.close(on.arg);
        ek_towers_close(t);
        ek_picture_free(&media.picture), ek_picture_free(&other.picture);
        free(want), free(got), free(unused);
        tower_free(&c);
        remove_dir(dir);
    }
    ek_gpu_close(g);
    ek_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_as_the_host),
                                       cmocka_unit_test(the_executor_has_an_encoder),
                                       cmocka_unit_test(quantised_weights_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
