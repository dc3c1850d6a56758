#include "media/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "media/resize_pass.h"

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    return 0.0;
}

/* The inputs of output i and their weights. Before rounding, the weights add up to 1. Returns the largest weight. */
static double weigh(ek_resize_tap *t, double *w, int in, int out, int i)
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

/* The number of bits with which the largest weight of a pass still fits into 16 bits. */
static int precision_of(double largest)
{
    int bits = 0;
    while (bits < 22 && (int)(0.5 + largest * (1 << (bits + 1))) < 1 << 15) bits++;
    return bits;
}

static void make_weights(ek_resize_pass *p, size_t n)
{
    p->weight = ek_alloc(n * sizeof *p->weight);
    p->low = ek_alloc(n / 2 * sizeof *p->low);
    p->high = ek_alloc(n / 2 * sizeof *p->high);
}

/* Copies every sample. */
static void prepare_same(ek_resize_pass *p, int n)
{
    *p = (ek_resize_pass){.in = n, .out = n, .tap = ek_alloc((size_t)n * sizeof *p->tap)};
    make_weights(p, 4);
    p->weight[0] = 1;
    for (int i = 0; i < n; i++) p->tap[i] = (ek_resize_tap){.first = i, .n = 1};
    ek_resize_pairs(p);
}

/* A pass that changes no size is left out: all its weights are 1. */
static void prepare(ek_resize_pass *p, int in, int out, ek_resizer how)
{
    if (in == out) {
        prepare_same(p, in);
        return;
    }
    double scale = (double)in / out, largest = 0.0;
    size_t room = (size_t)ceil(2.0 * (scale > 1.0 ? scale : 1.0)) * 2 + 1;
    room += 3 - (room + 3) % 4;
    double *w = ek_alloc(room * (size_t)out * sizeof *w);
    *p = (ek_resize_pass){.in = in, .out = out, .tap = ek_alloc((size_t)out * sizeof *p->tap)};
    make_weights(p, room * (size_t)out);
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
    ek_resize_pairs(p);
}

static void finish(ek_resize_pass *p)
{
    free(p->tap);
    free(p->weight);
    free(p->low);
    free(p->high);
}

/* --- rows in the order of their arrival --- */

/* Rows run along the first axis of the stored picture and follow each other along the second. The resize works first on
 * shown rows, with 8 bits in between. For a rotated picture these are stored columns. */
struct ek_resizing {
    ek_image *to;
    ek_resize_pass along, over;
    const ek_resize_kernels *kernels;
    bool on_side;  /* stored rows are shown columns */
    bool reversed; /* the stored row's beginning is the shown row's end */
    bool upward;   /* the first stored row is the last shown row */
    int n_rows;    /* so far */
    int next;      /* the next output of the pass over the rows */
    int n_ring;    /* number of kept rows: as many as one output reads */
    size_t n;      /* samples of each */
    uint8_t *ring, *line, *turned;
    const uint8_t **rows; /* the rows of the ring that one output reads */
    void *room;           /* memory of the kernel along a row */
};

static int max_taps(const ek_resize_pass *p)
{
    int n = 0;
    for (int i = 0; i < p->out; i++) n = n < p->tap[i].n ? p->tap[i].n : n;
    return n;
}

static size_t ring_bytes(const ek_resizing *r)
{
    return r->n * (size_t)r->n_ring;
}

ek_err ek_resizing_begin(ek_resizing **out, ek_image *to, int width, int height, int orientation, ek_resizer how)
{
    const int o = orientation;
    if (!to->rgb) EK_TRY(ek_image_make(to, to->width, to->height));
    ek_resizing *r = ek_alloc(sizeof *r);
    r->to = to;
    int n_kernels;
    r->kernels = ek_resize_kernels_all(&n_kernels);
    r->kernels += n_kernels - 1;
    r->on_side = o >= 5;
    r->reversed = o == 2 || o == 3 || o == 7 || o == 8;
    r->upward = o == 3 || o == 4 || o == 6 || o == 7;
    prepare(&r->along, width, r->on_side ? to->height : to->width, how);
    prepare(&r->over, height, r->on_side ? to->width : to->height, how);
    r->next = r->upward ? r->over.out - 1 : 0;
    r->n_ring = max_taps(&r->over);
    r->n = 3 * (size_t)(r->on_side ? width : to->width);
    r->rows = ek_alloc((size_t)r->n_ring * sizeof *r->rows);
    r->room = ek_alloc(ek_resize_along_room(r->along.in));
    r->line = ek_alloc(r->n);
    r->turned = ek_alloc(3 * (size_t)(width > to->height ? width : to->height));
    r->ring = ek_alloc_big(ring_bytes(r));
    if (!r->ring) {
        ek_resizing_end(r);
        return EK_ENOMEM;
    }
    *out = r;
    return EK_OK;
}

void ek_resizing_end(ek_resizing *r)
{
    if (!r) return;
    finish(&r->along);
    finish(&r->over);
    free(r->rows);
    free(r->room);
    free(r->line);
    free(r->turned);
    ek_free_big(r->ring, ring_bytes(r));
    free(r);
}

size_t ek_resizing_memory(int width, int height, int orientation, int to_width, int to_height)
{
    const bool on_side = orientation >= 5;
    const size_t over = (size_t)(on_side ? to_width : to_height), along = (size_t)(on_side ? to_height : to_width);
    const size_t in = (size_t)width, rows = (size_t)height, scale = rows / over + 1;
    const size_t n = 3 * (on_side ? in : along);
    /* The ring and two lines; a row that is spread out; the weights, four per input sample and eight per output sample,
     * as float64, as integers and in pairs, with their taps. */
    return n * (4 * scale + 6) + 3 * (in > along ? in : along) + 16 * ((on_side ? rows : in) + 4 * scale + 24) +
           (in + rows) * 4 * 16 + (over + along) * 9 * 16 + 3 * over * along +
           (4u << 20); /* large blocks are rounded up */
}

/* Makes line i of the pass over the rows. */
static void resize_over(ek_resizing *r, uint8_t *to, int i)
{
    const ek_resize_tap *t = &r->over.tap[i];
    for (int j = 0; j < t->n; j++) r->rows[j] = r->ring + r->n * (size_t)((t->first + j) % r->n_ring);
    r->kernels->over(to, r->rows, r->n, &r->over, i);
}

static void put_row(ek_resizing *r, int y)
{
    resize_over(r, r->to->rgb + r->n * (size_t)y, y);
}

static void put_column(ek_resizing *r, int x)
{
    uint8_t *to = r->to->rgb + 3 * (size_t)x;
    const size_t stride = 3 * (size_t)r->to->width;
    resize_over(r, r->line, x);
    r->kernels->along(r->turned, r->line, &r->along, r->room);
    for (int y = 0; y < r->to->height; y++, to += stride) memcpy(to, r->turned + 3 * (size_t)y, 3);
}

static const uint8_t *reverse(ek_resizing *r, const uint8_t *rgb)
{
    for (int x = 0; x < r->along.in; x++) memcpy(r->turned + 3 * (size_t)x, rgb + 3 * (size_t)(r->along.in - 1 - x), 3);
    return r->turned;
}

/* Whether the last row that the next output reads has arrived. */
static bool is_due(const ek_resizing *r, int at)
{
    if (r->next < 0 || r->next >= r->over.out) return false;
    const ek_resize_tap *t = &r->over.tap[r->next];
    return r->upward ? t->first >= at : t->first + t->n - 1 <= at;
}

void ek_resizing_row(ek_resizing *r, const uint8_t *rgb)
{
    EK_ASSERT(r->n_rows < r->over.in);
    const int at = r->upward ? r->over.in - 1 - r->n_rows : r->n_rows;
    uint8_t *to = r->ring + r->n * (size_t)(at % r->n_ring);
    r->n_rows++;
    if (r->reversed) rgb = reverse(r, rgb);
    if (r->on_side) memcpy(to, rgb, r->n);
    else r->kernels->along(to, rgb, &r->along, r->room);
    for (; is_due(r, at); r->next += r->upward ? -1 : 1)
        if (r->on_side) put_column(r, r->next);
        else put_row(r, r->next);
}

ek_err ek_image_resize(ek_image *out, const ek_image *in, int width, int height, ek_resizer how)
{
    ek_resizing *r;
    *out = (ek_image){.width = width, .height = height};
    ek_err err = ek_resizing_begin(&r, out, in->width, in->height, 1, how);
    if (err) {
        ek_image_free(out);
        return err;
    }
    for (int y = 0; y < in->height; y++) ek_resizing_row(r, in->rgb + 3 * (size_t)y * (size_t)in->width);
    ek_resizing_end(r);
    return EK_OK;
}
