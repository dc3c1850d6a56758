/* WAV against the numbers it was made of, log-mel rows against their definition, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coded.h"
#include "draw.h"
#include "media/limits.h"
#include "media/mel.h"
#include "media/real.h"

static void put_number(ek_buf *to, double v, unsigned codec, unsigned bits)
{
    uint64_t u = 0;
    float f = (float)v;
    if (codec == 3 && bits == 32) memcpy(&u, &f, 4);
    else if (codec == 3) memcpy(&u, &v, 8);
    else u = (uint64_t)(int64_t)(v * (double)(1ull << (bits - 1))) + (bits == 8 ? 128u : 0u);
    for (unsigned i = 0; i < bits / 8; i++) ek_buf_char(to, (char)(u >> 8 * i));
}

/* Numbers that every form holds exactly; the channels' mean too. */
static void every_form_of_wav(void **state)
{
    (void)state;
    static const unsigned forms[][2] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}};
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++)
        for (unsigned channels = 1; channels <= 8; channels *= 2) {
            ek_buf data = {0}, file = {0};
            double want[500];
            for (int i = 0; i < 500; i++) {
                double sum = 0;
                for (unsigned c = 0; c < channels; c++) {
                    double v = (i * 37 + (int)c * 11) % 256 / 128.0 - 1.0;
                    put_number(&data, v, forms[k][0], forms[k][1]);
                    sum += v;
                }
                want[i] = sum / channels;
            }
            put_wav(&file, forms[k][0], channels, 16000, forms[k][1], data.data, data.len);
            ek_sound s;
            if (ek_sound_read(&s, file.data, file.len, EK_SOUND_SECONDS)) fail_msg("%s", ek_err_text());
            assert_int_equal(s.samples, 500);
            for (int i = 0; i < 500; i++) assert_true((double)s.v[i] == want[i]);
            ek_sound_free(&s);
            ek_buf_fini(&data);
            ek_buf_fini(&file);
        }
}

static ek_sound tone(double hz, int rate, int n)
{
    ek_sound s = {.samples = n, .v = calloc((size_t)n, sizeof(float))};
    for (int i = 0; i < n; i++) s.v[i] = (float)(0.5 * sin(2 * M_PI * hz * i / rate));
    return s;
}

/* 440 Hz for a second: numbers of another implementation in float64, in the bound that is kept to transformers'
 * extractor. */
static void golden_rows(void **state)
{
    (void)state;
    static const int bin[] = {0, 8, 15, 16, 17, 18, 32, 64, 96, 127}, frame[] = {0, 1, 50};
    static const double want[3][10] = {
        {-6.90776, 0.26338, 1.04222, 1.25516, 0.73248, 1.71693, 0.87149, -1.24126, -2.03982, -2.15303},
        {-6.90776, -3.94349, -2.37697, -1.79361, -1.81220, -0.22084, -1.79343, -6.39755, -6.83370, -6.90178},
        {-6.90776, -3.85388, -2.39067, -1.78156, -1.80697, -0.22039, -1.79621, -6.45938, -6.84423, -6.90165}};
    ek_sound s = tone(440, 16000, 16000);
    static float rows[99 * EK_MEL_BINS];
    assert_int_equal(ek_mel_frames(s.samples), 99);
    ek_mel_rows(rows, &s);
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 10; i++)
            assert_true(fabs((double)rows[frame[f] * EK_MEL_BINS + bin[i]] - want[f][i]) < 1e-4);
    memset(s.v, 0, 16000 * sizeof(float));
    s.v[1000] = 1;
    ek_mel_rows(rows, &s);
    for (int f = 0; f < 99; f++)
        for (int b = 1; b < EK_MEL_BINS; b++) /* bin 0 hears nothing */
            if (f != 6 && f != 7) assert_true(fabs((double)rows[f * EK_MEL_BINS + b] + 6.9077554) < 1e-6);
    assert_true(fabs((double)rows[6 * EK_MEL_BINS + 32] + 0.37293) < 1e-5);
    assert_true(fabs((double)rows[6 * EK_MEL_BINS + 127] - 1.51151) < 1e-5);
    ek_sound_free(&s);
}

/* The definition with libm and a plain sum over time, for noise. */
static void rows_against_their_definition(void **state)
{
    (void)state;
    enum { N = 1300 };
    ek_sound s = {.samples = N, .v = calloc(N, sizeof(float))};
    for (uint32_t i = 0, r = 1; i < N; i++, r = r * 1664525 + 1013904223) s.v[i] = (float)((int32_t)r) / 2147483648.0f;
    static float rows[8 * EK_MEL_BINS];
    assert_int_equal(ek_mel_frames(N), 8);
    ek_mel_rows(rows, &s);
    for (int t = 0; t < 8; t++) {
        double magnitude[257];
        for (int k = 0; k <= 256; k++) {
            double re = 0, im = 0;
            for (int i = 0; i < 320; i++) {
                int from = 160 * t - 160 + i;
                double w = (float)(0.5 - 0.5 * cos(2 * M_PI * i / 320)), v = from < 0 ? 0 : (double)s.v[from] * w;
                re += v * cos(2 * M_PI * i * k / 512), im -= v * sin(2 * M_PI * i * k / 512);
            }
            magnitude[k] = hypot(re, im);
        }
        for (int m = 0; m < EK_MEL_BINS; m++) {
            double edge[3], sum = 0;
            for (int e = 0; e < 3; e++)
                edge[e] = 700 * (pow(10, (m + e) * (2595 * log10(1 + 8000 / 700.0)) / 129 / 2595) - 1);
            for (int k = 0; k <= 256; k++) {
                double hz = 31.25 * k;
                double w = fmin((hz - edge[0]) / (edge[1] - edge[0]), (edge[2] - hz) / (edge[2] - edge[1]));
                if (w > 0) sum += w * magnitude[k];
            }
            assert_true(fabs((double)rows[t * EK_MEL_BINS + m] - log(sum + 0.001)) < 1e-6);
        }
    }
    ek_sound_free(&s);
}

static void functions_of_our_own(void **state)
{
    (void)state;
    for (int n = 1; n < 600; n += 7)
        for (int i = 0; i < n; i++) {
            double c, s;
            ek_real_cos_sin(i, n, &c, &s);
            assert_true(fabs(c - (double)cosl(2 * 3.14159265358979323846264338L * i / n)) < 1e-15);
            assert_true(fabs(s - (double)sinl(2 * 3.14159265358979323846264338L * i / n)) < 1e-15);
        }
    for (double x = -650; x < 650; x += 0.37) assert_true(fabs(ek_real_exp(x) / (double)expl(x) - 1) < 2e-15);
    for (double x = 1e-300; x < 1e300; x *= 1.37) {
        double want = (double)logl(x);
        assert_true(fabs(ek_real_ln(x) - want) < 1e-15 + 4e-16 * fabs(want));
    }
}

static void tokens_of_samples(void **state)
{
    (void)state;
    static const int c[][3] = {{161, 1, 1},       {640, 3, 1},        {641, 4, 1},        {801, 5, 2},
                               {1280, 7, 2},      {8000, 49, 13},     {16000, 99, 25},    {16001, 100, 25},
                               {80000, 499, 125}, {160000, 999, 250}, {480000, 2999, 750}};
    int n;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        assert_int_equal(ek_mel_frames(c[i][0]), c[i][1]);
        assert_int_equal(ek_sound_tokens(&n, c[i][0], EK_SOUND_TOWER), EK_OK);
        assert_int_equal(n, c[i][2]);
        assert_int_equal(ek_sound_tokens(&n, c[i][0], EK_SOUND_UNIFIED), EK_OK);
        assert_int_equal(n, (c[i][0] + 639) / 640);
    }
    assert_int_equal(ek_sound_tokens(&n, 160, EK_SOUND_TOWER), EK_EINVAL);
    assert_int_equal(ek_sound_tokens(&n, 0, EK_SOUND_UNIFIED), EK_EINVAL);
    assert_int_equal(ek_sound_tokens(&n, 480001, EK_SOUND_TOWER), EK_EINVAL);
}

static void refused(const ek_buf *file, ek_err err, const char *words)
{
    ek_sound s;
    assert_int_equal(ek_sound_read(&s, file->data, file->len, EK_SOUND_SECONDS), err);
    assert_null(s.v);
    if (!strstr(ek_err_text(), words)) fail_msg("\"%s\" says nothing of \"%s\"", ek_err_text(), words);
}

static void limits_of_sounds(void **state)
{
    (void)state;
    static const struct {
        unsigned channels, rate, bits;
        size_t bytes;
        ek_err err;
        const char *words;
    } c[] = {{1, 16000, 16, 960002, EK_EINVAL,
              "of 30.0 s, 480001 samples at 16000 per second; at most 30 s, 480000 samples"},
             {1, 8000, 8, 240001, EK_EINVAL, "240001 samples"},
             {1, 7999, 16, 1000, EK_EINVAL, "7999 samples per second; 8000 to 192000"},
             {1, 192001, 16, 1000, EK_EINVAL, "192001 samples per second"},
             {9, 16000, 16, 1800, EK_EINVAL, "9 channels, 1 to 8"},
             {0, 16000, 16, 100, EK_EPARSE, "size of its frames"},
             {1, 16000, 16, 0, EK_EINVAL, "0 samples"}};
    char *zeros = calloc(1, 1000000);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        ek_buf b = {0};
        put_wav(&b, 1, c[i].channels, c[i].rate, c[i].bits, zeros, c[i].bytes);
        refused(&b, c[i].err, c[i].words);
        ek_buf_fini(&b);
    }
    ek_buf b = {0};
    float bad[200] = {0};
    bad[77] = NAN;
    put_wav(&b, 3, 1, 16000, 32, bad, sizeof bad);
    refused(&b, EK_EPARSE, "sample 77 is not a finite number");
    ek_buf_clear(&b);
    put_wav(&b, 1, 1, 16000, 16, zeros, 1000);
    for (size_t n = 0; n < b.len; n++) { /* cut anywhere */
        ek_sound s;
        char *exact = malloc(n + 1);
        memcpy(exact, b.data, n);
        assert_int_not_equal(ek_sound_read(&s, exact, n, EK_SOUND_SECONDS), EK_OK);
        free(exact);
    }
    const size_t whole = b.len;
    ek_sound_info info;
    ek_buf_add(&b, "LIST\3\0\0\0abc\0 junk", 17);
    assert_int_equal(ek_sound_probe(&info, b.data, b.len, EK_SOUND_SECONDS), EK_OK);
    for (int second = 0; second < 2; second++) { /* another sound behind it, or more samples */
        b.len = whole + 12;
        if (second) ek_buf_add(&b, "data\2\0\0\0xx", 10);
        else put_wav(&b, 1, 1, 16000, 16, zeros, 1000);
        refused(&b, EK_EPARSE, "a second sound stands behind the first");
    }
    ek_buf_fini(&b);
    free(zeros);
}

/* A tone through each of libsndfile's formats: FLAC without loss, the others near it; another rate keeps the tone. */
/* A sound of 61 s and more: refused as one, cut into three, and each piece is what it is by itself. */
static void long_sounds_are_cut(void **state)
{
    (void)state;
    enum { N = 2 * EK_SOUND_MAX_SAMPLES + 16161 };
    static float v[N];
    ek_buf data = {0}, file = {0}, piece = {0};
    ek_sound_info info;
    ek_sound s, again;
    int tokens;
    for (int i = 0; i < N; i++) v[i] = (float)(i * 7 % 1009) / 1009.0f - 0.4f;
    assert_true(ek_sound_wav(&file, v, N));
    refused(&file, EK_EINVAL, "at most 30 s");
    assert_int_equal(ek_sound_probe(&info, file.data, file.len, EK_SOUND_MAX_SECONDS), EK_OK);
    assert_int_equal(info.samples, N);
    assert_int_equal(ek_sound_read(&s, file.data, file.len, EK_SOUND_MAX_SECONDS), EK_OK);
    assert_memory_equal(s.v, v, sizeof v);
    assert_int_equal(ek_sound_pieces(N, EK_SOUND_TOWER), 3);
    for (int i = 0; i < 3; i++) {
        ek_sound p = ek_sound_piece(&s, i);
        assert_int_equal(p.samples, i < 2 ? EK_SOUND_MAX_SAMPLES : 16161);
        assert_ptr_equal(p.v, s.v + i * EK_SOUND_MAX_SAMPLES);
        ek_buf_clear(&piece);
        assert_true(ek_sound_wav(&piece, p.v, p.samples));
        assert_int_equal(ek_sound_read(&again, piece.data, piece.len, EK_SOUND_SECONDS), EK_OK);
        assert_int_equal(again.samples, p.samples);
        assert_memory_equal(again.v, p.v, sizeof *p.v * (size_t)p.samples);
        ek_sound_free(&again);
    }
    assert_int_equal(ek_sound_tokens_long(&tokens, N, EK_SOUND_TOWER), EK_OK);
    assert_int_equal(tokens, 750 + 750 + 26); /* 101 rows */
    assert_int_equal(ek_sound_tokens_long(&tokens, N, EK_SOUND_UNIFIED), EK_OK);
    assert_int_equal(tokens, 750 + 750 + 26);
    static const int count[][3] = {{0, 0, 0},      {160, 0, 1},    {161, 1, 1},    {480000, 1, 1},
                                   {480160, 1, 2}, {480161, 2, 2}, {960000, 2, 2}, {9600000, 20, 20}};
    for (size_t i = 0; i < sizeof count / sizeof *count; i++)
        for (int kind = 0; kind < 2; kind++)
            assert_int_equal(ek_sound_pieces(count[i][0], (ek_sound_kind)kind), count[i][1 + kind]);
    assert_int_equal(ek_sound_tokens_long(&tokens, 160, EK_SOUND_TOWER), EK_EINVAL);
    assert_int_equal(ek_sound_tokens_long(&tokens, 9600001, EK_SOUND_TOWER), EK_EINVAL);
    for (int i = 0; i < 8000 * 601; i++) ek_buf_char(&data, 7);
    ek_buf_clear(&file);
    put_wav(&file, 1, 1, 8000, 8, data.data, data.len);
    assert_int_equal(ek_sound_probe(&info, file.data, file.len, EK_SOUND_MAX_SECONDS), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "at most 600 s"));
    ek_sound_free(&s);
    ek_buf_fini(&file), ek_buf_fini(&piece), ek_buf_fini(&data);
}

static void other_formats_and_rates(void **state)
{
    (void)state;
    static const struct {
        int format, rate;
        double bound; /* root of the mean square of the difference */
    } c[] = {{SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 2e-5},        {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 0.02},
             {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 16000, 0.4}, {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44100, 1e-3},
             {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 8000, 1e-3},         {SF_FORMAT_WAV | SF_FORMAT_ULAW, 16000, 0.01},
             {SF_FORMAT_WAV | SF_FORMAT_PCM_24, 48000, 1e-3}};
    for (size_t k = 0; k < sizeof c / sizeof *c; k++) {
        ek_buf file = {0};
        ek_sound in = tone(440, c[k].rate, c[k].rate), want = tone(440, 16000, 16000), got;
        if (!put_coded(&file, c[k].format, c[k].rate, in.v, in.samples)) continue;
        if (ek_sound_read(&got, file.data, file.len, EK_SOUND_SECONDS)) fail_msg("%s", ek_err_text());
        assert_in_range(got.samples, 16000, 18500); /* MP3 is filled to whole frames */
        double sum = 0;
        for (int i = 1000; i < 15000; i++) sum += pow((double)got.v[i] - (double)want.v[i], 2);
        if (!(sqrt(sum / 14000) < c[k].bound)) fail_msg("format %zu: %g", k, sqrt(sum / 14000));
        ek_sound part;
        for (size_t n = 0; n < file.len; n += 1 + n / 16)
            if (ek_sound_read(&part, file.data, n, EK_SOUND_SECONDS) == EK_OK) ek_sound_free(&part);
        ek_sound_free(&in);
        ek_sound_free(&want);
        ek_sound_free(&got);
        ek_buf_fini(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_wav),
        cmocka_unit_test(golden_rows),
        cmocka_unit_test(rows_against_their_definition),
        cmocka_unit_test(functions_of_our_own),
        cmocka_unit_test(tokens_of_samples),
        cmocka_unit_test(limits_of_sounds),
        cmocka_unit_test(other_formats_and_rates),
        cmocka_unit_test(long_sounds_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
