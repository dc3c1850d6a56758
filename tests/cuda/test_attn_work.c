/* How attention is cut for the device: every query in exactly one tile per KV head, every segment that a tile
 * touches in exactly one item, and refusals instead of overruns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/device_cut.h"
#include "base/hash/rng.h"
#include "cuda/attn/choose.h"
#include "ops/kv/kv_codec.h"

enum { MAX_ROWS = 40 };

static void check_cut(const ek_attn_row *rows, int n_rows, int heads, int kv, int tile, bool items)
{
    int ratio = heads / kv, max = ek_cuda_attn_max_tiles(n_rows, heads, kv, tile), n_items = 0;
    ek_cuda_attn_work w = {.max_tiles = max, .max_items = max * 40};
    w.tiles = malloc((size_t)max * sizeof *w.tiles);
    if (items) w.items = malloc((size_t)w.max_items * sizeof *w.items);
    assert_int_equal(device_cut(&w, rows, n_rows, heads, kv, tile), EK_OK);
    int *seen = calloc((size_t)(n_rows * heads), sizeof *seen);
    for (int i = 0; i < w.n_tiles; i++) {
        const ek_cuda_attn_tile *t = &w.tiles[i];
        int last = 0;
        assert_in_range(t->n_q, 1, tile);
        assert_in_range(t->kv_head, 0, kv - 1);
        assert_in_range(t->head, 0, ratio - 1);
        for (int q = 0; q < t->n_q; q++) {
            int at = t->head + q, row = t->row + at / ratio;
            assert_in_range(row, 0, n_rows - 1);
            seen[row * heads + t->kv_head * ratio + at % ratio]++;
            assert_int_equal(rows[row].view, t->view);
            assert_int_equal(rows[row].lo / 256, t->seg0); /* so that leaves have the same places in T */
            if ((rows[row].end - 1) / 256 > last) last = (rows[row].end - 1) / 256;
        }
        assert_int_equal(t->seg0 + t->n_seg - 1, last);
        assert_true(t->n_seg <= w.max_segments);
        if (!items) continue;
        assert_int_equal(t->leaf0, n_items);
        for (int s = 0; s < t->n_seg; s++, n_items++) {
            assert_int_equal(w.items[n_items].tile, i);
            assert_int_equal(w.items[n_items].seg, t->seg0 + s);
        }
    }
    for (int i = 0; i < n_rows * heads; i++) assert_int_equal(seen[i], 1);
    if (items) {
        assert_int_equal(w.n_items, n_items);
        w.max_items = n_items - 1;
        assert_int_equal(device_cut(&w, rows, n_rows, heads, kv, tile), EK_ETOOLARGE);
        w.max_items = n_items;
        assert_int_equal(device_cut(&w, rows, n_rows, heads, kv, tile), EK_OK);
    }
    w.max_tiles = w.n_tiles - 1;
    assert_int_equal(device_cut(&w, rows, n_rows, heads, kv, tile), EK_ETOOLARGE);
    assert_non_null(strstr(ek_err_text(), "tiles"));
    free(seen), free(w.tiles), free(w.items);
}

static void every_query_is_in_one_tile(void **state)
{
    (void)state;
    static const int shape[][2] = {{8, 1}, {16, 8}, {16, 1}, {6, 2}, {5, 5}, {32, 4}};
    static const int tiles[] = {2, 4, 8, 64};
    for (uint64_t seed = 0; seed < 60; seed++) {
        ek_attn_row rows[MAX_ROWS];
        int n = 1 + (int)(ek_mix64(seed) % MAX_ROWS), view = 0;
        for (int i = 0; i < n; i++) {
            uint64_t r = ek_mix64(seed * 1000 + (uint64_t)i + 7);
            if (r % 5 == 0) view++;
            int lo = (int)(r >> 8) % 3 * 200, len = 1 + (int)((r >> 20) % 2000);
            if (seed % 2) lo = 0;
            rows[i] = (ek_attn_row){view, lo < 0 ? 0 : lo, (lo < 0 ? 0 : lo) + len};
        }
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
            for (size_t t = 0; t < 4; t++) check_cut(rows, n, shape[s][0], shape[s][1], tiles[t], tiles[t] != 64);
    }
}

static void late_tiles_of_a_prompt_come_first(void **state)
{
    (void)state;
    ek_attn_row rows[MAX_ROWS];
    ek_cuda_attn_tile tiles[MAX_ROWS * 8];
    for (int i = 0; i < MAX_ROWS; i++) rows[i] = (ek_attn_row){0, 0, 300 + i};
    ek_cuda_attn_work w = {.tiles = tiles, .max_tiles = MAX_ROWS * 8};
    assert_int_equal(device_cut(&w, rows, MAX_ROWS, 8, 1, 64), EK_OK);
    assert_int_equal(w.n_tiles, 5);
    assert_int_equal(w.tiles[0].row, 32);
    assert_int_equal(w.tiles[4].row, 0);
}

/* A record says what the item, its tile, the tile's first row and the view's table say. */
static void a_start_has_all_of_its_item(void **state)
{
    (void)state;
    enum { LD = 24, TILES = 8, ITEMS = 32 };
    const ek_attn_row rows[] = {{0, 100, 700}, {1, 300, 1400}};
    int32_t pages[2 * LD];
    ek_cuda_attn_tile tiles[TILES];
    ek_cuda_attn_item items[ITEMS];
    ek_cuda_attn_start starts[ITEMS];
    for (int i = 0; i < 2 * LD; i++) pages[i] = i % LD < 22 ? 1000 + i : EK_NO_PAGE;
    ek_cuda_attn_work w = {.tiles = tiles, .items = items, .max_tiles = TILES, .max_items = ITEMS};
    assert_int_equal(device_cut(&w, rows, 2, 8, 2, 2), EK_OK);
    assert_int_equal(w.n_items, 4 * (3 + 5));
    ek_cuda_attn_starts(starts, &w, rows, pages, LD);
    for (int i = 0; i < w.n_items; i++) {
        const ek_cuda_attn_start *s = &starts[i];
        assert_memory_equal(&s->t, &tiles[items[i].tile], sizeof s->t);
        assert_int_equal(s->tile, items[i].tile);
        assert_int_equal(s->seg, items[i].seg);
        assert_int_equal(s->lo, rows[s->t.row].lo);
        assert_int_equal(s->end, rows[s->t.row].end);
        for (int p = 0; p < 4; p++) {
            const int at = s->seg * 4 + p;
            assert_int_equal(s->page[p], at < 22 ? 1000 + s->t.view * LD + at : EK_NO_PAGE);
        }
    }
}

static ek_cuda_chip h100;

static size_t shared_of(ek_kv_format v) /* 8 queries of 256 dims */
{
    return ek_cuda_attn_segment_plan(8, 256, v, v, false, 1, &h100).shared;
}

static void sizes_follow_the_formats(void **state)
{
    (void)state;
    size_t plain = shared_of(EK_KV_I16);
    assert_int_equal(plain, (256 * 8 + 2 * 256 * 8 + 64) * 4 + 256);
    assert_int_equal(shared_of(EK_KV_Q8), plain + 256 * 8 * 2);
    assert_int_equal(shared_of(EK_KV_Q4), plain + 2 * 256 * 8 * 2);
    assert_true(ek_cuda_attn_deep_fits(8, 512, EK_KV_Q8, EK_KV_Q4, &h100) &&
                ek_cuda_attn_deep_fits(16, 256, EK_KV_F32, EK_KV_I16, &h100));
    assert_false(
        ek_cuda_attn_deep_fits(4, 512, EK_KV_F16, EK_KV_F16, &h100)); /* a tile would have queries of two rows */
    assert_false(ek_cuda_attn_deep_fits(8, 128, EK_KV_F16, EK_KV_F16, &h100) ||
                 ek_cuda_attn_deep_fits(8, 256, EK_KV_F16, EK_KV_Q6, &h100));
    assert_int_equal(ek_cuda_attn_deep_plan(512).threads, 160);
    assert_int_equal(ek_cuda_attn_levels(1), 1);
    assert_int_equal(ek_cuda_attn_levels(2), 2);
    assert_int_equal(ek_cuda_attn_levels(3), 2);
    assert_int_equal(ek_cuda_attn_levels(32), 6);
}

static void parts_of_tiles_have_every_segment_once(void **state)
{
    (void)state;
    ek_cuda_attn_tile tiles[3] = {{.row = 0, .seg0 = 3, .n_seg = 1},
                                  {.row = 1, .seg0 = 0, .n_seg = 8},
                                  {.row = 2, .seg0 = 5, .n_seg = 13}},
                      parts[22];
    bool seen[3][20] = {{false}};
    assert_int_equal(ek_cuda_attn_parts(tiles, 3, 0), 22);
    assert_int_equal(ek_cuda_attn_parts(tiles, 3, 2), 7);
    assert_int_equal(ek_cuda_attn_parts(tiles, 3, 4), 3);
    ek_cuda_attn_cut(parts, tiles, 3, 2);
    assert_int_equal(tiles[1].leaf0, 1);
    assert_int_equal(tiles[2].leaf0, 3);
    for (int i = 0; i < 7; i++) {
        const ek_cuda_attn_tile *t = &tiles[parts[i].row];
        assert_int_equal(parts[i].seg0, t->seg0 + (parts[i].leaf0 - t->leaf0) * 4); /* nodes of T, in its order */
        if (i) assert_true(parts[i].leaf0 - t->leaf0 >= parts[i - 1].leaf0 - tiles[parts[i - 1].row].leaf0);
        for (int s = parts[i].seg0; s < parts[i].seg0 + parts[i].n_seg; s++) {
            assert_true(s < t->seg0 + t->n_seg && !seen[parts[i].row][s]);
            seen[parts[i].row][s] = true;
        }
    }
    for (int i = 0; i < 3; i++)
        for (int s = tiles[i].seg0; s < tiles[i].seg0 + tiles[i].n_seg; s++) assert_true(seen[i][s]);
}

static int part_of(int n_tiles, int n_seg, int at_most, size_t floats, ek_kv_format k)
{
    ek_cuda_attn_tile tiles[160];
    for (int i = 0; i < n_tiles; i++) tiles[i] = (ek_cuda_attn_tile){.n_seg = n_seg};
    return ek_cuda_attn_part(tiles, n_tiles, at_most, floats, k, 512, &h100);
}

static void few_tiles_behind_many_keys_are_cut(void **state)
{
    (void)state;
    const size_t room = SIZE_MAX;
    assert_int_equal(part_of(8, 98, 1056, room, EK_KV_I12), 3); /* 104 blocks, not 8 */
    assert_int_equal(part_of(32, 98, 1056, room, EK_KV_I12), 5);
    assert_int_equal(part_of(128, 98, 1056, room, EK_KV_I12), -1);
    assert_int_equal(part_of(8, 1, 1056, room, EK_KV_I12), -1);
    assert_int_equal(part_of(8, 98, 1056, room, EK_KV_F16), -1);
    assert_int_equal(part_of(8, 98, 60, room, EK_KV_I12), 4); /* no more parts than there is room for, */
    const size_t stacks = 132 * ek_cuda_attn_stack_floats(ek_cuda_attn_levels(8), 512),
                 nodes = 104 * ek_cuda_attn_node_floats(512);
    assert_int_equal(part_of(8, 98, 1056, stacks + nodes, EK_KV_I12), 3); /* of nodes as well */
    assert_int_not_equal(part_of(8, 98, 1056, stacks + nodes - 1, EK_KV_I12), 3);
    assert_int_equal(part_of(8, 98, 1056, 1000, EK_KV_I12), -1);
}

static const char *kernel_of(int tile, ek_kv_format k, ek_kv_format v, int n_items)
{
    return ek_cuda_attn_segment_plan(tile, 256, k, v, true, n_items, &h100).name;
}

static void tiles_of_two_queries_have_kernels_of_their_own(void **state)
{
    (void)state;
    const ek_kv_format i12 = EK_KV_I12, i8 = EK_KV_I8;
    assert_string_equal(kernel_of(2, i12, i12, 132), "ek_attn_int_own_256");
    assert_string_equal(kernel_of(2, i12, i12, 133), "ek_attn_int_256");
    assert_string_equal(kernel_of(2, i12, i12, 264), "ek_attn_int_256");
    assert_string_equal(kernel_of(2, i12, i12, 265), "ek_attn_int_two_256");
    assert_string_equal(kernel_of(4, i12, i12, 265), "ek_attn_int_256");
    assert_string_equal(kernel_of(2, i12, i8, 265), "ek_attn_int_256");
    assert_string_equal(kernel_of(4, i12, i12, 132), "ek_attn_int_256");
    assert_string_equal(kernel_of(2, i8, i8, 1), "ek_attn_int_256");
    assert_string_equal(kernel_of(2, i12, i8, 1), "ek_attn_int_256");
    assert_int_equal(ek_cuda_attn_int_tile(8, 256, i12, i12, 132, &h100), 2);
    assert_int_equal(ek_cuda_attn_int_tile(8, 256, i12, i12, 133, &h100), 8);
    assert_int_equal(ek_cuda_attn_int_tile(8, 256, i8, i8, 1, &h100), 8);
}

static void every_format_is_described_to_the_kernels(void **state)
{
    (void)state;
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++) {
        const ek_kv_codec *c = &ek_kv_codecs[f];
        ek_cuda_kv kv = {0};
        ek_cuda_kv_formats(&kv, (ek_kv_format)f, EK_KV_Q5_64, 100);
        assert_non_null(ek_cuda_attn_prompt_plan((ek_kv_format)f, 256, &h100).name);
        assert_int_equal(kv.k_bytes, ek_kv_k_bytes((ek_kv_format)f, 100));
        assert_int_equal(kv.v_bytes, ek_kv_v_bytes(EK_KV_Q5_64, 100));
        assert_int_equal(kv.k_bits, c->bits);
        if (c->group) assert_int_equal(1 << kv.k_shift, c->group);
        assert_int_equal(kv.v_shift, 6);
    }
}

int main(void)
{
    h100 = ek_cuda_chip_like(90, 132);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_query_is_in_one_tile),
        cmocka_unit_test(late_tiles_of_a_prompt_come_first),
        cmocka_unit_test(a_start_has_all_of_its_item),
        cmocka_unit_test(sizes_follow_the_formats),
        cmocka_unit_test(parts_of_tiles_have_every_segment_once),
        cmocka_unit_test(few_tiles_behind_many_keys_are_cut),
        cmocka_unit_test(tiles_of_two_queries_have_kernels_of_their_own),
        cmocka_unit_test(every_format_is_described_to_the_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
