/* One pass of a resize: each output is a sum of inputs with integer weights. Inside src/media. The sums are exact, so the
 * plain functions (_c) are the definition, and the others have their bytes at any width. */
#ifndef EK_MEDIA_RESIZE_PASS_H
#define EK_MEDIA_RESIZE_PASS_H

#include <stddef.h>
#include <stdint.h>

/* One output sample: n inputs from `first` on, with weights from weight[at] and pairs from pair[at / 2] on; at is even. */
typedef struct ek_resize_tap {
    int first, n;
    size_t at;
} ek_resize_tap;

/* Two weights as two numbers of 16 bits: the first in the lower half. A weight is low, or 256 high + low in a wide pass. */
typedef struct ek_resize_pair {
    uint32_t low, high;
} ek_resize_pair;

typedef struct ek_resize_pass {
    int in, out, precision; /* bits of a weight behind the point */
    int wide;               /* some weight has more than 16 bits; none has more than 24 */
    ek_resize_tap *tap;     /* one per output */
    int32_t *weight;
    ek_resize_pair *pair; /* a weight of 0 completes the last one of a tap */
} ek_resize_pass;

/* Fills wide and pair, which has room, from tap and weight. */
void ek_resize_pairs(ek_resize_pass *p);

/* Bytes of room for ek_resize_along over rows of n pixels. */
size_t ek_resize_along_room(int n);
/* p->out pixels out of a row of p->in pixels, 3 samples each: the sum, half of the last bit added, cut to 0..255. */
void ek_resize_along(uint8_t *to, const uint8_t *from, const ek_resize_pass *p, void *room);
void ek_resize_along_c(uint8_t *to, const uint8_t *from, const ek_resize_pass *p);
/* Output i of a pass over rows: n samples out of the p->tap[i].n rows of n samples that it reads. */
void ek_resize_over(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i);
void ek_resize_over_c(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i);

#endif
