/* Launches of products of few rows in groups of 32 or 16 (kernels/product/warp.cuh). */
#include "cuda/product/product.h"

#include <stdio.h>

enum {
    MAX_ROWS = 8,
    SLOTS = 4,             /* chunks per warp in flight */
    GATED = 64 / EK_PANEL, /* panels of a share, rounded to groups of activations */
    UNIT = 64
};

/* Rows per block. Registers suffice for 4 rows of experts of most types, and of all products if warps themselves copy
 * bytes of two limbs with biases. */
static int rows_of(const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_chip *chip)
{
    const bool few = !chip->bulk && l->limbs == 2 && l->bits == 8 && l->biased && !l->f16_scales;
    const bool eight =
        jobs ? (l->limbs == 1 ? !l->biased || !l->f32_scales : !l->biased && l->f16_scales && l->group == 32) : !few;
    return eight && rows > MAX_ROWS / 2 ? MAX_ROWS : MAX_ROWS / 2;
}

int ek_cuda_warp_own_job_rows(const ek_cuda_linear *l, int rows)
{
    static const ek_cuda_chip any; /* for experts the number is the same on all chips */
    return rows_of(l, rows, 1, &any);
}

static ek_cuda_cut cut_of(const ek_cuda_linear *l, int per_tile)
{
    return ek_cuda_cut_of(l, EK_CUDA_WARP_GROUPS, per_tile, SLOTS);
}

ek_cuda_product ek_cuda_warp_own_plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, ek_cuda_gate gate,
                                      const ek_cuda_chip *chip)
{
    const int per_tile = rows_of(l, rows, jobs, chip), tiles = jobs ? jobs : ek_cuda_over(rows, per_tile),
              layers = tiles * matrices;
    const int panels = l->n_panels * (gate == EK_CUDA_GATE_MATRIX ? 2 : 1),
              places = chip->multiprocessors * EK_CUDA_WARP_BLOCKS;
    const ek_cuda_cut c = cut_of(l, per_tile);
    ek_cuda_product p = {.grid = {.y = (unsigned)tiles, .z = (unsigned)matrices, .overlap = true}};
    p.share = gate == EK_CUDA_GATE_MATRIX ? 2 * GATED
              : gate                      ? GATED
                                          : ek_cuda_cut_share(&c, panels * layers, places, ek_cuda_warp_sums(chip));
    if (p.share > panels && !gate) p.share = panels;
    const int shares = ek_cuda_over(panels, p.share), each = ek_cuda_over(shares, ek_cuda_over(places, layers));
    p.grid.x = (unsigned)ek_cuda_over(shares, each);
    /* more warps if blocks are few and have enough chunks */
    const bool many = (int)p.grid.x * layers <= chip->multiprocessors && each * p.share * c.chunks > EK_CUDA_WARPS;
    ek_cuda_cut_ring(&p, &c, each, many ? 2 * EK_CUDA_WARPS : EK_CUDA_WARPS,
                     many ? 2 * ek_cuda_warp_room(chip) : ek_cuda_warp_room(chip), chip);
    snprintf(p.name, sizeof p.name, "ek_product%s_warp_%s_l%d_r%d", gate || jobs || matrices > 1 ? "s" : "",
             ek_cuda_kind_of(l).name, l->limbs, per_tile);
    return p;
}

/* Whether kernels of q, k and v in one launch fit: 4 bits with f16 scales and q with one limb, or 8 bits with two
 * limbs. */
static bool heads_fit(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v)
{
    return ek_cuda_own_scales(q) && q->group == 32 && q->f16_scales && !q->biased && q->bits == k->bits &&
           q->group == k->group && k->f16_scales && !k->biased && q->zero == k->zero && q->k == k->k &&
           q->limbs == (q->bits == 4 ? 1 : 2) && k->limbs == 2 && (!v || ek_cuda_linear_alike(k, v));
}

bool ek_cuda_warp_own_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                                 const ek_cuda_linear *v, int rows, const ek_cuda_chip *chip)
{
    if (!heads_fit(q, k, v)) return false;
    const int per_tile = rows_of(k, rows, 0, chip), tiles = ek_cuda_over(rows, per_tile), parts = v ? 2 : 1;
    const int panels = q->n_panels + parts * k->n_panels,
              places = ek_cuda_over(chip->multiprocessors * EK_CUDA_WARP_BLOCKS, tiles);
    const ek_cuda_cut c = cut_of(q, per_tile);
    const int share = ek_cuda_cut_share(&c, panels, places, ek_cuda_warp_sums(chip));
    const int q_shares = ek_cuda_over(q->n_panels, share), k_shares = ek_cuda_over(k->n_panels, share);
    const int each = ek_cuda_over(q_shares + parts * k_shares, places); /* shares per block */
    ek_cuda_heads p = {.q.share = share,
                       .k.share = share,
                       .q_blocks = ek_cuda_over(q_shares, each),
                       .k_blocks = ek_cuda_over(k_shares, each)};
    ek_cuda_cut_ring(&p.q, &c, each, EK_CUDA_WARPS, ek_cuda_warp_room(chip), chip);
    p.k = p.q;
    p.q.grid.x = (unsigned)(p.q_blocks + parts * p.k_blocks), p.q.grid.y = (unsigned)tiles, p.q.grid.overlap = true;
    snprintf(p.q.name, sizeof p.q.name, "ek_product_warp_heads_%s_r%d", ek_cuda_kind_of(q).name, per_tile);
    *out = p;
    return true;
}

/* --- experts beside the dense MLP (kernels/product/experts_own.cu) */

static bool beside_fits(const ek_cuda_linear *l)
{
    return l->limbs == 1 && l->bits == 4 && l->group == 32 && l->f16_scales && !l->biased && ek_cuda_own_scales(l);
}

bool ek_cuda_warp_own_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                 const ek_cuda_linear *router, int rows, const ek_cuda_chip *chip)
{
    if (rows > MAX_ROWS || !beside_fits(gate) || gate->n % UNIT || !down->units || router->form != EK_W_F32)
        return false;
    const int per_tile = rows_of(gate, rows, 0, chip);
    const ek_cuda_cut c = cut_of(gate, per_tile);
    *out = (ek_cuda_heads){.q.share = 2 * GATED, .q_blocks = gate->n / UNIT, .k_tiles = rows};
    out->k_blocks = router->n_panels;
    ek_cuda_cut_ring(&out->q, &c, 1, 2 * EK_CUDA_WARPS, 2 * ek_cuda_warp_room(chip), chip);
    const size_t leaves = sizeof(float) * EK_PANEL * (size_t)ek_cuda_over(router->k, EK_KBLOCK);
    if (out->q.grid.shared < leaves) out->q.grid.shared = leaves;
    out->q.grid.x = (unsigned)(out->k_blocks * out->k_tiles + out->q_blocks + 1), out->q.grid.overlap = true;
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_first_%s_r%d", ek_cuda_kind_of(gate).name, per_tile);
    return true;
}

bool ek_cuda_warp_own_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                  const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                  const ek_cuda_chip *chip)
{
    const int per_tile = MAX_ROWS / 2;
    if (tile > per_tile || !beside_fits(gate) || gate->n % UNIT || !expert_down->units || !beside_fits(down))
        return false;
    const ek_cuda_cut c = cut_of(gate, per_tile), of_down = cut_of(down, per_tile);
    *out = (ek_cuda_heads){.q.share = 2 * GATED, .q_blocks = gate->n / UNIT, .k_tiles = ek_cuda_over(rows, per_tile)};
    /* the dense matrix takes the multiprocessors that the experts do not use, or shares some with them */
    const int experts = out->q_blocks * jobs, left = chip->multiprocessors - experts;
    const bool alone = left >= chip->multiprocessors / 4;
    out->k.share = ek_cuda_cut_share(&of_down, down->n_panels * out->k_tiles,
                                     alone ? left : ek_cuda_over(chip->multiprocessors * 2, 3),
                                     ek_cuda_warp_sums(chip));
    out->k_blocks = ek_cuda_over(down->n_panels, out->k.share);
    const int warps = alone ? 2 * EK_CUDA_WARPS : EK_CUDA_WARPS;
    const size_t room = alone ? 2 * ek_cuda_warp_room(chip) : ek_cuda_warp_room(chip);
    ek_cuda_cut_rings(out, &c, &of_down, warps, room, chip);
    out->q.grid.x = (unsigned)(experts + out->k_blocks * out->k_tiles);
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_second_%s_r%d", ek_cuda_kind_of(gate).name, per_tile);
    return true;
}

/* If registers are few (rows_of), a tile of 8 takes longer than one of 4. */
double ek_cuda_warp_own_us(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const int per_tile = rows_of(l, rows, 0, chip);
    const double passes = ek_cuda_over(rows, per_tile) *
                          (per_tile == rows_of(l, rows, 1, chip) ? 1 : chip->us->warp_own.eight[l->limbs - 1]);
    const double weight = l->group == 16 ? chip->us->warp_own.weight_16
                          : l->bits == 8 ? chip->us->warp_own.weight_8
                                         : chip->us->warp_own.weight_4;
    return chip->us->warp_own.launch + weight * (double)l->n * (double)l->k * passes;
}
