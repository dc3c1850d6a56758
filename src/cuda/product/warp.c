#include "cuda/product/product.h"

bool ek_cuda_warp_fits(const ek_cuda_linear *l)
{
    return ek_cuda_affine_64(l) || ek_cuda_own_scales(l);
}

bool ek_cuda_warp_job_fits(const ek_cuda_linear *l, int rows)
{
    if (ek_cuda_own_scales(l)) return rows <= ek_cuda_warp_own_job_rows(l, rows);
    return ek_cuda_affine_64(l) && rows * l->limbs <= 8;
}

bool ek_cuda_warp_gate_fits(const ek_cuda_linear *l, const ek_cuda_linear *next)
{
    if (l->n % 64 || !next->units) return false;
    return ek_cuda_own_scales(l) || (ek_cuda_affine_64(l) && next->a_group == 64);
}

ek_cuda_product ek_cuda_warp_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                  const ek_cuda_chip *chip)
{
    return ek_cuda_affine_64(l) ? ek_cuda_warp_64_plan(l, rows, jobs, gate, chip)
                                : ek_cuda_warp_own_plan(l, rows, jobs, 1, gate, chip);
}

double ek_cuda_warp_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    return ek_cuda_affine_64(l) ? ek_cuda_warp_64_us(l, rows, chip) : ek_cuda_warp_own_us(l, rows, chip);
}

double ek_cuda_warp_gate_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    return ek_cuda_affine_64(l) ? ek_cuda_warp_64_gate_us(l, rows, chip) : 2 * ek_cuda_warp_own_us(l, rows, chip);
}

bool ek_cuda_warp_pair_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    if (!ek_cuda_own_scales(l)) return false;
    *out = ek_cuda_warp_own_plan(l, rows, 0, 2, EK_CUDA_GATE_NONE, chip);
    return true;
}

bool ek_cuda_warp_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                             const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip)
{
    return ek_cuda_warp_own_heads_plan(out, q, k, v, rows, chip) ||
           ek_cuda_warp_64_heads_plan(out, q, k, v, rows, chip);
}

double ek_cuda_warp_heads_us(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v, int rows,
                             const ek_cuda_chip *chip)
{
    return chip->us->warp_64.heads_launch +
           chip->us->warp_64.heads_weight * ((double)q->n + 2.0 * (v ? 2 : 1) * k->n) * q->k * ((rows + 7) / 8);
}

bool ek_cuda_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip)
{
    return ek_cuda_warp_own_first_plan(out, gate, down, router, rows, chip) ||
           ek_cuda_warp_64_first_plan(out, gate, down, router, rows, chip);
}

bool ek_cuda_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                 const ek_cuda_chip *chip)
{
    return ek_cuda_warp_own_second_plan(out, gate, down, expert_down, rows, tile, jobs, chip) ||
           ek_cuda_warp_64_second_plan(out, gate, down, expert_down, rows, tile, jobs, chip);
}
