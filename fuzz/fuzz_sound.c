/* What the helper runs over a stranger's sound, in this process. A sound has as many samples as its header said, all of
 * them numbers; reading is a function of the bytes; a row of log-mel bins is a function of the samples that it sees. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/decode.h"
#include "media/limits.h"
#include "media/mel.h"

static float *rows_of(const ek_sound *s)
{
    float *rows = calloc((size_t)ek_mel_frames(s->samples) * EK_MEL_BINS + 1, sizeof *rows);
    ek_mel_rows(rows, s);
    return rows;
}

/* Cut behind `samples`, the rows that are left stay; each is a number, and not below that of silence. */
static void check_rows(ek_sound *s, int samples)
{
    size_t n = (size_t)ek_mel_frames(s->samples) * EK_MEL_BINS;
    float *whole = rows_of(s);
    for (size_t i = 0; i < n; i++)
        if (!(whole[i] >= -6.9077554f) || isinf(whole[i])) __builtin_trap();
    s->samples = samples;
    float *part = rows_of(s);
    if (memcmp(part, whole, (size_t)ek_mel_frames(samples) * EK_MEL_BINS * sizeof *part) != 0) __builtin_trap();
    free(whole);
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    ek_sound_info info;
    ek_sound s, again;
    ek_err err = ek_decode_sound_probe(&info, data, n, 30);
    if (err && (err = ek_decode_sound(&s, data, n, 30)) == EK_OK) __builtin_trap();
    if (!err) err = ek_decode_sound(&s, data, n, 30);
    if (err) {
        if (!*ek_err_text() || strchr(ek_err_text(), '\n') || s.v) __builtin_trap();
        return 0;
    }
    if (s.samples != info.samples) __builtin_trap();
    if (ek_decode_sound(&again, data, n, EK_SOUND_MAX_SECONDS)) __builtin_trap();
    if (again.samples != s.samples || memcmp(s.v, again.v, (size_t)s.samples * sizeof *s.v)) __builtin_trap();
    if (ek_sound_pieces(s.samples, EK_SOUND_UNIFIED) != 1) __builtin_trap();
    ek_sound_free(&again);
    if (ek_decode_sound(&again, data, n, 30) || memcmp(s.v, again.v, (size_t)s.samples * sizeof *s.v)) __builtin_trap();
    ek_sound_free(&again);
    for (int i = 0; i < s.samples; i++) /* what is louder than 1e30 is not what log-mel rows are for */
        if (!(fabsf(s.v[i]) < 1e30f)) s.v[i] = 0;
    if (s.samples > 4000) s.samples = 4000;
    check_rows(&s, s.samples - data[n - 1] * s.samples / 256);
    ek_sound_free(&s);
    return 0;
}
