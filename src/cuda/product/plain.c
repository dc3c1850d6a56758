#include "cuda/product/product.h"

#include <stdio.h>

/* TILE: rows of a block (vulkan/shaders/product_q.glsl). MANY_TILE, SMALL_TILE, MANY_PANELS: rows and panels of large
 * products (product_many.glsl, product_tile.glsl). MANY_LEAVES: leaves of T that product_many holds. A row of more than
 * LONG leaves has a form with chains in registers, up to MAX_LONG. */
enum { TILE = 4, MANY_TILE = 64, SMALL_TILE = 32, MANY_PANELS = 4, MANY_LEAVES = 31, LEAF = 1024 };
enum { LONG = 16, MAX_LONG = 32 };

/* Eight threads for each unit: the fewest with which a thread has as few units as of 512 (352: with known forms). With
 * 1,024, or with bytes and more than 256, one block at a time would run on a multiprocessor, and its loads would wait
 * for its chains (docs/log/2026-11-30-vulkan-31b.md). */
static int threads_of(const ek_cuda_linear *l, bool known)
{
    const int of_512 = (l->units * 8 + 511) / 512;
    return l->units * 8 <= 256 ? 256 : known && l->units * 8 <= of_512 * 352 ? 352 : 512;
}

/* Shaders that know the form of the matrix have less to do: of nibbles and one limb, and of bytes and two. sixteen:
 * groups of 16, too.
 */
static const char *form_of(const ek_cuda_linear *l, bool sixteen)
{
    if (l->limbs != l->bits / 4) return "";
    if (sixteen && l->bits == 8 && l->group == 16 && l->a_group == 16 && l->f32_scales && !l->biased && l->k % 64 == 0)
        return "_float_16";
    return ek_cuda_half_32(l) ? "_half_32" : ek_cuda_affine_64(l) ? "_affine_64" : "";
}

/* A block of threads for each panel and tile of rows; for floats, for each row. */
static ek_cuda_product plan(const char *family, const ek_cuda_linear *l, int rows, const char *form)
{
    ek_cuda_product p = {.grid = {.x = (unsigned)l->n_panels,
                                  .y = (unsigned)(l->units ? (rows + TILE - 1) / TILE : rows),
                                  .threads = 256}};
    const char *const floats = l->form == EK_W_F32 ? "f32" : l->form == EK_W_F16 ? "f16" : "bf16";
    if (l->units && rows == 1 && l->bits == 8)
        snprintf(p.name, sizeof p.name, "%s_plain_one_q8_l%d%s", family, l->limbs, form);
    else if (l->units && rows == 1)
        snprintf(p.name, sizeof p.name, "%s_plain_one_q4_l%d_t%d%s", family, l->limbs, threads_of(l, form[0]), form);
    else if (l->units) snprintf(p.name, sizeof p.name, "%s_plain_q%d_l%d%s", family, l->bits, l->limbs, form);
    else snprintf(p.name, sizeof p.name, "%s_plain_%s", family, floats);
    return p;
}

ek_cuda_product ek_cuda_plain_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const char *const form = form_of(l, true);
    ek_cuda_product p = plan("ek_product", l, rows, form);
    if (rows == 1 && l->bits == 4 && form[0] && l->k > LONG * LEAF && l->k <= MAX_LONG * LEAF)
        snprintf(p.name, sizeof p.name, "ek_product_plain_one_q4_l1_long%s", form);
    if (!l->units || rows < (l->n_panels > EK_CUDA_NARROW ? chip->us->plain.wide : chip->us->plain.narrow)) return p;
    const bool sixteen = l->a_group == 16, small = l->k > MANY_LEAVES * LEAF || (sixteen && l->bits != 8),
               coop = !small && !sixteen && chip->matrices;
    const char *const family = small ? "tile" : sixteen ? "many16" : coop ? "coop" : "many";
    const int tile = small ? SMALL_TILE : coop ? 128 / l->limbs : sixteen ? MANY_TILE / l->limbs : MANY_TILE;
    const int panels = coop ? 2 * MANY_PANELS : MANY_PANELS;
    snprintf(p.name, sizeof p.name, "ek_product_plain_%s_q%d_l%d", family, l->bits, l->limbs);
    p.grid.x = (unsigned)((l->n_panels + panels - 1) / panels);
    p.grid.y = (unsigned)((rows + tile - 1) / tile);
    return p;
}

ek_cuda_product ek_cuda_plain_plan_jobs(const ek_cuda_linear *l, int rows, int jobs, int matrices)
{
    ek_cuda_product p = plan("ek_products", l, rows, form_of(l, false));
    p.grid.y *= (unsigned)jobs, p.grid.z = (unsigned)matrices;
    return p;
}

bool ek_cuda_plain_gated_plan(ek_cuda_product *out, const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                              const ek_cuda_linear *next)
{
    const char *const form = form_of(l, false);
    if (rows > 1 || !form[0] || !next->units || next->a_group != l->a_group || l->n % l->a_group) return false;
    if (gate == EK_CUDA_GATE_ROW && l->bits == 4) return false; /* no such matrix is published */
    *out = (ek_cuda_product){
        .grid = {.x = (unsigned)(l->n / next->a_group), .y = jobs ? (unsigned)jobs : 1, .threads = 512}};
    snprintf(out->name, sizeof out->name, "ek_gated_plain_q%d_l%d%s_m%d", l->bits, l->limbs, form,
             gate == EK_CUDA_GATE_MATRIX ? 2 : 1);
    return true;
}
