#include "media/resize_pass.h"

static uint8_t clip(int32_t sum, int precision)
{
    sum >>= precision;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static uint32_t halves(int32_t a, int32_t b)
{
    return (uint16_t)a | (uint32_t)(uint16_t)b << 16;
}

void ek_resize_pairs(ek_resize_pass *p)
{
    p->wide = 0;
    for (int i = 0; i < p->out; i++)
        for (int j = 0; j < p->tap[i].n; j++) {
            const int32_t w = p->weight[p->tap[i].at + (size_t)j];
            if (w != (int16_t)w) p->wide = 1;
        }
    for (int i = 0; i < p->out; i++) {
        const ek_resize_tap *t = &p->tap[i];
        for (int j = 0; j < t->n + 3 - (t->n + 3) % 4; j += 2) {
            const int32_t *w = p->weight + t->at;
            const int32_t a = j < t->n ? w[j] : 0, b = j + 1 < t->n ? w[j + 1] : 0;
            const size_t pair = (t->at + (size_t)j) / 2;
            p->low[pair] = p->wide ? halves(a & 255, b & 255) : halves(a, b);
            p->high[pair] = p->wide ? halves(a >> 8, b >> 8) : 0;
        }
    }
}

static void along(uint8_t *to, const uint8_t *from, const ek_resize_pass *p, void *room)
{
    (void)room;
    for (int i = 0; i < p->out; i++, to += 3) {
        const ek_resize_tap *t = &p->tap[i];
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

void ek_resize_over_from(uint8_t *to, const uint8_t *const *rows, size_t x, size_t n, const ek_resize_pass *p, int i)
{
    const ek_resize_tap *t = &p->tap[i];
    for (; x < n; x++) {
        int32_t sum = 1 << p->precision >> 1;
        for (int j = 0; j < t->n; j++) sum += p->weight[t->at + (size_t)j] * rows[j][x];
        to[x] = clip(sum, p->precision);
    }
}

static void over(uint8_t *to, const uint8_t *const *rows, size_t n, const ek_resize_pass *p, int i)
{
    ek_resize_over_from(to, rows, 0, n, p, i);
}

size_t ek_resize_along_room(int n)
{
    return 2 * ((size_t)n / 2 + 8) * 16;
}

const ek_resize_kernels *ek_resize_kernels_all(int *n)
{
    static const ek_resize_kernels all[] = {
        {"scalar", along, over},
#ifdef __x86_64__
        {"sse2", ek_resize_along_sse2, ek_resize_over_sse2},
        {"avx2", ek_resize_along_avx2, ek_resize_over_avx2},
#endif
    };
    *n = sizeof all / sizeof *all;
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2")) --*n;
#endif
    return all;
}
