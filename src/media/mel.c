#include "media/mel.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "media/limits.h"
#include "media/real.h"

enum { HOP = 160, FRAME = 320, POINTS = 512, BITS = 9, LINES = POINTS / 2 + 1 };

int ek_mel_frames(int samples)
{
    return samples > HOP ? (samples - 1) / HOP : 0;
}

ek_err ek_sound_tokens(int *out, int samples, ek_sound_kind kind)
{
    int least = kind == EK_SOUND_TOWER ? HOP + 1 : 1;
    if (samples < least || samples > EK_SOUND_MAX_SAMPLES)
        return ek_fail(EK_EINVAL, "a sound of %d samples at %d per second; %d to %d are possible", samples,
                       EK_SOUND_RATE, least, EK_SOUND_MAX_SAMPLES);
    *out = kind == EK_SOUND_TOWER ? (ek_mel_frames(samples) + 3) / 4 : (samples + EK_SOUND_RUN - 1) / EK_SOUND_RUN;
    return EK_OK;
}

int ek_sound_pieces(int samples, ek_sound_kind kind)
{
    if (samples < 1) return 0;
    const int whole = samples / EK_SOUND_MAX_SAMPLES, rest = samples % EK_SOUND_MAX_SAMPLES;
    return whole + (kind == EK_SOUND_TOWER ? ek_mel_frames(rest) > 0 : rest > 0);
}

ek_sound ek_sound_piece(const ek_sound *s, int i)
{
    const int first = i * EK_SOUND_MAX_SAMPLES, left = s->samples - first;
    EK_ASSERT(i >= 0 && left > 0);
    return (ek_sound){left < EK_SOUND_MAX_SAMPLES ? left : EK_SOUND_MAX_SAMPLES, s->v + first};
}

ek_err ek_sound_tokens_long(int *out, int samples, ek_sound_kind kind)
{
    const int pieces = ek_sound_pieces(samples, kind);
    if (pieces == 0 || samples > EK_SOUND_MAX_SECONDS * EK_SOUND_RATE)
        return ek_fail(EK_EINVAL, "a sound of %d samples at %d per second; one token's to %d are possible", samples,
                       EK_SOUND_RATE, EK_SOUND_MAX_SECONDS * EK_SOUND_RATE);
    *out = 0;
    for (int i = 0; i < pieces; i++) {
        int n = 0, left = samples - i * EK_SOUND_MAX_SAMPLES;
        EK_TRY(ek_sound_tokens(&n, left < EK_SOUND_MAX_SAMPLES ? left : EK_SOUND_MAX_SAMPLES, kind));
        *out += n;
    }
    return EK_OK;
}

/* Tables that do not depend on the sound. */
typedef struct tables {
    double window[FRAME];
    double c[POINTS / 2], s[POINTS / 2]; /* cos and sin of 2 pi i / POINTS */
    int reversed[POINTS];
    int first[EK_MEL_BINS], n[EK_MEL_BINS]; /* the lines of a bin whose weight is not 0 */
    double weight[EK_MEL_BINS][LINES];      /* weights, beginning with the bin's first line */
} tables;

/* HTK's scale. */
static double to_mel(double hz)
{
    return 2595.0 * (ek_real_ln(1.0 + hz / 700.0) / ek_real_ln(10.0));
}

static double to_hz(double mel)
{
    return 700.0 * (ek_real_exp(mel / 2595.0 * ek_real_ln(10.0)) - 1.0);
}

static void make_bank(tables *t)
{
    double edge[EK_MEL_BINS + 2], top = to_mel(EK_SOUND_RATE / 2.0), step = top / (EK_MEL_BINS + 1);
    for (int i = 0; i < EK_MEL_BINS + 2; i++) edge[i] = to_hz(i == EK_MEL_BINS + 1 ? top : i * step);
    for (int m = 0; m < EK_MEL_BINS; m++) {
        t->n[m] = 0;
        for (int k = 0; k < LINES; k++) {
            double hz = k * ((double)EK_SOUND_RATE / POINTS), up = (hz - edge[m]) / (edge[m + 1] - edge[m]);
            double down = (edge[m + 2] - hz) / (edge[m + 2] - edge[m + 1]), w = up < down ? up : down;
            if (w <= 0.0) continue;
            if (t->n[m] == 0) t->first[m] = k;
            t->weight[m][t->n[m]++] = w;
        }
    }
}

static void make_tables(tables *t)
{
    for (int i = 0; i < FRAME; i++) {
        double c, s;
        ek_real_cos_sin(i, FRAME, &c, &s);
        t->window[i] = (float)(0.5 - 0.5 * c);
    }
    for (int i = 0; i < POINTS / 2; i++) ek_real_cos_sin(i, POINTS, &t->c[i], &t->s[i]);
    for (int i = 0; i < POINTS; i++) {
        t->reversed[i] = 0;
        for (int b = 0; b < BITS; b++) t->reversed[i] |= (i >> b & 1) << (BITS - 1 - b);
    }
    make_bank(t);
}

/* In place, by decimation in time: x[k] = sum over n of x[n] e^(-2 pi i n k / POINTS). The inputs are in reversed
 * order. */
static void transform(double *re, double *im, const tables *t)
{
    for (int half = 1; half < POINTS; half *= 2)
        for (int block = 0; block < POINTS; block += 2 * half)
            for (int i = 0; i < half; i++) {
                double c = t->c[i * (POINTS / 2 / half)], s = t->s[i * (POINTS / 2 / half)];
                int a = block + i, b = a + half;
                double x = re[b] * c + im[b] * s, y = im[b] * c - re[b] * s;
                re[b] = re[a] - x, im[b] = im[a] - y;
                re[a] += x, im[a] += y;
            }
}

static void make_row(float *row, const float *v, int from, const tables *t)
{
    double re[POINTS] = {0}, im[POINTS] = {0}, magnitude[LINES];
    for (int i = 0; i < FRAME; i++)
        if (from + i >= 0) re[t->reversed[i]] = (double)v[from + i] * t->window[i];
    transform(re, im, t);
    for (int k = 0; k < LINES; k++) magnitude[k] = sqrt(re[k] * re[k] + im[k] * im[k]);
    for (int m = 0; m < EK_MEL_BINS; m++) {
        double sum = 0.0;
        for (int j = 0; j < t->n[m]; j++) sum += t->weight[m][j] * magnitude[t->first[m] + j];
        row[m] = (float)ek_real_ln(sum + 0.001);
    }
}

void ek_mel_rows(float *rows, const ek_sound *s)
{
    tables *t = ek_alloc(sizeof *t);
    make_tables(t);
    for (int i = 0; i < ek_mel_frames(s->samples); i++)
        make_row(rows + (size_t)i * EK_MEL_BINS, s->v, HOP * (i - 1), t);
    free(t);
}
