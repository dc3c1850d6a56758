#include "cuda/product/parts.h"

void ek_cuda_in_parts(ek_cuda_product *p, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip, size_t room,
                      int tiles, int blocks, ek_cuda_part_us *part_us, double *us)
{
    const size_t part_bytes = (size_t)rows * (size_t)l->n * sizeof(float);
    const int all_units = ek_cuda_over(l->k, 64), leaf_units = (l->units ? EK_KBLOCK_Q : EK_KBLOCK) / 64;
    for (int units = leaf_units; units < all_units; units *= 2) {
        const int parts = ek_cuda_over(all_units, units);
        const size_t bytes = part_bytes * (size_t)parts;
        if (bytes > room) continue;
        const double t = part_us(l, rows, units, chip) + chip->us->parts.sum +
                         2 * (double)bytes / chip->us->parts.bytes;
        if (t >= *us) continue;
        *us = t;
        p->split = units, p->parts = parts;
    }
    if (!p->parts) return;
    const size_t each = p->stack / p->grid.x;
    const int all = tiles * p->parts, max = blocks * chip->multiprocessors;
    p->grid.x = (unsigned)(all < max ? all : max);
    p->stack = p->grid.x * each;
}
