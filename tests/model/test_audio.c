/* Audio towers against transformers' steps in float64; the same bits however the work is cut, on any instruction set
 * and number of threads; what is refused; the 12B's runs of samples. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audio_exact.h"
#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "../support/gguf_model.h"
#include "../support/hashed.h"

static void check_against(const audio_spec *s, const char *what, const int *samples, int n_clips, double least_cut)
{
    char *dir = temp_dir();
    audio_write(dir, s);
    ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL);
    for (int c = 0; c < n_clips; c++) {
        int n, wanted;
        double cut, worst = 0, top = 0;
        ek_sound sound = audio_clip(samples[c], (uint64_t)c);
        double *want = audio_exact(s, &sound, &wanted, &cut);
        float *got = audio_rows(t, &sound, 1e12, &n);
        assert_int_equal(n, wanted);
        for (int i = 0; i < n * s->text; i++) {
            worst = fmax(worst, fabs((double)got[i] - want[i]));
            top = fmax(top, fabs(want[i]));
        }
        print_message("%s, %d tokens: largest difference %.2g, largest value %.3g, %.0f %% clipped\n", what, n, worst,
                      top, 100 * cut);
        if (!(worst <= 1e-4 * top)) fail_msg("%s: differs by %g", what, worst);
        assert_true(cut >= least_cut);
        free(want), free(got);
        ek_sound_free(&sound);
    }
    ek_towers_close(t);
    remove_dir(dir);
}

/* Lengths about the edges of blocks: 1, 2, 11, 12, 13, 24, 25 and 48 tokens. */
static void rows_are_those_of_transformers(void **state)
{
    (void)state;
    static const int samples[] = {161, 641, 801, 6561, 7361, 7841, 8001, 15201, 15841, 30400};
    const audio_spec s = audio_a1();
    check_against(&s, "12 keys", samples, 10, 0.2);
}

static void numbers_come_from_the_configuration(void **state)
{
    (void)state;
    static const int samples[] = {5000, 20000};
    audio_spec s = audio_a1();
    s.chunk = 4, s.left = 5, s.taps = 3, s.cap = 2, s.residual = 0.25, s.eps = 1e-2, s.limit = 0.7;
    check_against(&s, "4 keys, other numbers", samples, 2, 0.2);
    s = audio_a1();
    s.hidden = 54, s.heads = 3, s.layers = 3, s.channels1 = 3, s.taps = 8, s.output = 37, s.text = 19, s.f32 = true;
    check_against(&s, "odd sizes, float32", samples, 2, 0.2);
    s = audio_a1();
    s.clips = false;
    check_against(&s, "without clips", samples, 2, 0);
}

static void same(const char *what, const float *want, int n, const float *got, int m, int width)
{
    if (n != m || memcmp(want, got, sizeof *want * (size_t)n * (size_t)width) != 0) fail_msg("%s: other bits", what);
}

static void no_cut_and_no_machine_changes_a_bit(void **state)
{
    (void)state;
    char *dir = temp_dir();
    const audio_spec s = audio_a1();
    int n, m;
    audio_write(dir, &s);
    ek_sound sound = audio_clip(150000, 3); /* 235 tokens: more than one block */
    ek_towers *t = audio_open(dir, 0, NULL);
    float *want = audio_rows(t, &sound, INFINITY, &n);
    uint64_t digest, other;
    assert_int_equal(ek_towers_digest_sound(t, &digest), EK_OK);
    ek_towers_close(t);
    for (const char *const *isa = ek_cpu_isas(); *isa; isa++)
        for (int threads = 1; threads <= 3; threads++) {
            unsigned cpu;
            ek_pool *pool;
            assert_int_equal(ek_cpu_mask(*isa, &cpu), EK_OK);
            assert_int_equal(ek_pool_open(&pool, threads), EK_OK);
            t = audio_open(dir, cpu, pool);
            const double macs[] = {1, 3e5, 1e6, 7.7e6, INFINITY};
            for (size_t i = 0; i < sizeof macs / sizeof *macs; i++) {
                float *got = audio_rows(t, &sound, macs[i], &m);
                same(*isa, want, n, got, m, s.text);
                free(got);
            }
            assert_int_equal(ek_towers_digest_sound(t, &other), EK_OK);
            assert_true(digest == other);
            ek_towers_close(t);
            ek_pool_close(pool);
        }
    free(want);
    ek_sound_free(&sound);
    remove_dir(dir);
}

/* Two clips in turns give what each gives alone, and what follows a sound reaches none of its rows. */
static void clips_do_not_know_each_other(void **state)
{
    (void)state;
    char *dir = temp_dir();
    const audio_spec s = audio_a1();
    audio_write(dir, &s);
    ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL);
    ek_sound clip[2] = {audio_clip(16000, 1), audio_clip(48000, 2)};
    float *alone[2];
    int n[2], m;
    for (int i = 0; i < 2; i++) alone[i] = audio_rows(t, &clip[i], 1e6, &n[i]);
    ek_tower_work *w[2];
    bool done[2] = {false};
    for (int i = 0; i < 2; i++) assert_int_equal(ek_tower_begin_sound(&w[i], t, &clip[i]), EK_OK);
    while (!done[0] || !done[1])
        for (int i = 0; i < 2; i++) ek_tower_advance(w[i], 5e5, &done[i]);
    for (int i = 0; i < 2; i++) {
        const float *rows = ek_tower_rows(w[i], &m);
        same("together", alone[i], n[i], rows, m, s.text);
        ek_tower_free(w[i]);
    }
    ek_sound longer = audio_clip(48000, 9);
    memcpy(longer.v, clip[0].v, sizeof *longer.v * 16000);
    float *rows = audio_rows(t, &longer, 1e6, &m);
    same("followed by another", alone[0], n[0] - 1, rows, n[0] - 1, s.text); /* the last one sees frames behind it */
    assert_true(memcmp(alone[1], rows, sizeof *rows * (size_t)s.text) != 0);
    free(rows), free(alone[0]), free(alone[1]);
    ek_sound_free(&longer), ek_sound_free(&clip[0]), ek_sound_free(&clip[1]);
    ek_towers_close(t);
    remove_dir(dir);
}

static void both_layouts_of_files_give_the_same(void **state)
{
    (void)state;
    audio_spec s = audio_a1();
    ek_sound sound = audio_clip(20000, 5);
    float *rows[2];
    uint64_t digest[2];
    int n[2];
    for (int i = 0; i < 2; i++) {
        char *dir = temp_dir();
        s.mlx = i == 1;
        audio_write(dir, &s);
        ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL);
        rows[i] = audio_rows(t, &sound, 1e9, &n[i]);
        assert_int_equal(ek_towers_digest_sound(t, &digest[i]), EK_OK);
        ek_towers_close(t);
        remove_dir(dir);
    }
    same("mlx-vlm's layout", rows[0], n[0], rows[1], n[1], s.text);
    assert_true(digest[0] == digest[1]);
    free(rows[0]), free(rows[1]);
    ek_sound_free(&sound);
}

/* In exact mode quantised matrices give the bits of the values that they stand for; otherwise they are near, and the
 * same on any instruction set. */
static void quantised_towers(void **state)
{
    (void)state;
    audio_spec s = audio_a1();
    char *floats = temp_dir(), *codes = temp_dir();
    ek_sound sound = audio_clip(60000, 8);
    float *rows[2], top = 0;
    int n, m;
    s.codes = s.f32 = true;
    audio_write(floats, &s);
    s.mlx = true;
    audio_write(codes, &s);
    for (int i = 0; i < 2; i++) {
        ek_towers *t;
        const ek_towers_opts o = {.cpu = ek_cpu_detect(), .exact = true};
        if (ek_towers_open(&t, i ? codes : floats, &o)) fail_msg("%s", ek_err_text());
        rows[i] = audio_rows(t, &sound, 1e7, i ? &m : &n);
        ek_towers_close(t);
    }
    same("exact", rows[0], n, rows[1], m, s.text);
    free(rows[1]);
    for (int i = 0; i < n * s.text; i++) top = fmaxf(top, fabsf(rows[0][i]));
    float *first = NULL;
    for (const char *const *isa = ek_cpu_isas(); *isa; isa++) {
        unsigned cpu;
        assert_int_equal(ek_cpu_mask(*isa, &cpu), EK_OK);
        ek_towers *t = audio_open(codes, cpu, NULL);
        float *got = audio_rows(t, &sound, first ? 3e5 : INFINITY, &m), worst = 0;
        ek_towers_close(t);
        for (int i = 0; i < n * s.text; i++) worst = fmaxf(worst, fabsf(got[i] - rows[0][i]));
        if (first) same(*isa, first, n, got, m, s.text), free(got);
        else print_message("quantised: largest difference %.2g of %.3g\n", (double)worst, (double)top), first = got;
        assert_true(worst > 0 && worst < 0.01f * top);
    }
    free(first), free(rows[0]);
    ek_sound_free(&sound);
    remove_dir(floats), remove_dir(codes);
}

static audio_spec of_model;

static void put_ollama(gguf_file *f)
{
    audio_put_gguf(f, &of_model, true);
}

/* llama.cpp's mmproj file beside a model, and Ollama's one file: the bytes of the safetensors. */
static void gguf_gives_the_same(void **state)
{
    (void)state;
    ek_config *config = ek_alloc(sizeof *config);
    char *dir = temp_dir(), *llama = temp_dir(), *ollama = temp_dir(), path[256];
    gguf_file f = {0};
    int n, m;
    assert_int_equal(ek_config_tiny(config, "T1"), EK_OK);
    of_model = audio_a1();
    of_model.text = config->hidden_size;
    audio_write(dir, &of_model);
    ek_sound sound = audio_clip(20000, 6);
    ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL);
    float *want = audio_rows(t, &sound, 1e9, &n);
    ek_towers_close(t);
    write_gguf(llama, "model.gguf", config, &(gguf_opts){.type = GGUF_F32}, NULL);
    gguf_text(&f, "general.architecture", "clip");
    gguf_text(&f, "clip.audio.projector_type", "gemma4a");
    audio_put_gguf(&f, &of_model, false);
    gguf_save(&f, llama, "mmproj.gguf");
    write_gguf(ollama, "model.gguf", config, &(gguf_opts){.type = GGUF_F32, .extra = put_ollama}, NULL);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/model.gguf", i ? ollama : llama);
        t = audio_open(path, ek_cpu_detect(), NULL);
        if (!ek_towers_get(t)->sound) fail_msg("%s has no ears", i ? "Ollama's file" : "llama.cpp's file");
        float *got = audio_rows(t, &sound, 1e9, &m);
        same(i ? "Ollama's file" : "llama.cpp's file", want, n, got, m, of_model.text);
        free(got);
        ek_towers_close(t);
    }
    free(want), free(config);
    ek_sound_free(&sound);
    remove_dir(dir), remove_dir(llama), remove_dir(ollama);
}

/* A digest tells towers apart whose weights are alike: by a bound, and by a number of the configuration. */
static void digests_tell_towers_apart(void **state)
{
    (void)state;
    audio_spec s[4] = {audio_a1(), audio_a1(), audio_a1(), audio_a1()};
    uint64_t digest[4];
    s[1].replace = "audio_tower.layers.1.lconv1d.linear_end.output_max", s[1].with = 5.0f;
    s[2].cap = 49;
    s[3].replace = "audio_tower.layers.0.norm_out.weight", s[3].with = 0.5f;
    for (int i = 0; i < 4; i++) {
        char *dir = temp_dir();
        audio_write(dir, &s[i]);
        ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL);
        assert_int_equal(ek_towers_digest_sound(t, &digest[i]), EK_OK);
        for (int j = 0; j < i; j++) assert_true(digest[j] != digest[i]);
        ek_towers_close(t);
        remove_dir(dir);
    }
}

static void check_refused(const audio_spec *s, const char *says)
{
    char *dir = temp_dir();
    ek_towers *t = NULL;
    const ek_towers_opts o = {.cpu = ek_cpu_detect()};
    audio_write(dir, s);
    if (ek_towers_open(&t, dir, &o) == EK_OK) fail_msg("opened; should say %s", says);
    if (!strstr(ek_err_text(), says)) fail_msg("says \"%s\", should say \"%s\"", ek_err_text(), says);
    remove_dir(dir);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const audio_spec good = audio_a1();
    audio_spec s = good;
    s.chunk = 4, s.left = 7;
    check_refused(&s, "attention_chunk_size is 4 and attention_context_left 7");
    s = good, s.right = 2;
    check_refused(&s, "attention_context_right is 2");
    s = good, s.channels0 = 64;
    check_refused(&s, "subsampling_conv_channels begins with 64, 128 can be run");
    s = good, s.heads = 5;
    check_refused(&s, "hidden_size is 32, which 5 heads cannot share evenly");
    s = good, s.chunk = 300, s.left = 301;
    check_refused(&s, "at most 256");
    s = good, s.skip = "audio_tower.layers.1.self_attn.post.input_max";
    check_refused(&s, "audio_tower.layers.1.self_attn.post.input_max is missing");
    s = good, s.replace = "audio_tower.layers.0.lconv1d.linear_start.output_min", s.with = NAN;
    check_refused(&s, "is no number");
    s = good, s.replace = "audio_tower.layers.0.feed_forward2.ffw_layer_1.input_min", s.with = 100;
    check_refused(&s, "input_min of audio_tower.layers.0.feed_forward2.ffw_layer_1 is 100, above its input_max");
    static const char *const needed[] = {
        "audio_tower.subsample_conv_projection.layer0.conv.weight",
        "audio_tower.subsample_conv_projection.layer1.norm.weight",
        "audio_tower.layers.1.lconv1d.depthwise_conv1d.weight",
        "audio_tower.layers.0.self_attn.per_dim_scale",
        "audio_tower.output_proj.bias",
        "embed_audio.embedding_projection.weight",
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        s = good, s.skip = needed[i];
        check_refused(&s, needed[i]);
    }
}

static void lengths_are_checked(void **state)
{
    (void)state;
    char *dir = temp_dir();
    const audio_spec s = audio_a1();
    audio_write(dir, &s);
    ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL);
    static const int bad[] = {0, 1, 160, 480001};
    ek_tower_work *w;
    ek_tower_cost cost;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ek_sound sound = audio_clip(bad[i] ? bad[i] : 1, 1);
        sound.samples = bad[i];
        assert_int_equal(ek_tower_begin_sound(&w, t, &sound), EK_EINVAL);
        assert_int_equal(ek_tower_cost_sound(&cost, t, bad[i]), EK_EINVAL);
        ek_sound_free(&sound);
    }
    assert_int_equal(ek_tower_cost_sound(&cost, t, 480000), EK_OK);
    assert_int_equal(cost.rows, 750);
    ek_sound sound = audio_clip(480000, 1);
    assert_int_equal(ek_tower_begin_sound(&w, t, &sound), EK_OK);
    assert_true(fabs(ek_tower_left(w) - cost.macs) < 1e-6 * cost.macs);
    ek_tower_free(w); /* before it is done */
    ek_sound_free(&sound);
    ek_towers_close(t);
    remove_dir(dir);
}

/* ------------------------------------------------------------------ without a tower */

enum { TEXT = 40, RUN = 640 };

static void write_unified(const char *dir, int run)
{
    ek_buf b = {0};
    st_file f = {0};
    static float w[TEXT * RUN];
    for (int i = 0; i < TEXT * RUN; i++) w[i] = hashed_weight("embed_audio.embedding_projection.weight", (uint64_t)i);
    st_add(&f, "model.embed_audio.embedding_projection.weight", "F32", 2, (int64_t[]){TEXT, RUN}, w, sizeof w);
    st_save(&f, dir, "model.safetensors");
    ek_buf_fmt(&b,
               "{\"model_type\": \"gemma4_unified\", \"text_config\": {\"hidden_size\": %d, \"vocab_size\": 512}, "
               "\"audio_config\": {\"model_type\": \"gemma4_unified_audio\", \"audio_embed_dim\": %d, "
               "\"rms_norm_eps\": 1e-6}}",
               TEXT, run);
    put_text(dir, "config.json", ek_buf_text(&b));
    ek_buf_fini(&b);
}

static void runs_of_samples(void **state)
{
    (void)state;
    char *dir = temp_dir();
    write_unified(dir, RUN);
    ek_towers *t = audio_open(dir, ek_cpu_detect(), NULL), *plain = audio_open(dir, 0, NULL);
    assert_int_equal(ek_towers_get(t)->sound_kind, EK_SOUND_UNIFIED);
    static const int samples[] = {1, 639, 640, 641, 200000, 480000};
    for (size_t c = 0; c < sizeof samples / sizeof *samples; c++) {
        int n, m;
        ek_sound s = audio_clip(samples[c], c);
        float *got = audio_rows(t, &s, 1e6, &n), *scalar = audio_rows(plain, &s, INFINITY, &m);
        assert_int_equal(n, (samples[c] + RUN - 1) / RUN);
        same("runs", got, n, scalar, m, TEXT);
        for (int r = 0; r < n; r++) {
            double ss = 0;
            for (int i = r * RUN; i < (r + 1) * RUN && i < s.samples; i++) ss += (double)s.v[i] * (double)s.v[i] / RUN;
            for (int o = 0; o < TEXT && r % 7 == 0; o++) {
                double y = 0;
                for (int i = 0; i < RUN && r * RUN + i < s.samples; i++)
                    y += (double)s.v[r * RUN + i] / sqrt(ss + 1e-6) *
                         (double)hashed_weight("embed_audio.embedding_projection.weight", (uint64_t)(o * RUN + i));
                assert_true(fabs((double)got[r * TEXT + o] - y) < 2e-4);
            }
        }
        free(got), free(scalar);
        ek_sound_free(&s);
    }
    put_text(dir, "config.json",
             "{\"model_type\": \"gemma4_unified\", \"audio_config\": {}, " /* as GGUF files know it */
             "\"text_config\": {\"hidden_size\": 40, \"vocab_size\": 512}}");
    ek_towers *nameless = audio_open(dir, 0, NULL);
    assert_int_equal(ek_towers_get(nameless)->sound_kind, EK_SOUND_UNIFIED);
    ek_towers_close(nameless);
    ek_sound none = {0};
    ek_tower_work *w;
    assert_int_equal(ek_tower_begin_sound(&w, t, &none), EK_EINVAL);
    ek_towers_close(t), ek_towers_close(plain);
    write_unified(dir, 320);
    const ek_towers_opts o = {.cpu = 0};
    assert_int_equal(ek_towers_open(&t, dir, &o), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "audio_embed_dim is 320, 640 samples can be run"));
    remove_dir(dir);
}

static void a_model_without_ears_says_so(void **state)
{
    (void)state;
    char *dir = temp_dir();
    write_unified(dir, RUN);
    put_text(dir, "config.json",
             "{\"model_type\": \"gemma4\", \"audio_config\": null, "
             "\"text_config\": {\"hidden_size\": 40, \"vocab_size\": 512}}");
    ek_towers *t = audio_open(dir, 0, NULL);
    assert_false(ek_towers_get(t)->sound);
    assert_int_equal(ek_towers_takes_sound(t), EK_EUNSUPPORTED);
    assert_non_null(strstr(ek_err_text(), "takes no audio"));
    ek_towers_close(t);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_transformers),
        cmocka_unit_test(numbers_come_from_the_configuration),
        cmocka_unit_test(no_cut_and_no_machine_changes_a_bit),
        cmocka_unit_test(clips_do_not_know_each_other),
        cmocka_unit_test(both_layouts_of_files_give_the_same),
        cmocka_unit_test(gguf_gives_the_same),
        cmocka_unit_test(quantised_towers),
        cmocka_unit_test(digests_tell_towers_apart),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(runs_of_samples),
        cmocka_unit_test(a_model_without_ears_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
