#include "audio_exact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { BINS = 128 };

typedef struct exact {
    const audio_spec *s;
    int n;
    double cut, seen;
} exact;

static double weight(const exact *e, const char *stem, const char *name, int64_t i)
{
    char full[320];
    snprintf(full, sizeof full, "%s%s", stem, name);
    return (double)audio_stored(e->s, full, i);
}

static void clamp(exact *e, double *x, int n, double lo, double hi)
{
    for (int i = 0; i < n; i++) {
        e->seen++;
        e->cut += x[i] < lo || x[i] > hi;
        x[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
    }
}

static void limit(const exact *e, double *x)
{
    for (int i = 0; i < e->n * e->s->hidden; i++) x[i] = fmin(fmax(x[i], -e->s->limit), e->s->limit);
}

static double *copy(const double *x, int n)
{
    double *y = ek_alloc(sizeof *y * (size_t)n);
    memcpy(y, x, sizeof *y * (size_t)n);
    return y;
}

static double *linear(const exact *e, const double *x, int rows, const char *stem, const char *name, int n, int k)
{
    double *w = ek_alloc(sizeof *w * (size_t)n * (size_t)k), *y = ek_alloc(sizeof *y * (size_t)rows * (size_t)n);
    for (int i = 0; i < n * k; i++) w[i] = weight(e, stem, name, i);
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < n; o++)
            for (int i = 0; i < k; i++) y[r * n + o] += x[r * k + i] * w[o * k + i];
    free(w);
    return y;
}

static double *clipped(exact *e, const double *x, const char *stem, const char *name, int n, int k)
{
    char full[160];
    double *in = copy(x, e->n * k);
    snprintf(full, sizeof full, "%s%s.", stem, name);
    if (e->s->clips) clamp(e, in, e->n * k, weight(e, full, "input_min", 0), weight(e, full, "input_max", 0));
    double *y = linear(e, in, e->n, full, "linear.weight", n, k);
    if (e->s->clips) clamp(e, y, e->n * n, weight(e, full, "output_min", 0), weight(e, full, "output_max", 0));
    free(in);
    return y;
}

/* name NULL: without weight */
static void rms(const exact *e, double *x, int rows, int n, const char *stem, const char *name, double eps)
{
    for (int r = 0; r < rows; r++) {
        double ss = 0;
        for (int i = 0; i < n; i++) ss += x[r * n + i] * x[r * n + i];
        for (int i = 0; i < n; i++) x[r * n + i] *= (name ? weight(e, stem, name, i) : 1) * pow(ss / n + eps, -0.5);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* in: channels maps of rows x cols; out likewise, of half the size */
static double *convolve(const exact *e, const double *in, int channels, int rows, int cols, const char *stem, int out)
{
    const int to_rows = (rows + 1) / 2, to_cols = cols / 2;
    double *y = ek_alloc(sizeof *y * (size_t)(out * to_rows * to_cols)),
           *w = ek_alloc(sizeof *w * (size_t)(out * channels * 9));
    for (int i = 0; i < out * channels * 9; i++) w[i] = weight(e, stem, "conv.weight", i);
    for (int o = 0; o < out; o++)
        for (int t = 0; t < to_rows; t++)
            for (int f = 0; f < to_cols; f++)
                for (int c = 0; c < channels; c++)
                    for (int p = 0; p < 9; p++) {
                        const int r = 2 * t - 1 + p / 3, q = 2 * f - 1 + p % 3;
                        if (r < 0 || r >= rows || q < 0 || q >= cols) continue;
                        y[(o * to_rows + t) * to_cols + f] += in[(c * rows + r) * cols + q] *
                                                              w[(o * channels + c) * 9 + p];
                    }
    const int plane = to_rows * to_cols;
    for (int at = 0; at < plane; at++) {
        double mean = 0, var = 0;
        for (int o = 0; o < out; o++) mean += y[o * plane + at] / out;
        for (int o = 0; o < out; o++) var += (y[o * plane + at] - mean) * (y[o * plane + at] - mean) / out;
        for (int o = 0; o < out; o++) {
            const double v = (y[o * plane + at] - mean) / sqrt(var + e->s->eps) * weight(e, stem, "norm.weight", o);
            y[o * plane + at] = v > 0 ? v : 0;
        }
    }
    free(w);
    return y;
}

static double *subsample(const exact *e, const float *mel, int frames)
{
    const int c0 = e->s->channels0, c1 = e->s->channels1, half = (frames + 1) / 2, bands = BINS / 4, flat = bands * c1;
    double *in = ek_alloc(sizeof *in * (size_t)(frames * BINS)), *rows = ek_alloc(sizeof *rows * (size_t)(e->n * flat));
    for (int i = 0; i < frames * BINS; i++) in[i] = (double)mel[i];
    double *a = convolve(e, in, 1, frames, BINS, "audio_tower.subsample_conv_projection.layer0.", c0);
    double *b = convolve(e, a, c0, half, BINS / 2, "audio_tower.subsample_conv_projection.layer1.", c1);
    for (int t = 0; t < e->n; t++)
        for (int f = 0; f < bands; f++)
            for (int c = 0; c < c1; c++) rows[t * flat + f * c1 + c] = b[(c * e->n + t) * bands + f];
    double *x = linear(e, rows, e->n, "audio_tower.subsample_conv_projection.", "input_proj_linear.weight",
                       e->s->hidden, flat);
    free(in), free(a), free(b), free(rows);
    return x;
}

static void feed_forward(exact *e, double *x, const char *layer, int which)
{
    const int h = e->s->hidden;
    char stem[80];
    snprintf(stem, sizeof stem, "%sfeed_forward%d.", layer, which);
    double *y = copy(x, e->n * h);
    limit(e, y);
    rms(e, y, e->n, h, stem, "pre_layer_norm.weight", 1e-6);
    double *up = clipped(e, y, stem, "ffw_layer_1", 4 * h, h);
    for (int i = 0; i < e->n * 4 * h; i++) up[i] *= sigmoid(up[i]);
    double *down = clipped(e, up, stem, "ffw_layer_2", h, 4 * h);
    limit(e, down);
    rms(e, down, e->n, h, stem, "post_layer_norm.weight", 1e-6);
    for (int i = 0; i < e->n * h; i++) x[i] += down[i] * e->s->residual;
    free(y), free(up), free(down);
}

/* One head of one block of `chunk` queries; context: the keys from `past` before its first query on. */
static void attend_block(const exact *e, double *o, const double *q, const double *k, const double *v,
                         const double *rel, int block, int at)
{
    const int h = e->s->hidden, hd = h / e->s->heads, chunk = e->s->chunk, past = e->s->left - 1,
              context = chunk + past;
    const int lengths = context / 2 + 1; /* of rel: distances context / 2 .. 0 */
    double bd[64 * 65] = {0}, shifted[64 * 65];
    assert_true(chunk * (context + 1) <= 64 * 65);
    for (int i = 0; i < chunk && block * chunk + i < e->n; i++)
        for (int p = 0; p < lengths; p++)
            for (int d = 0; d < hd; d++) /* rows of context + 1, the rest zeros */
                bd[i * (context + 1) + p] += q[(block * chunk + i) * h + at + d] * rel[p * h + at + d];
    memcpy(shifted, bd, sizeof shifted); /* cut after chunk x context and read as rows of context */
    for (int i = 0; i < chunk; i++) {
        const int row = block * chunk + i;
        double w[64], total = 0;
        if (row >= e->n) break;
        for (int c = 0; c < context; c++) {
            const int key = block * chunk - past + c;
            double s = 0;
            w[c] = 0;
            if (key < 0 || key > row || row - key >= e->s->left - 1) continue;
            for (int d = 0; d < hd; d++) s += q[row * h + at + d] * k[key * h + at + d];
            w[c] = exp(e->s->cap * tanh((s + shifted[i * context + c]) / e->s->cap));
            total += w[c];
        }
        for (int d = 0; d < hd; d++) {
            o[row * h + at + d] = 0;
            for (int c = 0; c < context; c++)
                if (w[c] > 0) o[row * h + at + d] += w[c] / total * v[(block * chunk - past + c) * h + at + d];
        }
    }
}

static void attention(exact *e, double *x, const char *stem)
{
    const int h = e->s->hidden, hd = h / e->s->heads, chunk = e->s->chunk, lengths = (chunk + e->s->left - 1) / 2 + 1;
    double *y = copy(x, e->n * h), *pos = ek_alloc(sizeof *pos * (size_t)(lengths * h));
    limit(e, y);
    rms(e, y, e->n, h, stem, "norm_pre_attn.weight", 1e-6);
    double *q = clipped(e, y, stem, "self_attn.q_proj", h, h), *k = clipped(e, y, stem, "self_attn.k_proj", h, h);
    double *v = clipped(e, y, stem, "self_attn.v_proj", h, h), *o = ek_alloc(sizeof *o * (size_t)(e->n * h));
    for (int i = 0; i < e->n * h; i++) {
        q[i] *= 1 / sqrt(hd) / log(2) * log1p(exp(weight(e, stem, "self_attn.per_dim_scale", i % hd)));
        k[i] *= log(1 + exp(1)) / log(2);
    }
    for (int p = 0; p < lengths; p++)
        for (int i = 0; i < h / 2; i++) {
            const double a = (lengths - 1 - p) * exp(-i * log(10000) / fmax(h / 2 - 1, 1));
            pos[p * h + i] = sin(a), pos[p * h + h / 2 + i] = cos(a);
        }
    double *rel = linear(e, pos, lengths, stem, "self_attn.relative_k_proj.weight", h, h);
    for (int b = 0; b * chunk < e->n; b++)
        for (int at = 0; at < h; at += hd) attend_block(e, o, q, k, v, rel, b, at);
    double *a = clipped(e, o, stem, "self_attn.post", h, h);
    limit(e, a);
    rms(e, a, e->n, h, stem, "norm_post_attn.weight", 1e-6);
    for (int i = 0; i < e->n * h; i++) x[i] += a[i];
    free(y), free(pos), free(q), free(k), free(v), free(o), free(rel), free(a);
}

static void light_conv(exact *e, double *x, const char *layer)
{
    const int h = e->s->hidden, taps = e->s->taps;
    char stem[80];
    snprintf(stem, sizeof stem, "%slconv1d.", layer);
    double *y = copy(x, e->n * h), *d = ek_alloc(sizeof *d * (size_t)(e->n * h));
    rms(e, y, e->n, h, stem, "pre_layer_norm.weight", e->s->eps);
    double *u = clipped(e, y, stem, "linear_start", 2 * h, h);
    for (int t = 0; t < e->n; t++)
        for (int i = 0; i < h; i++) y[t * h + i] = u[t * 2 * h + i] * sigmoid(u[t * 2 * h + h + i]);
    for (int t = 0; t < e->n; t++)
        for (int i = 0; i < h; i++)
            for (int j = 0; j < taps; j++)
                if (t - taps + 1 + j >= 0)
                    d[t * h + i] += weight(e, stem, "depthwise_conv1d.weight", i * taps + j) *
                                    y[(t - taps + 1 + j) * h + i];
    limit(e, d);
    rms(e, d, e->n, h, stem, "conv_norm.weight", e->s->eps);
    for (int i = 0; i < e->n * h; i++) d[i] *= sigmoid(d[i]);
    double *end = clipped(e, d, stem, "linear_end", h, h);
    for (int i = 0; i < e->n * h; i++) x[i] += end[i];
    free(y), free(d), free(u), free(end);
}

double *audio_exact(const audio_spec *s, const ek_sound *sound, int *n, double *cut)
{
    const int frames = ek_mel_frames(sound->samples), h = s->hidden;
    float *mel = ek_alloc(sizeof *mel * (size_t)frames * BINS);
    exact e = {.s = s, .n = (frames + 3) / 4};
    ek_mel_rows(mel, sound);
    double *x = subsample(&e, mel, frames);
    for (int l = 0; l < s->layers; l++) {
        char stem[64];
        snprintf(stem, sizeof stem, "audio_tower.layers.%d.", l);
        feed_forward(&e, x, stem, 1);
        attention(&e, x, stem);
        light_conv(&e, x, stem);
        feed_forward(&e, x, stem, 2);
        limit(&e, x);
        rms(&e, x, e.n, h, stem, "norm_out.weight", 1e-6);
    }
    double *out = linear(&e, x, e.n, "audio_tower.", "output_proj.weight", s->output, h);
    for (int i = 0; i < e.n * s->output; i++) out[i] += weight(&e, "audio_tower.", "output_proj.bias", i % s->output);
    rms(&e, out, e.n, s->output, "", NULL, s->eps);
    double *rows = linear(&e, out, e.n, "embed_audio.", "embedding_projection.weight", s->text, s->output);
    free(mel), free(x), free(out);
    *n = e.n;
    *cut = e.seen > 0 ? e.cut / e.seen : 0;
    return rows;
}
