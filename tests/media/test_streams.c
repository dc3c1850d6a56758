/* Sounds as recorders, pipes and programs that join files leave them: without a length, without an end, several in one
 * file. All of what is there is heard, or the file is refused; other chunks are never heard as samples. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coded.h"
#include "draw.h"
#include "media/limits.h"
#include "media/sound.h"

static void put_le(ek_buf *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) ek_buf_char(to, (char)(v >> 8 * i));
}

enum { N = 400 }; /* samples of the WAVs, at 16 kHz */

static int16_t sample(int i)
{
    return (int16_t)(i * 331 % 20000 - 9000);
}

/* [0, N) of the samples, and so many in all. */
static void hears(const ek_buf *file, int samples, const char *what)
{
    ek_sound s;
    if (ek_sound_read(&s, file->data, file->len, EK_SOUND_SECONDS)) fail_msg("%s: %s", what, ek_err_text());
    if (s.samples != samples) fail_msg("%s: %d samples, not %d", what, s.samples, samples);
    for (int i = 0; i < N && i < samples; i++) assert_true(s.v[i] == (float)sample(i) / 32768);
    ek_sound_free(&s);
}

static void put_samples(ek_buf *to)
{
    for (int i = 0; i < N; i++) put_le(to, (uint16_t)sample(i), 2);
}

static void put_format(ek_buf *to)
{
    put_le(to, 1, 2), put_le(to, 1, 2), put_le(to, 16000, 4), put_le(to, 32000, 4), put_le(to, 2, 2), put_le(to, 16, 2);
}

/* Every length that a writer leaves that cannot go back, and what the others look like. */
static void wav_of_a_pipe(void **state)
{
    (void)state;
    static const uint32_t unknown[] = {0,          0xFFFFFFFF, 0x7FFFF000, 0x80000000, 0x7FFFFFFF,
                                       0xFFFFFFDB, 0x7FFFFF00, 0xFFFFFF00, 0x7FFFFFDB, 0x7FFF0000,
                                       0xFFFFF000, 0x80000024, 0xFFFFFFFE, 2 * N};
    static const char list[] = "LIST\x1a\0\0\0INFOISFT\x0e\0\0\0Lavf58.76.100", odd[] = "id3 \5\0\0\0abcde";
    for (size_t k = 0; k < sizeof unknown / sizeof *unknown; k++)
        for (int tail = 0; tail < 4; tail++)
            for (int bare = 0; bare < 2; bare++) {
                ek_buf b = {0};
                ek_buf_add(&b, "RIFF", 4), put_le(&b, unknown[k], 4), ek_buf_add(&b, "WAVEfmt \x10\0\0\0", 12);
                put_format(&b);
                if (tail == 3) ek_buf_add(&b, list, sizeof list); /* before them too */
                ek_buf_add(&b, "data", 4), put_le(&b, unknown[k], 4);
                if (!bare) put_samples(&b);
                for (int i = 0; i < tail; i++) ek_buf_add(&b, list, sizeof list);
                if (tail == 2) ek_buf_add(&b, odd, sizeof odd - 1);
                ek_sound s;
                if (!bare) hears(&b, N, "a WAV of a pipe");
                else if (!ek_sound_read(&s, b.data, b.len, EK_SOUND_SECONDS))
                    fail_msg("%08x: %d samples of chunks", unknown[k], s.samples);
                ek_buf_fini(&b);
            }
    ek_buf b = {0}; /* one that says its length, and is cut */
    put_wav(&b, 1, 1, 16000, 16, unknown, sizeof unknown);
    b.len -= 2;
    ek_sound s;
    assert_int_equal(ek_sound_read(&s, b.data, b.len, EK_SOUND_SECONDS), EK_EPARSE);
    ek_buf_fini(&b);
}

static void long_wavs(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2 * N, 0, UINT64_MAX, 0x7FFFFFFFFFFFFFFF};
    static const char *const names[] = {"RF64", "BW64"};
    static const char guid[] = "\xF3\xAC\xD3\x11\x8C\xD1\0\xC0\x4F\x8E\xDB\x8A";
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int tail = 0; tail < 2; tail++) {
            ek_buf b = {0};
            for (int i = 0; i < 2; i++) {
                ek_buf_clear(&b);
                ek_buf_str(&b, names[i]), put_le(&b, UINT32_MAX, 4), ek_buf_add(&b, "WAVEds64\x1c\0\0\0", 12);
                put_le(&b, sizes[k], 8), put_le(&b, sizes[k], 8), put_le(&b, N, 8), put_le(&b, 0, 4);
                ek_buf_add(&b, "fmt \x10\0\0\0", 8), put_format(&b);
                ek_buf_str(&b, "data"), put_le(&b, UINT32_MAX, 4), put_samples(&b);
                if (tail) ek_buf_add(&b, "LIST\4\0\0\0INFO", 12);
                hears(&b, N, names[i]);
            }
            ek_buf_clear(&b);
            ek_buf_add(&b, "riff\x2E\x91\xCF\x11\xA5\xD6\x28\xDB\4\xC1\0\0", 16), put_le(&b, sizes[k], 8);
            ek_buf_str(&b, "wave"), ek_buf_add(&b, guid, 12);
            ek_buf_str(&b, "fmt "), ek_buf_add(&b, guid, 12), put_le(&b, 40, 8), put_format(&b);
            ek_buf_str(&b, "data"), ek_buf_add(&b, guid, 12);
            put_le(&b, sizes[k] == 2 * N ? 2 * N + 24 : sizes[k], 8), put_samples(&b);
            if (tail) ek_buf_str(&b, "list"), ek_buf_add(&b, guid, 12), put_le(&b, 32, 8), put_le(&b, 0, 8);
            hears(&b, N, "Wave64");
            ek_buf_fini(&b);
        }
}

/* --- coded ones --- */

static float tone(int i, int rate)
{
    return (float)(0.5 * sin(2 * M_PI * 440 * i / rate));
}

static bool put_tone(ek_buf *to, int format, int rate, int n)
{
    float *v = malloc((size_t)n * sizeof *v);
    for (int i = 0; i < n; i++) v[i] = tone(i, rate);
    const bool can = put_coded(to, format, rate, v, n);
    free(v);
    return can;
}

/* A tone all the time: encoders fill the ends of MP3 with up to a third of a second of silence. */
static void sounds_all_through(const ek_sound *s)
{
    enum { WINDOW = 8000 };
    for (int from = 0; from + WINDOW < s->samples; from += WINDOW / 2) {
        double sum = 0;
        for (int i = 0; i < WINDOW; i++) sum += (double)s->v[from + i] * (double)s->v[from + i];
        if (sqrt(sum / WINDOW) < 0.15) fail_msg("silence at %d of %d", from, s->samples);
    }
}

static int length_of(const ek_buf *file, const char *what)
{
    ek_sound s;
    ek_sound_info info;
    if (ek_sound_read(&s, file->data, file->len, EK_SOUND_SECONDS)) fail_msg("%s: %s", what, ek_err_text());
    assert_int_equal(ek_sound_probe(&info, file->data, file->len, EK_SOUND_SECONDS), EK_OK);
    assert_int_equal(info.samples, s.samples);
    sounds_all_through(&s);
    const int n = s.samples;
    ek_sound_free(&s);
    return n;
}

static void check_length(const ek_buf *file, int low, int high, const char *what)
{
    const int n = length_of(file, what);
    if (n < low || n > high) fail_msg("%s: %d samples, %d to %d are there", what, n, low, high);
}

static const int MP3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, VORBIS = SF_FORMAT_OGG | SF_FORMAT_VORBIS,
                 OPUS = SF_FORMAT_OGG | SF_FORMAT_OPUS, FLAC = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;

/* The bytes behind the first frame, which says how many follow. */
static size_t behind_info(const ek_buf *mp3)
{
    const char *at = memmem(mp3->data + 4, mp3->len - 4, mp3->data, 2);
    while (at && memcmp(at, mp3->data, 2) != 0) at++;
    return (size_t)(at - mp3->data);
}

static void add_all(ek_buf *to, const ek_buf *from, size_t begin)
{
    ek_buf_add(to, from->data + begin, from->len - begin);
}

static void mp3(void **state)
{
    (void)state;
    static const int rates[] = {16000, 44100, 48000, 8000};
    ek_buf one = {0}, b = {0};
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
        ek_buf_clear(&one);
        if (!put_tone(&one, MP3, rates[k], 2 * rates[k])) skip();
        const size_t bare = behind_info(&one);
        const int whole = length_of(&one, "MP3");
        ek_buf_clear(&b), add_all(&b, &one, bare);
        const int n = length_of(&b, "MP3 without a first frame that counts");
        assert_in_range(n, 32000, 32000 + 16000 * 3456 / rates[k]);
        add_all(&b, &one, bare);
        check_length(&b, 2 * n - 400, 2 * n + 4000, "two of them");
        ek_buf_str(&b, "TAG");
        for (int i = 0; i < 125; i++) ek_buf_char(&b, 0);
        check_length(&b, 2 * n - 400, 2 * n + 4000, "two of them and a tag");
        ek_buf_clear(&b), add_all(&b, &one, 0), add_all(&b, &one, 0);
        check_length(&b, 2 * whole, 2 * whole, "two that count");
        ek_buf_clear(&b), add_all(&b, &one, 0);
        ek_buf_add(&b, "ID3\4\0\0\0\0\0\4abcd", 14), add_all(&b, &one, bare), add_all(&b, &one, 0);
        check_length(&b, 2 * whole + n - 400, 2 * whole + n + 400,
                     "one that counts, a tag, one that does not, another");
        ek_buf_clear(&b), add_all(&b, &one, bare);
        b.len -= 40; /* a frame that is cut */
        check_length(&b, n - 16000 * 1152 / rates[k] - 1, n - 1, "a cut one");
        ek_buf_clear(&b), add_all(&b, &one, 0);
        b.len -= 400;
        ek_sound s;
        if (!ek_sound_read(&s, b.data, b.len, EK_SOUND_SECONDS))
            fail_msg("one that counts, and is cut, gives %d samples", s.samples);
    }
    ek_buf_clear(&b), add_all(&b, &one, 0); /* at 8 kHz */
    ek_buf_clear(&one), put_tone(&one, MP3, 16000, 16000), add_all(&b, &one, 0);
    ek_sound s;
    assert_int_equal(ek_sound_read(&s, b.data, b.len, EK_SOUND_SECONDS), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "several streams, of which the first has 8000 samples"));
    ek_buf_clear(&b);
    for (int i = 0; i < 65; i++) add_all(&b, &one, 0);
    assert_int_equal(ek_sound_read(&s, b.data, b.len, EK_SOUND_SECONDS), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "more than 64 streams"));
    ek_buf_fini(&one), ek_buf_fini(&b);
}

/* Without the page that says that it is the last, cut between pages and in one. */
static void ogg(void **state)
{
    (void)state;
    const int formats[] = {VORBIS, OPUS};
    for (int k = 0; k < 2; k++) {
        ek_buf one = {0}, b = {0};
        if (!put_tone(&one, formats[k], 48000, 8 * 48000)) skip();
        check_length(&one, 8 * 16000, 8 * 16000, "Ogg");
        add_all(&b, &one, 0), add_all(&b, &one, 0);
        check_length(&b, 16 * 16000, 16 * 16000, "two");
        size_t last = 0;
        for (size_t i = 0; i + 4 < one.len; i++)
            if (memcmp(one.data + i, "OggS", 4) == 0) last = i;
        ek_buf_clear(&b), add_all(&b, &one, 0);
        b.len = last;
        const int n = length_of(&b, "without its last page");
        assert_in_range(n, 4 * 16000, 8 * 16000 - 1);
        add_all(&b, &one, 0);
        check_length(&b, n + 8 * 16000, n + 8 * 16000, "one without, one with it");
        ek_buf_clear(&b), add_all(&b, &one, 0);
        b.len = last + 100;
        check_length(&b, n, n, "its last page cut");
        ek_buf_fini(&one), ek_buf_fini(&b);
    }
}

static void flac(void **state)
{
    (void)state;
    ek_buf one = {0}, b = {0};
    if (!put_tone(&one, FLAC, 16000, 50000)) skip();
    add_all(&b, &one, 0), add_all(&b, &one, 0);
    check_length(&b, 100000, 100000, "two");
    one.data[21] &= (char)0xF0;
    memset(one.data + 22, 0, 4);
    check_length(&one, 50000, 50000, "FLAC that does not say how long it is");
    ek_buf_clear(&b), add_all(&b, &one, 0), add_all(&b, &one, 0);
    check_length(&b, 100000, 100000, "two of them");
    ek_buf_clear(&b), ek_buf_add(&b, "ID3\4\0\0\0\0\0\4abcd", 14), add_all(&b, &one, 0);
    check_length(&b, 50000, 50000, "behind a tag");
    ek_buf_str(&b, "TAG");
    for (int i = 0; i < 125; i++) ek_buf_char(&b, 0);
    check_length(&b, 50000, 50000, "between two");
    for (size_t n = one.len - 1; n > one.len / 2; n -= 501) { /* the frames that are whole */
        ek_sound s;
        if (ek_sound_read(&s, one.data, n, EK_SOUND_SECONDS)) fail_msg("cut at %zu: %s", n, ek_err_text());
        assert_int_equal(s.samples % 4096, 0);
        ek_sound_free(&s);
    }
    ek_buf_fini(&one), ek_buf_fini(&b);
}

/* Whatever stands there is read within its bytes, and its length is the same each time. */
static void damaged_ones(void **state)
{
    (void)state;
    const int formats[] = {MP3, VORBIS, OPUS, FLAC};
    for (int k = 0; k < 4; k++) {
        ek_buf one = {0};
        if (!put_tone(&one, formats[k], 48000, 12000)) continue;
        for (uint32_t i = 0, r = 1; i < 400; i++) {
            const size_t n = i % 4 ? one.len : one.len * (i % 97) / 97;
            uint8_t *exact = malloc(n + 1);
            memcpy(exact, one.data, n);
            for (int c = 0; c < 3 && n; c++, r = r * 1664525 + 1013904223)
                exact[(r >> 8) % (i % 2 ? n : n < 200 ? n : 200)] ^= (uint8_t)(r >> 3);
            ek_sound_info info;
            ek_sound s;
            const ek_err err = ek_sound_probe(&info, exact, n, EK_SOUND_SECONDS);
            if (!ek_sound_read(&s, exact, n, EK_SOUND_SECONDS)) {
                assert_int_equal(err, EK_OK);
                assert_int_equal(s.samples, info.samples);
                ek_sound_free(&s);
            }
            free(exact);
        }
        ek_buf_fini(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wav_of_a_pipe), cmocka_unit_test(long_wavs), cmocka_unit_test(mp3),
        cmocka_unit_test(ogg),           cmocka_unit_test(flac),      cmocka_unit_test(damaged_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
