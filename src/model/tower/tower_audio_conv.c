/* The convolutions that make a row of four frames, as products of windows. */
#include "model/tower/tower_audio_work.h"

/* y = relu(layer norm over the channels) */
static void norm_relu(const ek_audio_work *w, int i, float *y)
{
    const int n = w->a->c.channels[i];
    ek_audio_rows_of(w)->layer_norm(y, y, w->a->conv_norm[i], NULL, n, w->a->c.eps);
    ek_audio_rows_of(w)->clamp(y, y, 0.0f, __builtin_inff(), n);
}

/* The 3 x 3 windows with stride 2 about row 2 t of a map of rows x cols x channels, of which row `first` lies at `map`;
 * zeros where it ends. */
static void windows(float *out, const float *map, int first, int t, int rows, int cols, int channels)
{
    for (int f = 0; f < cols / 2; f++)
        for (int i = -1; i <= 1; i++)
            for (int j = -1; j <= 1; j++, out += channels) {
                const int r = 2 * t + i, q = 2 * f + j;
                const size_t n = sizeof *out * (size_t)channels;
                if (r < 0 || r >= rows || q < 0 || q >= cols) memset(out, 0, n);
                else memcpy(out, map + ((ptrdiff_t)(r - first) * cols + q) * channels, n);
            }
}

/* The row of the first convolution that row 0 of the buffer is. */
static int half_first(const ek_audio_work *w)
{
    return w->r0 ? 2 * w->r0 - 1 : 0;
}

static int half_count(const ek_audio_work *w)
{
    const int end = 2 * (w->r0 + w->rows);
    return (end < w->half ? end : w->half) - half_first(w);
}

static void windows_0(const ek_audio_work *w, int r)
{
    const int bins = w->a->c.bins;
    windows(w->window[0] + (ptrdiff_t)r * (bins / 2) * 9, w->mel, 0, half_first(w) + r, w->frames, bins, 1);
}

static void norms_0(const ek_audio_work *w, int r)
{
    const int cols = w->a->c.bins / 2, n = w->a->c.channels[0];
    for (int f = 0; f < cols; f++) norm_relu(w, 0, w->map[0] + ((ptrdiff_t)r * cols + f) * n);
}

static void windows_1(const ek_audio_work *w, int r)
{
    const int cols = w->a->c.bins / 2, n = w->a->c.channels[0];
    windows(w->window[1] + (ptrdiff_t)r * (cols / 2) * 9 * n, w->map[0], half_first(w), w->r0 + r, w->half, cols, n);
}

static void norms_1(const ek_audio_work *w, int r)
{
    const int bands = ek_audio_bands(&w->a->c), n = w->a->c.channels[1];
    for (int f = 0; f < bands; f++) norm_relu(w, 1, w->map[1] + ((ptrdiff_t)r * bands + f) * n);
}

void ek_audio_convolve(const ek_audio_work *w)
{
    const ek_audio_config *c = &w->a->c;
    const int cols = c->bins / 2, bands = ek_audio_bands(c), count = half_count(w), flat = bands * c->channels[1];
    ek_audio_each(w, windows_0, count);
    ek_audio_product(w, &w->a->conv[0], w->window[0], 9, count * cols, w->map[0], c->channels[0]);
    ek_audio_each(w, norms_0, count);
    ek_audio_each(w, windows_1, w->rows);
    ek_audio_product(w, &w->a->conv[1], w->window[1], 9 * c->channels[0], w->rows * bands, w->map[1], c->channels[1]);
    ek_audio_each(w, norms_1, w->rows);
    ek_audio_product(w, &w->a->input, w->map[1], flat, w->rows, ek_audio_at(w->x, w, w->r0), c->hidden);
}
