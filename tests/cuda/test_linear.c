/* The device's layout of weights: the fragments of a warp, multiplied as mma.sync m16n8k32 multiplies them with
 * a row as the kernels read it, give the sums of the CPU's panels; scales and biases come back bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../support/device_pack.h"
#include "base/hash/rng.h"
#include "cuda/product/product.h"
#include "ops/linear/linear_layout.h"

/* Chips with most and least shared memory, and A100's. */
static ek_cuda_chip chips[3];
enum { CHIPS = sizeof chips / sizeof *chips };

static void open_weights(ek_linear *w, int n, int k, int bits, int group, ek_dtype scales, bool biased, int a_group)
{
    const ek_weight_type *type;
    assert_int_equal(ek_weight_type_affine(&type, bits, group, scales, biased), EK_OK);
    assert_int_equal(ek_linear_plan(w, 0, n, k, type), EK_OK);
    assert_int_equal(ek_linear_set_acts(w, (ek_act_form){1, a_group}), EK_OK);
    w->data = aligned_alloc(64, w->bytes);
    for (size_t i = 0; i < w->bytes; i++) w->data[i] = (uint8_t)ek_mix64(i + (size_t)k);
}

/* Byte e of register i of step j in lane's fragment A of the unit: the kernels' way to unpack. */
static int fragment(const ek_cuda_linear *l, const uint8_t *unit, int lane, int j, int i, int e)
{
    if (l->bits == 8) return (int8_t)unit[j * 512 + lane * 16 + i * 4 + e];
    uint8_t byte = unit[lane * 16 + (j * 2 + (i & 1)) * 4 + e];
    return (int8_t)(i < 2 ? byte << 4 : byte & 0xf0) / 16;
}

/* Which byte of the unit's 64 activations register i of step j of lane t holds at byte e. */
static int act_at(int a_group, int t, int j, int i, int e)
{
    return a_group == 64 ? 16 * t + 8 * j + 4 * i + e : 32 * j + 8 * t + 4 * i + e;
}

static void check_unit(const ek_linear *w, const ek_cuda_linear *l, const uint8_t *mem, int p, int u)
{
    const uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
    const uint8_t *unit = mem + ((size_t)p * (size_t)l->units + (size_t)u) * (size_t)l->bits * 128;
    int8_t x[64];
    for (int i = 0; i < 64; i++) x[i] = (int8_t)ek_mix64((uint64_t)(i + 64 * u + 7));
    for (int o = 0; o < 16; o++)
        for (int j = 0; j < 2; j++) {
            int a[32], b[32], got = 0,
                              want = 0; /* a row of A and the column of B, in the order of k of the instruction */
            for (int t = 0; t < 4; t++)
                for (int half = 0; half < 2; half++)
                    for (int e = 0; e < 4; e++) {
                        int lane = o % 8 * 4 + t;
                        a[half * 16 + t * 4 + e] = fragment(l, unit, lane, j, o / 8 + 2 * half, e);
                        b[half * 16 + t * 4 + e] = act_at(l->a_group, t, j, half, e);
                    }
            for (int i = 0; i < 32; i++) {
                int k = u * 64 + b[i];
                got += a[i] * x[b[i]];
                if (k < w->k)
                    want += ek_linear_code(w, panel + (size_t)(k / w->group) * ek_linear_group_bytes(w), o,
                                           k % w->group) *
                            x[b[i]];
                if (l->a_group == 32) assert_int_equal(b[i] / 32, j);
            }
            assert_int_equal(got, want);
        }
}

static void check(int n, int k, int bits, int group, ek_dtype scales, bool biased, int a_group)
{
    ek_linear w;
    ek_cuda_linear l;
    open_weights(&w, n, k, bits, group, scales, biased, a_group);
    assert_int_equal(ek_cuda_linear_plan(&l, &w), EK_OK);
    uint8_t *mem = malloc(l.bytes + 64);
    memset(mem, 0xa5, l.bytes + 64);
    int half = l.n_panels / 2;
    device_pack(&l, &w, mem, half, l.n_panels);
    device_pack(&l, &w, mem, 0, half);
    for (int i = 0; i < 64; i++) assert_int_equal(mem[l.bytes + (size_t)i], 0xa5);
    const size_t size = scales == EK_F32 ? 4 : 2;
    const uint8_t *at = mem + l.code_bytes;
    for (int p = 0; p < l.n_panels; p++) {
        for (int u = 0; u < l.units; u++) check_unit(&w, &l, mem, p, u);
        for (int g = 0; g < k / group; g++) {
            const uint8_t *from = w.data + (size_t)p * w.panel_bytes + (size_t)g * ek_linear_group_bytes(&w) +
                                  ek_linear_code_bytes(&w);
            for (int o = 0; o < 8; o++)
                for (int second = 0; second < 2; second++) {
                    assert_memory_equal(at, from + (size_t)(o + 8 * second) * size, size);
                    at += size;
                    if (!biased) continue;
                    assert_memory_equal(at, from + (size_t)(16 + o + 8 * second) * size, size);
                    at += size;
                }
        }
    }
    free(mem);
    free(w.data);
}

static void test_layout(void **state)
{
    (void)state;
    for (int f32 = 0; f32 < 2; f32++)
        for (int biased = 0; biased < 2; biased++) {
            ek_dtype scales = f32 ? EK_F32 : EK_BF16;
            check(37, 704, 4, 64, scales, biased, 64);
            check(16, 384, 4, 128, scales, biased, 64);
            check(20, 352, 4, 32, scales, biased, 32); /* not whole units */
            check(33, 192, 8, 64, scales, biased, 64);
            check(17, 160, 8, 32, scales, biased, 32);
            check(16, 256, 4, 64, scales, biased, 32);
        }
}

static void check_plan(const ek_cuda_linear *l, int rows, const ek_cuda_chip *chip)
{
    const ek_cuda_product p = ek_cuda_product_plan(l, rows, chip, 0);
    assert_in_range(p.grid.shared, 1, chip->block_shared);
    assert_in_range(p.grid.x, 1, 63 * 7);
    if (strstr(p.name, "tile")) {
        assert_true(l->k <= 1024 * (1 << p.levels));
        return;
    }
    const int oct = p.name[strlen(p.name) - 1] - '0';
    assert_int_equal(p.pass % 16, 0);
    assert_true((int)p.grid.y * oct * 8 / l->limbs >= rows);
}

/* Every row of a call is in a tile, and what a plan asks for exists on the device, whatever it is. */
static void test_plans(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4)
        for (int a = 32; a <= 64; a += 32)
            for (int limbs = 1; limbs <= 2; limbs++)
                for (int k = 64; k <= 21504; k += 7 * 64)
                    for (int rows = 1; rows <= 200; rows += rows < 40 ? 1 : 31) {
                        ek_cuda_linear l = {.form = bits == 4 ? EK_W_Q4 : EK_W_Q8,
                                            .n = 1000,
                                            .k = k,
                                            .n_panels = 63,
                                            .units = k / 64,
                                            .group = a,
                                            .a_group = a,
                                            .bits = bits,
                                            .limbs = limbs,
                                            .biased = true,
                                            .f32_scales = true};
                        for (int c = 0; c < CHIPS; c++) check_plan(&l, rows, &chips[c]);
                    }
}

static void check_plan_of_planes(const ek_cuda_linear *l, int rows, int jobs, ek_cuda_gate gate,
                                 const ek_cuda_chip *chip)
{
    const ek_cuda_product p = ek_cuda_warp_plan(l, rows, jobs, gate, chip);
    assert_in_range(p.grid.shared, 1, chip->block_shared);
    assert_true(!p.grid.cluster || chip->clusters);
    assert_in_range(p.slots, 1, 4);
    assert_in_range(p.share, 1, 64 * 2);
    assert_true((int)p.grid.y * (p.name[strlen(p.name) - 1] - '0') >= rows);
    assert_true(strlen(p.name) < 32);
}

/* Products of planes: as many leaves as they take fit into shared memory, whatever is in a launch. */
static void test_plans_of_planes(void **state)
{
    (void)state;
    static const struct {
        int bits, group;
        bool biased, f16;
    } kinds[] = {
        {4, 32, false, true}, {8, 32, false, true}, {4, 32, true, false}, {8, 32, true, true}, {8, 16, false, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int limbs = 1; limbs <= 2; limbs++)
            for (int k = 64; k <= 128 * 1024; k += k < 8192 ? 7 * 64 : 13 * 1024) {
                ek_cuda_linear l = {.form = EK_W_PLANES,
                                    .n = 1024,
                                    .k = k,
                                    .n_panels = 64,
                                    .units = k / 64,
                                    .group = kinds[i].group,
                                    .a_group = kinds[i].group,
                                    .bits = kinds[i].bits,
                                    .limbs = limbs,
                                    .biased = kinds[i].biased,
                                    .f32_scales = !kinds[i].f16,
                                    .f16_scales = kinds[i].f16};
                assert_true(ek_cuda_own_scales(&l));
                for (int rows = 1; rows <= 40; rows++)
                    for (int gate = EK_CUDA_GATE_NONE; gate <= (k <= 8192 ? EK_CUDA_GATE_MATRIX : 0); gate++) {
                        const int jobs = rows <= 4 ? rows % 3 * 7 : 0;
                        for (int c = 0; c < (k <= (gate ? 5376 : 21504) ? CHIPS : 1); c++)
                            check_plan_of_planes(&l, rows, jobs, (ek_cuda_gate)gate, &chips[c]);
                    }
                l.k = 128 * 1024 + 64;
                assert_false(ek_cuda_own_scales(&l));
            }
}

static void check_mid_plan(const ek_cuda_linear *l, int rows, ek_cuda_gate gate, const ek_cuda_chip *chip, size_t room)
{
    double us;
    const ek_cuda_product p = ek_cuda_mid_plan(l, rows, gate, chip, room, &us);
    if (us >= 1e30) { /* a chip without room for so many nodes: others are chosen */
        assert_true(chip != chips);
        return;
    }
    const int oct = p.name[strlen(p.name) - 1] - '0', parts = p.parts ? p.parts : 1;
    const int tiles = (rows * l->limbs + oct * 8 - 1) / (oct * 8);
    assert_in_range(p.grid.shared, 1, chip->block_shared);
    assert_int_equal(p.grid.x, (gate ? 16 : 8) * parts * tiles);
    if (parts == 1) return;
    assert_false(gate);
    assert_int_equal(p.split % 16, 0);
    assert_int_equal(p.split / 16 & (p.split / 16 - 1), 0);
    assert_true((parts - 1) * p.split < l->units && l->units <= parts * p.split);
    assert_true((size_t)parts * (size_t)rows * (size_t)l->n * sizeof(float) <= room);
}

/* Parts are nodes of T, their sums fit where they go, every tile of rows and panel has a block. */
static void test_mid_plans(void **state)
{
    (void)state;
    for (int limbs = 1; limbs <= 2; limbs++)
        for (int k = 64; k <= 21504; k += 5 * 64)
            for (int rows = 1; rows <= 300; rows += rows < 20 ? 1 : 57) {
                const size_t room = (size_t)(rows % 4) << 20;
                ek_cuda_linear l = {.form = EK_W_Q4,
                                    .n = 1024,
                                    .k = k,
                                    .n_panels = 64,
                                    .units = k / 64,
                                    .group = 64,
                                    .a_group = 64,
                                    .bits = 4,
                                    .limbs = limbs,
                                    .biased = true};
                assert_true(ek_cuda_mid_fits(&l));
                for (int c = 0; c < CHIPS; c++)
                    for (int gate = 0; gate <= (limbs == 1); gate++)
                        check_mid_plan(&l, rows, gate ? EK_CUDA_GATE_MATRIX : EK_CUDA_GATE_NONE, &chips[c], room);
            }
}

static void test_refused(void **state)
{
    (void)state;
    ek_cuda_linear l;
    ek_linear w = {.form = EK_W_F32, .n = 16, .k = 255 * 256 + 1, .n_panels = 1};
    assert_int_equal(ek_cuda_linear_plan(&l, &w), EK_EUNSUPPORTED);
    w.k--;
    assert_int_equal(ek_cuda_linear_plan(&l, &w), EK_OK);
}

int main(void)
{
    chips[0] = ek_cuda_chip_like(90, 132), chips[1] = ek_cuda_chip_like(80, 108), chips[2] = ek_cuda_chip_like(86, 28);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout), cmocka_unit_test(test_plans),
                                       cmocka_unit_test(test_plans_of_planes), cmocka_unit_test(test_mid_plans),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
