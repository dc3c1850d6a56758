/* The resize and the size it aims at: golden checksums of torch's and Pillow's kernels, and the definition in float64.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "draw.h"
#include "media/picture.h"
#include "media/resize_pass.h"

/* Computed by independent programs: Pillow 9.4.0 itself, and a port of torch's kernel. */
static void checksums_of_the_kernels(void **state)
{
    (void)state;
    static const struct {
        int w, h, budget, to_w, to_h, tokens;
        uint32_t in, pillow, torch;
    } c[] = {{100, 75, 70, 432, 336, 63, 0x87982936, 0x0362533d, 0x88425ef2},
             {640, 480, 280, 912, 672, 266, 0x4b8a983f, 0x51d55636, 0x3c5a8bf0},
             {1000, 750, 280, 912, 672, 266, 0x78124d40, 0xc642d9d5, 0x36d7a760},
             {64, 64, 70, 384, 384, 64, 0xa7382579, 0xfc7e81e6, 0x7a91584f},
             {333, 1000, 140, 288, 960, 120, 0x9bc44cc0, 0xb7bbe1e5, 0x79470654},
             {900, 3, 70, 3360, 48, 70, 0x706ff652, 0xd26ccd21, 0xe9b03cc2},
             {960, 672, 280, 960, 672, 280, 0x099aa4e7, 0x099aa4e7, 0x099aa4e7}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        for (int how = 0; how < 2; how++) {
            ek_image in = draw(c[i].w, c[i].h);
            ek_picture p;
            ek_picture_opts o = {.budget = c[i].budget, .resizer = how ? EK_RESIZE_PILLOW : EK_RESIZE_TORCH};
            assert_int_equal(ek_crc32(0, in.rgb, ek_image_bytes(&in)), c[i].in);
            assert_int_equal(ek_picture_make(&p, &in, &o), EK_OK);
            assert_int_equal(p.fit.width, c[i].to_w);
            assert_int_equal(p.fit.height, c[i].to_h);
            assert_int_equal(p.fit.tokens, c[i].tokens);
            assert_int_equal(ek_crc32(0, p.image.rgb, ek_image_bytes(&p.image)), how ? c[i].pillow : c[i].torch);
            ek_picture_free(&p);
            ek_image_free(&in);
        }
}

/* Sizes that transformers gives, roundings that lose a row among them. */
static void budgets_are_filled_as_transformers_does(void **state)
{
    (void)state;
    static const struct {
        int w, h, budget, to_w, to_h;
    } c[] = {{1, 1, 70, 384, 384},           {1, 1, 280, 768, 768},          {1, 1, 1120, 1584, 1584},
             {3840, 2160, 280, 1056, 576},   {1170, 2532, 1120, 1056, 2352}, {2550, 3300, 280, 672, 912},
             {10000, 100, 70, 3360, 48},     {10000, 100, 1120, 16032, 144}, {900, 3, 280, 13440, 48},
             {900, 3, 1120, 27792, 48},      {12320, 176, 70, 3312, 48},     {12320, 176, 280, 6672, 96},
             {12320, 176, 1120, 13392, 192}, {880, 616, 70, 432, 336},       {3, 500, 70, 48, 3360}};
    ek_image_fit fit;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        assert_int_equal(ek_image_fit_budget(&fit, c[i].w, c[i].h, c[i].budget, (ek_patching){0}), EK_OK);
        assert_int_equal(fit.width, c[i].to_w);
        assert_int_equal(fit.height, c[i].to_h);
        assert_int_equal(fit.tokens, c[i].to_w / 48 * (c[i].to_h / 48));
    }
    for (int w = 1; w <= 32768; w = w * 3 / 2 + 1)
        for (int h = 1; h <= 32768; h = h * 3 / 2 + 1)
            for (int b = 70; b <= 1120; b *= 2) {
                assert_int_equal(ek_image_fit_budget(&fit, w, h, b, (ek_patching){0}), EK_OK);
                assert_true(fit.tokens >= 1 && fit.tokens <= b && fit.width % 48 == 0 && fit.height % 48 == 0);
            }
    for (int b = -1; b < 1200; b++)
        if (!ek_budget_known(b)) assert_int_equal(ek_image_fit_budget(&fit, 10, 10, b, (ek_patching){0}), EK_EINVAL);
}

static double cubic(double x)
{
    x = fabs(x);
    return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/* One axis by the definition, without rounding: every input, weighed by its distance. */
static double at(const double *v, int n, int i, double scale)
{
    double wide = scale > 1 ? scale : 1, c = (i + 0.5) * scale, sum = 0, all = 0;
    for (int j = 0; j < n; j++) {
        double w = fabs(j + 0.5 - c) < 2 * wide ? cubic((j + 0.5 - c) / wide) : 0;
        sum += w * v[j], all += w;
    }
    return sum / all;
}

/* Within what rounding to 8 bits twice and to 14 bits of weight can do. */
static void resize_against_its_definition(void **state)
{
    (void)state;
    static const int sizes[][4] = {
        {40, 30, 96, 48}, {97, 61, 48, 48}, {50, 200, 48, 96}, {5, 3, 48, 144}, {48, 90, 48, 48}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int w = sizes[k][0], h = sizes[k][1], tw = sizes[k][2], th = sizes[k][3];
        ek_image in = draw(w, h), out[2];
        for (int how = 0; how < 2; how++) assert_int_equal(ek_image_resize(&out[how], &in, tw, th, how), EK_OK);
        double *mid = calloc((size_t)h, sizeof *mid), *row = calloc((size_t)w, sizeof *row), worst = 0;
        for (int x = 0; x < tw; x++) {
            for (int y = 0; y < h; y++) {
                for (int j = 0; j < w; j++) row[j] = in.rgb[3 * (j + y * w) + 1];
                double v = w == tw ? row[x] : at(row, w, x, (double)w / tw);
                mid[y] = fmin(fmax(v, 0), 255);
            }
            for (int y = 0; y < th; y++) {
                double want = fmin(fmax(at(mid, h, y, (double)h / th), 0), 255);
                for (int how = 0; how < 2; how++) worst = fmax(worst, fabs(want - out[how].rgb[3 * (x + y * tw) + 1]));
            }
        }
        assert_true(worst < 2.0); /* measured 1.6 */
        free(mid);
        free(row);
        for (int how = 0; how < 2; how++) ek_image_free(&out[how]);
        ek_image_free(&in);
    }
}

static void patches_and_positions(void **state)
{
    (void)state;
    ek_image in = draw(333, 1000);
    ek_picture p;
    ek_picture_opts o = {.budget = 70, .resizer = EK_RESIZE_TORCH};
    assert_int_equal(ek_picture_make(&p, &in, &o), EK_OK);
    for (int kind = 0; kind < 2; kind++) {
        int side = ek_patch_side(&p.fit, kind), floats = ek_patch_floats(&p.fit, kind),
            n = ek_patch_count(&p.fit, kind);
        assert_int_equal(n, kind == EK_PATCH_TOWER ? 9 * p.fit.tokens : p.fit.tokens);
        float *v = calloc((size_t)n * (size_t)floats, sizeof *v), part[6912];
        int32_t *at_xy = calloc(2 * (size_t)n, sizeof *at_xy);
        ek_picture_patches(v, at_xy, &p, kind, 0, n);
        for (int i = 0; i < n; i++) {
            int x = i % (p.fit.width / side), y = i / (p.fit.width / side);
            assert_int_equal(at_xy[2 * i], x);
            assert_int_equal(at_xy[2 * i + 1], y);
            for (int j = 0; j < floats; j++) {
                int px = x * side + j / 3 % side, py = y * side + j / 3 / side;
                float s = (float)p.image.rgb[3 * (px + py * p.fit.width) + j % 3] * (float)(1.0 / 255.0);
                float want = kind == EK_PATCH_TOWER ? 2.0f * (s - 0.5f) : s;
                assert_memory_equal(&v[i * floats + j], &want, sizeof want);
            }
            ek_picture_patches(part, NULL, &p, kind, i, 1);
            assert_memory_equal(part, v + (size_t)i * (size_t)floats, (size_t)floats * sizeof *part);
        }
        free(v);
        free(at_xy);
    }
    ek_picture_free(&p);
    ek_image_free(&in);
}

/* The same pixels have one digest, whatever file they came in; another pixel, size or kernel another. */
static void digests_name_the_pixels(void **state)
{
    (void)state;
    ek_image image = draw(30, 20);
    ek_buf png = {0}, webp = {0};
    put_png(&png, image.rgb, 30, 20, 2, 8, false, 0);
    put_webp(&webp, &image);
    ek_picture a, b;
    ek_picture_cost cost;
    ek_picture_opts o = {.budget = 70, .resizer = EK_RESIZE_TORCH};
    assert_int_equal(ek_picture_probe(&cost, png.data, png.len, &o), EK_OK);
    assert_int_equal(ek_picture_read(&a, png.data, png.len, &o), EK_OK);
    assert_int_equal(cost.fit.tokens, a.fit.tokens);
    assert_int_equal(ek_picture_read(&b, webp.data, webp.len, &o), EK_OK);
    assert_memory_equal(a.digest, b.digest, 32);
    ek_picture_free(&b);
    for (int change = 0; change < 3; change++) {
        ek_picture_opts other = {.budget = change == 0 ? 140 : 70,
                                 .resizer = change == 1 ? EK_RESIZE_PILLOW : EK_RESIZE_TORCH};
        if (change == 2) image.rgb[0] ^= 128;
        assert_int_equal(ek_picture_make(&b, &image, &other), EK_OK);
        assert_memory_not_equal(a.digest, b.digest, 32);
        ek_picture_free(&b);
    }
    o.budget = 100;
    assert_int_equal(ek_picture_read(&b, png.data, png.len, &o), EK_EINVAL);
    assert_string_equal(ek_err_text(), "a picture of 100 tokens; 70, 140, 280, 560 or 1120 are possible");
    ek_picture_free(&a);
    ek_buf_fini(&png);
    ek_buf_fini(&webp);
    ek_image_free(&image);
}

/* Every width and number of weights, the largest of both kinds among them: each kernel has the bytes of the definition.
 */
static void passes_against_their_definition(void **state)
{
    (void)state;
    enum { IN = 40, OUT = 9 };
    uint8_t from[IN * 3 * OUT], want[3 * IN], got[3 * IN];
    ek_resize_tap taps[OUT];
    int32_t weight[IN * OUT];
    uint32_t low[IN * OUT / 2], high[IN * OUT / 2];
    uint32_t seed = 1;
    int n_kernels;
    const ek_resize_kernels *all = ek_resize_kernels_all(&n_kernels);
    for (int turn = 0; turn < 400; turn++) {
        const int largest = turn % 2 ? 1 << 22 : 32767, n = 1 + turn % IN;
        ek_resize_pass p = {.in = n, .out = OUT, .tap = taps, .weight = weight, .low = low, .high = high};
        p.precision = turn % 2 ? 22 : 15;
        for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
        for (int i = 0; i < OUT; i++) {
            const int first = i % n, count = n - first < OUT ? n - first : OUT;
            taps[i] = (ek_resize_tap){.first = first, .n = count, .at = (size_t)i * IN};
            for (int j = 0; j < count; j++) {
                seed = seed * 1664525u + 1013904223u;
                weight[i * IN + j] = j == i % count ? largest : (int32_t)(seed >> 8) % (largest / 8) - largest / 16;
            }
        }
        ek_resize_pairs(&p);
        const uint8_t *rows[OUT];
        for (int j = 0; j < OUT; j++) rows[j] = from + 3 * IN * j;
        void *room = malloc(ek_resize_along_room(n));
        for (int k = 1; k < n_kernels; k++) {
            all->along(want, from, &p, NULL);
            all[k].along(got, from, &p, room);
            assert_memory_equal(got, want, 3 * OUT);
            for (int i = 0; i < OUT; i++) {
                all->over(want, rows, (size_t)(3 * n), &p, i);
                all[k].over(got, rows, (size_t)(3 * n), &p, i);
                assert_memory_equal(got, want, 3 * (size_t)n);
            }
        }
        free(room);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_of_the_kernels),      cmocka_unit_test(budgets_are_filled_as_transformers_does),
        cmocka_unit_test(resize_against_its_definition), cmocka_unit_test(patches_and_positions),
        cmocka_unit_test(digests_name_the_pixels),       cmocka_unit_test(passes_against_their_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
