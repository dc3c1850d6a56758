/* How products of few rows in groups of 32 or 16 are launched (kernels/product_plane.cuh). */
#include <stdio.h>

#include "cuda/linear.h"

enum {
    MAX_ROWS = 8,
    MAX_LEAVES = 128,
    WARPS = 8,
    BLOCKS = 2,            /* of a multiprocessor */
    MAX_STAGES = 4,        /* chunks that a warp has on their way */
    ROOM = 100 << 10,      /* of a block in shared memory */
    MAX_SUMS = 24 << 10,   /* of a turn's leaves */
    GATED = 64 / EK_PANEL, /* panels of a turn that is rounded to groups of activations */
    UNIT = 64
};

static int over(int n, int by)
{
    return (n + by - 1) / by;
}

/* Kernels take groups that activations have too, with leaves of two panels in shared memory. */
bool ek_cuda_plane_fits(const ek_cuda_linear *l)
{
    if (!l->units || l->group != l->a_group || l->k > MAX_LEAVES * EK_KBLOCK_Q) return false;
    if (l->group == 16) return l->bits == 8 && l->f32_scales && !l->biased;
    /* what no type has: 4 bits without biases but in f16 */
    return l->group == 32 && (l->biased || l->f16_scales || l->bits == 8);
}

ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l)
{
    ek_cuda_kind k;
    if (ek_cuda_leaf_fits(l)) snprintf(k.name, sizeof k.name, "q%d", l->bits);
    else
        snprintf(k.name, sizeof k.name, "q%d%s%s_%d", l->bits,
                 l->f16_scales   ? "h"
                 : l->f32_scales ? "f"
                                 : "b",
                 l->biased ? "m" : "", l->group);
    return k;
}

void ek_cuda_plane_tile(ek_cuda_product *p, const ek_cuda_linear *l)
{
    if (!ek_cuda_plane_fits(l)) return;
    const bool held = l->group == 16 || (l->biased ? l->bits == 4 && !l->f16_scales : l->f16_scales);
    if (held) snprintf(p->name, sizeof p->name, "ek_product_%s_l%d_tile", ek_cuda_kind_of(l).name, l->limbs);
}

/* Rows that a block computes: of experts others leave registers for 4. */
static int rows_of(const ek_cuda_linear *l, int rows, int jobs)
{
    const bool eight = !jobs ||
                       (l->limbs == 1 ? !l->biased || !l->f32_scales : !l->biased && l->f16_scales && l->group == 32);
    return eight && rows > MAX_ROWS / 2 ? MAX_ROWS : MAX_ROWS / 2;
}

/* What a panel of a call is cut into. */
typedef struct cut {
    int chunks, leaves, leaf_chunks;
    size_t chunk_bytes, leaf_bytes; /* sums of a leaf */
} cut;

static cut cut_of(const ek_cuda_linear *l, int per_tile)
{
    const int inputs = EK_CUDA_PLANE_GROUPS * l->group, leaf_chunks = EK_KBLOCK_Q / inputs;
    const int chunks = over(l->units * UNIT, inputs);
    return (cut){.chunks = chunks,
                 .leaf_chunks = leaf_chunks,
                 .leaves = over(chunks, leaf_chunks),
                 .chunk_bytes = (size_t)(inputs / UNIT * l->bits * 128) +
                                EK_CUDA_PLANE_GROUPS * EK_PANEL * ek_cuda_linear_scale(l),
                 .leaf_bytes = sizeof(float) * EK_PANEL * (size_t)per_tile};
}

static int turn_of(const cut *c, int panels, int slots)
{
    const int turn = over(panels, slots), most = MAX_SUMS / (int)((size_t)c->leaves * c->leaf_bytes);
    return turn > most ? (most ? most : 1) : turn;
}

/* Stages and shared memory of p's warps, with p's turn and `turns` per block. */
static void ring(ek_cuda_product *p, const cut *c, int turns, int warps, size_t room)
{
    const int told = p->turn * c->leaves * (c->leaf_chunks - 1);
    const size_t sums = 2 * (size_t)(p->turn * c->leaves) * c->leaf_bytes, fixed = (size_t)told * 8 + 256 + sums;
    p->stages = over(turns * p->turn * c->chunks, warps);
    if (p->stages > MAX_STAGES) p->stages = MAX_STAGES;
    while (p->stages > 1 && fixed + (size_t)(warps * p->stages) * (c->chunk_bytes + 8) > room) p->stages--;
    const size_t slots = (size_t)(warps * p->stages);
    p->grid.threads = (unsigned)warps * 32;
    p->grid.shared = ((slots + (size_t)told) * 8 + 127) / 128 * 128 + slots * c->chunk_bytes + sums;
}

/* matrices: alike, in a launch. */
static ek_cuda_product plan(const ek_cuda_linear *l, int rows, int jobs, int matrices, ek_cuda_gate gate,
                            int multiprocessors)
{
    const int per_tile = rows_of(l, rows, jobs), tiles = jobs ? jobs : over(rows, per_tile), layers = tiles * matrices;
    const int panels = l->n_panels * (gate == EK_CUDA_GATE_MATRIX ? 2 : 1), slots = multiprocessors * BLOCKS;
    const cut c = cut_of(l, per_tile);
    ek_cuda_product p = {.grid = {.y = (unsigned)tiles, .z = (unsigned)matrices, .overlap = true}};
    p.turn = gate == EK_CUDA_GATE_MATRIX ? 2 * GATED : gate ? GATED : turn_of(&c, panels * layers, slots);
    if (p.turn > panels && !gate) p.turn = panels;
    const int turns = over(panels, p.turn), each = over(turns, over(slots, layers));
    p.grid.x = (unsigned)over(turns, each);
    /* more warps where blocks are few and have enough chunks */
    const bool many = (int)p.grid.x * layers <= multiprocessors && each * p.turn * c.chunks > WARPS;
    ring(&p, &c, each, many ? 2 * WARPS : WARPS, many ? 2 * ROOM : ROOM);
    snprintf(p.name, sizeof p.name, "ek_product%s_plane_%s_l%d_r%d", gate || jobs || matrices > 1 ? "s" : "",
             ek_cuda_kind_of(l).name, l->limbs, per_tile);
    return p;
}

ek_cuda_product ek_cuda_plane_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors)
{
    return plan(l, rows, jobs, 1, gate, multiprocessors);
}

ek_cuda_product ek_cuda_plane_pair(const ek_cuda_linear *l, int rows, int multiprocessors)
{
    return plan(l, rows, 0, 2, EK_CUDA_GATE_NONE, multiprocessors);
}

/* Kernels of q, k and v in one launch: 4 bits with f16 scales, q with one limb, or 8 bits of two limbs. */
static bool heads_fit(const ek_cuda_linear *q, const ek_cuda_linear *k, const ek_cuda_linear *v)
{
    return ek_cuda_plane_fits(q) && q->group == 32 && q->f16_scales && !q->biased && q->bits == k->bits &&
           q->group == k->group && k->f16_scales && !k->biased && q->zero == k->zero && q->k == k->k &&
           q->limbs == (q->bits == 4 ? 1 : 2) && k->limbs == 2 && (!v || ek_cuda_linear_alike(k, v));
}

bool ek_cuda_plane_heads_plan(ek_cuda_heads *out, const ek_cuda_linear *q, const ek_cuda_linear *k,
                              const ek_cuda_linear *v, int rows, int multiprocessors)
{
    if (!heads_fit(q, k, v) || !ek_cuda_plane_wins(q, rows, multiprocessors) ||
        !ek_cuda_plane_wins(k, rows, multiprocessors))
        return false;
    const int per_tile = rows_of(k, rows, 0), tiles = over(rows, per_tile), parts = v ? 2 : 1;
    const int panels = q->n_panels + parts * k->n_panels, slots = over(multiprocessors * BLOCKS, tiles);
    const cut c = cut_of(q, per_tile);
    const int turn = turn_of(&c, panels, slots);
    const int q_turns = over(q->n_panels, turn), k_turns = over(k->n_panels, turn);
    const int each = over(q_turns + parts * k_turns, slots); /* turns of a block */
    ek_cuda_heads p = {
        .q.turn = turn, .k.turn = turn, .q_blocks = over(q_turns, each), .k_blocks = over(k_turns, each)};
    ring(&p.q, &c, each, WARPS, ROOM);
    p.k = p.q;
    p.q.grid.x = (unsigned)(p.q_blocks + parts * p.k_blocks), p.q.grid.y = (unsigned)tiles, p.q.grid.overlap = true;
    snprintf(p.q.name, sizeof p.q.name, "ek_product_plane_heads_%s_r%d", ek_cuda_kind_of(q).name, per_tile);
    *out = p;
    return true;
}

/* --- experts beside the dense MLP (kernels/experts_plane.cu) */

static bool beside_fits(const ek_cuda_linear *l)
{
    return l->limbs == 1 && l->bits == 4 && l->group == 32 && l->f16_scales && !l->biased && ek_cuda_plane_fits(l);
}

bool ek_cuda_plane_experts_first_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                      const ek_cuda_linear *router, int rows)
{
    if (rows > MAX_ROWS || !beside_fits(gate) || gate->n % UNIT || !down->units || router->form != EK_W_F32)
        return false;
    const int per_tile = rows_of(gate, rows, 0);
    const cut c = cut_of(gate, per_tile);
    *out = (ek_cuda_heads){.q.turn = 2 * GATED, .q_blocks = gate->n / UNIT, .k_tiles = rows};
    out->k_blocks = router->n_panels;
    ring(&out->q, &c, 1, 2 * WARPS, 2 * ROOM);
    const size_t leaves = sizeof(float) * EK_PANEL * (size_t)over(router->k, EK_KBLOCK);
    if (out->q.grid.shared < leaves) out->q.grid.shared = leaves;
    out->q.grid.x = (unsigned)(out->k_blocks * out->k_tiles + out->q_blocks + 1), out->q.grid.overlap = true;
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_first_%s_r%d", ek_cuda_kind_of(gate).name, per_tile);
    return true;
}

bool ek_cuda_plane_experts_second_plan(ek_cuda_heads *out, const ek_cuda_linear *gate, const ek_cuda_linear *down,
                                       const ek_cuda_linear *expert_down, int rows, int tile, int jobs,
                                       int multiprocessors)
{
    const int per_tile = MAX_ROWS / 2;
    if (tile > per_tile || !beside_fits(gate) || gate->n % UNIT || !expert_down->units || !beside_fits(down))
        return false;
    const cut c = cut_of(gate, per_tile), of_down = cut_of(down, per_tile);
    *out = (ek_cuda_heads){.q.turn = 2 * GATED, .q_blocks = gate->n / UNIT, .k_tiles = over(rows, per_tile)};
    /* the dense matrix on multiprocessors that the experts leave, or on some that they then share */
    const int experts = out->q_blocks * jobs, left = multiprocessors - experts;
    const bool alone = left >= multiprocessors / 4;
    out->k.turn = turn_of(&of_down, down->n_panels * out->k_tiles, alone ? left : over(multiprocessors * 2, 3));
    out->k_blocks = over(down->n_panels, out->k.turn);
    ring(&out->q, &c, 1, alone ? 2 * WARPS : WARPS, alone ? 2 * ROOM : ROOM);
    ring(&out->k, &of_down, 1, alone ? 2 * WARPS : WARPS, alone ? 2 * ROOM : ROOM);
    if (out->q.grid.shared < out->k.grid.shared) out->q.grid.shared = out->k.grid.shared;
    out->q.grid.x = (unsigned)(experts + out->k_blocks * out->k_tiles), out->q.grid.overlap = true;
    snprintf(out->q.name, sizeof out->q.name, "ek_experts_second_%s_r%d", ek_cuda_kind_of(gate).name, per_tile);
    return true;
}

/* Fitted to `device planes` on an H200, us: what a launch takes, and a million weights for every tile of rows; where
 * registers are few (rows_of) a tile of 8 takes longer than one of 4, with two limbs twice as long. */
double ek_cuda_plane_us(const ek_cuda_linear *l, int rows)
{
    const int per_tile = rows_of(l, rows, 0);
    const double passes = over(rows, per_tile) * (per_tile == rows_of(l, rows, 1) ? 1 : l->limbs == 2 ? 2 : 1.6);
    return 3 + (l->group == 16 ? 0.5e-6 : l->bits == 8 ? 0.36e-6 : 0.28e-6) * (double)l->n * (double)l->k * passes;
}

/* --- by leaves, whatever the scales */

bool ek_cuda_job_fits(const ek_cuda_linear *l, int rows)
{
    return ek_cuda_plane_fits(l) ? rows <= rows_of(l, rows, 1) : ek_cuda_leaf_fits(l) && rows * l->limbs <= 8;
}

bool ek_cuda_gate_fits(const ek_cuda_linear *l, int rows, int jobs, const ek_cuda_linear *next, int multiprocessors)
{
    if (l->n % 64 || !next->units) return false;
    if (ek_cuda_plane_fits(l)) return jobs ? ek_cuda_job_fits(l, rows) : ek_cuda_plane_wins(l, rows, multiprocessors);
    if (next->a_group != 64) return false;
    return jobs ? ek_cuda_leaf_fits(l) && rows * l->limbs <= 8 : ek_cuda_leaf_wins(l, rows, multiprocessors);
}

ek_cuda_product ek_cuda_few_plan(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate, int multiprocessors)
{
    return ek_cuda_plane_fits(l) ? plan(l, rows, jobs, 1, gate, multiprocessors)
                                 : ek_cuda_leaf_plan(l, rows, jobs, gate, multiprocessors);
}
