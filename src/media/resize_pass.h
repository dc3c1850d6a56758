/* One pass of a resize: each output is a sum of inputs with integer weights. Inside src/media. The sums are exact, so
 * kernels of any width write the bytes of the plain definition. */
#ifndef EK_MEDIA_RESIZE_PASS_H
#define EK_MEDIA_RESIZE_PASS_H

#include <stddef.h>
#include <stdint.h>

/* One output sample: n inputs from `first` on, with weights from weight[at] and pairs from low[at / 2] on; at and the
 * number of weights are multiples of 4. */
typedef struct ek_resize_tap {
    int first, n;
    size_t at;
} ek_resize_tap;

typedef struct ek_resize_pass {
    int in, out, precision; /* fractional bits of a weight */
    int wide;               /* some weight has more than 16 bits; none has more than 24 */
    ek_resize_tap *tap;     /* one per output */
    int32_t *weight;
    /* Pairs of weights, each as two 16-bit numbers, the first in the lower half; zero weights fill up four. In a wide
     * pass a weight is 256 high + low, otherwise low. */
    uint32_t *low, *high;
} ek_resize_pass;

/* Fills wide, low and high from tap and weight. */
void ek_resize_pairs(ek_resize_pass *p);

/* p->out pixels out of a row of p->in pixels, 3 samples each: the sum, half of the last bit added, cut to 0..255. */
typedef void ek_resize_along_fn(uint8_t *to, const uint8_t *from, const ek_resize_pass *p, void *room);
/* Output i of a pass over rows: n samples out of the p->tap[i].n rows of n samples that it reads. */
typedef void ek_resize_over_fn(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i);

/* Bytes of room for a row of n pixels, for any of the functions. */
size_t ek_resize_along_room(int n);

typedef struct ek_resize_kernels {
    const char *isa;
    ek_resize_along_fn *along;
    ek_resize_over_fn *over;
} ek_resize_kernels;

/* The kernels that this machine can run, n of them: the definition first, the fastest last. */
const ek_resize_kernels *ek_resize_kernels_all(int *n);
/* The definition from sample x on, for the rest of a row. */
void ek_resize_over_from(uint8_t *to, const uint8_t *const *rows, size_t x, size_t n, const ek_resize_pass *p, int i);
#ifdef __x86_64__
ek_resize_along_fn ek_resize_along_sse2, ek_resize_along_avx2;
ek_resize_over_fn ek_resize_over_sse2, ek_resize_over_avx2;
#endif

#endif
