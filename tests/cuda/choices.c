/* The choices as the device's executor asks for them (src/gpu), of an H100. */
#include "choices.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cuda/product/product.h"
#include "cuda/rows/launch.h"

enum { ROOM = 64 << 20 };

static ek_cuda_chip chip;
int choices_impossible;

void choices_of_chip(int capability, int multiprocessors)
{
    chip = ek_cuda_chip_like(capability, multiprocessors);
}

void choices_say_form(ek_buf *to, const ek_cuda_linear *l)
{
    static const char *const form[] = {"f32", "f16", "bf16", "q", "q", "planes"};
    ek_buf_fmt(to, "%s", form[l->form]);
    if (!l->units) return;
    ek_buf_fmt(to, "%d.%d/%d %s%s", l->bits, l->group, l->a_group,
               l->f32_scales   ? "f32"
               : l->f16_scales ? "f16"
                               : "bf16",
               l->biased ? " biased" : "");
}

static void say_grid(ek_buf *to, const char *name, ek_cuda_grid g)
{
    ek_buf_fmt(to, "%s%u,%u,%u x%u s%zu", name, g.x, g.y, g.z, g.threads, g.shared);
    if (g.cluster) ek_buf_fmt(to, " c%u", g.cluster);
    if (g.overlap) ek_buf_str(to, " o");
}

/* A launch that the chip cannot do: the kernel is not there for it, or it lacks the memory. */
static void check(const char *name, const ek_cuda_grid *g)
{
    const bool absent = ((strstr(name, "wide") || strstr(name, "products_mid")) && !chip.wgmma) ||
                        (g->cluster && !chip.clusters);
    if (!absent && g->shared <= chip.block_shared) return;
    if (choices_impossible++ < 10)
        printf("sm_%d cannot launch %s with %zu bytes, clusters of %u\n", chip.features, name, g->shared, g->cluster);
}

static void say(ek_buf *to, const ek_cuda_product *p)
{
    if (p->name[0]) check(p->name, &p->grid);
    ek_buf_fmt(to, " %s ", p->name);
    say_grid(to, "", p->grid);
    const struct {
        const char *name;
        size_t value;
    } all[] = {{"stack", p->stack},         {"pass", (size_t)p->pass},   {"levels", (size_t)p->levels},
               {"turn", (size_t)p->share},  {"slots", (size_t)p->slots}, {"operand", p->operand},
               {"split", (size_t)p->split}, {"parts", (size_t)p->parts}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value) ek_buf_fmt(to, " %s %zu", all[i].name, all[i].value);
    if (p->arrange.threads) say_grid(to, " arrange ", p->arrange);
}

static void say_heads(ek_buf *to, const ek_cuda_heads *p)
{
    say(to, &p->q);
    say(to, &p->k);
    ek_buf_fmt(to, " blocks %d %d tiles %d", p->q_blocks, p->k_blocks, p->k_tiles);
}

/* How many jobs of `tile` pairs so many rows' experts can be. */
static int jobs_of(const use *u, int rows)
{
    const int pairs = rows * u->top_k, experts = pairs < u->experts ? pairs : u->experts;
    const int jobs = u->tile ? (pairs + experts * (u->tile - 1)) / u->tile : 0;
    return jobs < pairs ? jobs : pairs;
}

static void say_product(ek_buf *to, const use *u, int rows)
{
    const ek_cuda_product p = ek_cuda_product_plan(u->a, rows, &chip, ROOM);
    const ek_cuda_product whole = ek_cuda_product_plan(u->a, rows, &chip, 0);
    say(to, &p);
    if (p.operand) ek_buf_fmt(to, " by %s", ek_cuda_arrange_name(u->a));
    ek_buf_fmt(to, " room %zu", ek_cuda_wide_operand(u->a, rows, 0, &chip));
    if (!p.parts) return;
    ek_buf_str(to, " whole");
    say(to, &whole);
}

static void say_gate(ek_buf *to, const use *u, int rows)
{
    ek_cuda_product p;
    const ek_cuda_gate gate = u->c ? EK_CUDA_GATE_ROW : EK_CUDA_GATE_MATRIX;
    if (ek_cuda_gated_plan(&p, u->a, u->tile ? u->tile : rows, jobs_of(u, rows), gate, u->b, &chip)) say(to, &p);
}

static void say_wide_gate(ek_buf *to, const use *u, int rows)
{
    ek_cuda_product p;
    if (!ek_cuda_wide_gate_plan(&p, u->a, u->b, u->tile ? u->tile : rows, jobs_of(u, rows), &chip)) return;
    say(to, &p);
    ek_cuda_product few;
    const bool is_few = ek_cuda_gated_plan(&few, u->a, rows, 0, EK_CUDA_GATE_MATRIX, u->b, &chip);
    if (!u->tile && ek_cuda_wide_gate_wins(u->a, u->b, rows, is_few, &chip, ROOM)) ek_buf_str(to, " wins");
}

static void say_q_k_v(ek_buf *to, const use *u, int rows)
{
    ek_cuda_heads p;
    if (ek_cuda_heads_plan(&p, u->a, u->b, u->c, rows, &chip)) say_heads(to, &p);
}

static void say_wide_heads(ek_buf *to, const use *u, int rows)
{
    ek_cuda_heads p;
    if (ek_cuda_wide_heads_plan(&p, u->a, u->b, u->c, rows, &chip)) say_heads(to, &p);
}

static void say_two(ek_buf *to, const use *u, int rows)
{
    ek_cuda_product p;
    if (!ek_cuda_pair_plan(&p, u->a, rows, &chip)) p = ek_cuda_products_plan(u->a, rows, 0, 2, &chip);
    say(to, &p);
}

static void say_experts(ek_buf *to, const use *u, int rows)
{
    ek_cuda_product few;
    if (ek_cuda_jobs_plan(&few, u->a, u->tile, jobs_of(u, rows), &chip)) say(to, &few);
    for (int matrices = 1; matrices <= 2; matrices++) {
        const ek_cuda_product p = ek_cuda_products_plan(u->a, u->tile, jobs_of(u, rows), matrices, &chip);
        say(to, &p);
    }
    ek_buf_fmt(to, " room %zu", ek_cuda_wide_operand(u->a, rows, jobs_of(u, rows), &chip));
}

static void say_first(ek_buf *to, const use *u, int rows)
{
    ek_cuda_heads p;
    if (ek_cuda_experts_first_plan(&p, u->a, u->b, u->c, rows, &chip)) say_heads(to, &p);
}

static void say_second(ek_buf *to, const use *u, int rows)
{
    ek_cuda_heads p;
    if (ek_cuda_experts_second_plan(&p, u->a, u->b, u->c, rows, u->tile, jobs_of(u, rows), &chip)) say_heads(to, &p);
}

static void say_end(ek_buf *to, const use *u, int rows)
{
    ek_cuda_product p;
    ek_cuda_layer_end_args a = {0};
    if (!ek_cuda_layer_end_plan(&p, &a, u->a, u->b, u->c, rows, &chip)) return;
    say(to, &p);
    ek_buf_fmt(to, " row %llu gated %llu panels %d %d shift %d at %d %d %d %d %d", (unsigned long long)a.row.q,
               (unsigned long long)a.gated.q, a.gate_panels, a.proj_panels, a.proj_shift, a.value, a.g, a.sum,
               a.gate_at, a.proj_at);
}

const choices_column choices_columns[COLUMNS] = {
    {"product", say_product},       {"gate", say_gate}, {"wide-gate", say_wide_gate}, {"heads", say_q_k_v},
    {"wide-heads", say_wide_heads}, {"two", say_two},   {"experts", say_experts},     {"first", say_first},
    {"second", say_second},         {"end", say_end}};
