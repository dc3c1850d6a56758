#include "media/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* One output sample: n inputs from `first` on, with weights at weight[at]. */
typedef struct tap {
    int first, n;
    size_t at;
} tap;

typedef struct pass {
    int in, out, precision; /* bits of a weight behind the point */
    tap *tap;               /* one per output */
    int32_t *weight;
} pass;

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    return 0.0;
}

/* The inputs of output i, and their weights, which add up to 1 before they are rounded. Returns the largest. */
static double weigh(tap *t, double *w, int in, int out, int i)
{
    double scale = (double)in / out, widened = scale > 1.0 ? scale : 1.0, support = 2.0 * widened;
    double centre = (i + 0.5) * scale, by = 1.0 / widened, sum = 0.0, largest = 0.0;
    int first = (int)(centre - support + 0.5), end = (int)(centre + support + 0.5);
    t->first = first > 0 ? first : 0;
    t->n = (end < in ? end : in) - t->first;
    for (int j = 0; j < t->n; j++) {
        w[j] = cubic((j + t->first - centre + 0.5) * by);
        sum += w[j];
    }
    for (int j = 0; j < t->n; j++) {
        if (sum != 0.0) w[j] /= sum;
        if (w[j] > largest) largest = w[j];
    }
    return largest;
}

/* As many bits as keep the largest weight of a pass in 16. */
static int precision_of(double largest)
{
    int bits = 0;
    while (bits < 22 && (int)(0.5 + largest * (1 << (bits + 1))) < 1 << 15) bits++;
    return bits;
}

static void prepare(pass *p, int in, int out, ek_resizer how)
{
    double scale = (double)in / out, largest = 0.0;
    size_t room = (size_t)ceil(2.0 * (scale > 1.0 ? scale : 1.0)) * 2 + 1;
    double *w = ek_alloc(room * (size_t)out * sizeof *w);
    *p = (pass){.in = in, .out = out, .tap = ek_alloc((size_t)out * sizeof *p->tap)};
    p->weight = ek_alloc(room * (size_t)out * sizeof *p->weight);
    for (int i = 0; i < out; i++) {
        p->tap[i].at = room * (size_t)i;
        largest = fmax(largest, weigh(&p->tap[i], w + p->tap[i].at, in, out, i));
    }
    p->precision = how == EK_RESIZE_PILLOW ? 22 : precision_of(largest);
    double one = (double)(1 << p->precision);
    for (int i = 0; i < out; i++)
        for (size_t j = p->tap[i].at; j < p->tap[i].at + (size_t)p->tap[i].n; j++)
            p->weight[j] = (int32_t)(w[j] * one + (w[j] < 0.0 ? -0.5 : 0.5));
    free(w);
}

static void finish(pass *p)
{
    free(p->tap);
    free(p->weight);
}

static uint8_t clip(int32_t sum, int precision)
{
    sum >>= precision;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void resize_row(uint8_t *to, const uint8_t *from, const pass *p)
{
    for (int i = 0; i < p->out; i++, to += 3) {
        const tap *t = &p->tap[i];
        const int32_t *w = p->weight + t->at;
        const uint8_t *px = from + 3 * (size_t)t->first;
        int32_t half = 1 << p->precision >> 1, r = half, g = half, b = half;
        for (int j = 0; j < t->n; j++, px += 3) {
            r += w[j] * px[0];
            g += w[j] * px[1];
            b += w[j] * px[2];
        }
        to[0] = clip(r, p->precision), to[1] = clip(g, p->precision), to[2] = clip(b, p->precision);
    }
}

/* One row out of the rows that t names; n samples, sums has room for them. */
static void resize_column(uint8_t *to, const uint8_t *from, size_t n, const pass *p, const tap *t, int32_t *sums)
{
    for (size_t x = 0; x < n; x++) sums[x] = 1 << p->precision >> 1;
    for (int j = 0; j < t->n; j++) {
        const uint8_t *row = from + n * (size_t)(t->first + j);
        int32_t w = p->weight[t->at + (size_t)j];
        for (size_t x = 0; x < n; x++) sums[x] += w * row[x];
    }
    for (size_t x = 0; x < n; x++) to[x] = clip(sums[x], p->precision);
}

static ek_err horizontal(ek_image *out, const ek_image *in, int width, ek_resizer how)
{
    EK_TRY(ek_image_make(out, width, in->height));
    pass p;
    prepare(&p, in->width, width, how);
    for (int y = 0; y < in->height; y++)
        resize_row(out->rgb + 3 * (size_t)y * (size_t)width, in->rgb + 3 * (size_t)y * (size_t)in->width, &p);
    finish(&p);
    return EK_OK;
}

static ek_err vertical(ek_image *out, const ek_image *in, int height, ek_resizer how)
{
    EK_TRY(ek_image_make(out, in->width, height));
    size_t n = 3 * (size_t)in->width;
    int32_t *sums = ek_alloc(n * sizeof *sums);
    pass p;
    prepare(&p, in->height, height, how);
    for (int y = 0; y < height; y++) resize_column(out->rgb + n * (size_t)y, in->rgb, n, &p, &p.tap[y], sums);
    finish(&p);
    free(sums);
    return EK_OK;
}

static ek_err copy(ek_image *out, const ek_image *in)
{
    EK_TRY(ek_image_make(out, in->width, in->height));
    memcpy(out->rgb, in->rgb, ek_image_bytes(in));
    return EK_OK;
}

/* A pass that would change no size is left out: its weights are 1. */
ek_err ek_image_resize(ek_image *out, const ek_image *in, int width, int height, ek_resizer how)
{
    *out = (ek_image){0};
    if (in->width == width) return in->height == height ? copy(out, in) : vertical(out, in, height, how);
    if (in->height == height) return horizontal(out, in, width, how);
    ek_image between;
    EK_TRY(horizontal(&between, in, width, how));
    ek_err err = vertical(out, &between, height, how);
    ek_image_free(&between);
    return err;
}
