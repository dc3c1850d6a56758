/* cache: page tables against a plain model of who holds what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/rng.h"
#include "cache/page_table.h"

/* --- one request in chunks: held are exactly the pages that some future row sees */

static void walk(uint64_t seed)
{
    int window = 1 + (int)(ek_mix64(seed) % 300), tokens = 1 + (int)(ek_mix64(seed + 1) % 1500), max = 0;
    ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 64}, .sliding_window = window};
    int n[EK_PAGE_KINDS] = {[EK_SLIDING] = 32, [EK_FULL] = 32}, largest = 1;
    ek_pages *p = NULL;
    assert_int_equal(ek_pages_open(&p, n, NULL), EK_OK);
    ek_page_table t;
    ek_page_table_init(&t, &layout, tokens);
    while (t.n < tokens) {
        uint64_t r = ek_mix64(seed * 1000 + (uint64_t)t.n + 2);
        int rows = r % 3 == 0 ? 1 : 1 + (int)((r >> 8) % 257), pos = t.n;
        if (rows > tokens - pos) rows = tokens - pos;
        if (rows > largest) largest = rows;
        assert_int_equal(ek_page_table_extend(&t, p, rows), EK_OK);
        for (int q = pos; q < pos + rows; q++)
            for (int key = 0; key <= q; key++) {
                assert_true(t.page[EK_FULL][key / 64] != EK_NO_PAGE);
                if (key >= q - window + 1) assert_true(t.page[EK_SLIDING][key / 64] != EK_NO_PAGE);
            }
        if (32 - ek_pages_unused(p, EK_SLIDING) > max) max = 32 - ek_pages_unused(p, EK_SLIDING);
        ek_page_table_trim(&t, p, t.n);
        for (int i = 0; i < t.end[EK_SLIDING]; i++) {
            bool visible = false; /* to row t.n, and so to any later one that sees it */
            for (int key = 64 * i; key < 64 * i + 64; key++) visible = visible || key >= t.n - window + 1;
            assert_int_equal(t.page[EK_SLIDING][i] != EK_NO_PAGE, visible);
        }
        assert_int_equal(32 - ek_pages_unused(p, EK_FULL), (t.n + 63) / 64);
    }
    assert_true(max <= ek_page_table_max(&layout, EK_SLIDING, tokens, largest));
    assert_int_equal(ek_page_table_max(&layout, EK_FULL, tokens, largest), (tokens + 63) / 64);
    ek_page_table_clear(&t, p);
    assert_int_equal(ek_pages_unused(p, EK_SLIDING), 32);
    ek_page_table_fini(&t);
    ek_pages_close(p);
}

static void sliding_pages_are_held_while_visible(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) walk(seed * 77);
}

/* The bound is reached: it is not merely large enough. */
static void the_bound_is_tight(void **state)
{
    (void)state;
    for (int window = 1; window < 200; window += 3)
        for (int rows = 1; rows < 200; rows += 7) {
            ek_kv_layout layout = {.page_bytes = {[EK_SLIDING] = 64, [EK_FULL] = 0}, .sliding_window = window};
            int worst = 0;
            for (int pos = window; pos < window + 64; pos++) {
                int pages = (pos + rows - 1) / 64 - (pos - window + 1) / 64 + 1;
                if (pages > worst) worst = pages;
            }
            assert_int_equal(ek_page_table_max(&layout, EK_SLIDING, 100000, rows), worst);
            assert_int_equal(ek_page_table_max(&layout, EK_FULL, 100000, rows), 0);
        }
}

/* --- several tables over tiny pools: random extend, truncate, adopt, trim, clear
 *
 * Beside the pages lies what they hold: a stamp per slot. Beside each table lies the list of stamps that a
 * sequence of its own would have, which knows nothing of pages. Whatever a table shares, its stamps must be
 * its own list's, wherever a row that may still come can look. */
enum { TABLES = 5, CAP = 6 * 64, POOL = 14 };

static struct world {
    ek_kv_layout layout;
    ek_pages *p;
    int n_pages[EK_PAGE_KINDS];
    ek_page_table t[TABLES];
    uint64_t memory[EK_PAGE_KINDS][POOL][64]; /* 0: left over */
    uint64_t list[TABLES][CAP];
    int adopted, copies, refused, truncated; /* that it happened at all */
} w;

static void copy_page(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    struct world *world = arg;
    memcpy(world->memory[kind][to], world->memory[kind][from], sizeof world->memory[kind][to]);
    world->copies++;
}

static void wipe_page(void *arg, ek_layer_kind kind, int32_t page)
{
    struct world *world = arg;
    memset(world->memory[kind][page], 0, sizeof world->memory[kind][page]);
}

static int lo_of(ek_layer_kind kind, int pos)
{
    int lo = kind == EK_SLIDING ? pos - w.layout.sliding_window + 1 : 0;
    return lo > 0 ? lo : 0;
}

/* The slot of a position in a table's page of a layer kind. */
static uint64_t *slot(const ek_page_table *t, int kind, int pos)
{
    int i = pos / 64;
    return &w.memory[ek_kv_page_kind(&w.layout, (ek_layer_kind)kind, i)][t->page[kind][i]][pos % 64];
}

static void check_world(void)
{
    int holders[EK_PAGE_KINDS][POOL] = {0};
    for (int k = 0; k < EK_KIND_COUNT; k++)
        for (int i = 0; i < TABLES; i++) {
            const ek_page_table *t = &w.t[i];
            int count[2] = {0};
            for (int e = 0; e < t->cap; e++) {
                bool held = e >= t->first[k] && e < t->end[k], start = e < w.layout.n_start;
                assert_int_equal(t->page[k][e] != EK_NO_PAGE, held);
                if (held) holders[k + start * EK_KIND_COUNT][t->page[k][e]]++, count[start]++;
            }
            for (int start = 0; start < 2; start++)
                assert_int_equal(ek_page_table_held(t, (ek_layer_kind)(k + start * EK_KIND_COUNT)), count[start]);
            assert_int_equal(t->end[k], t->has[k] ? (t->n + 63) / 64 : 0);
            for (int pos = lo_of((ek_layer_kind)k, t->n); pos < t->n && t->has[k]; pos++) {
                assert_true(pos / 64 >= t->first[k]);
                assert_true(*slot(t, k, pos) == w.list[i][pos]);
            }
        }
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        int used = 0, pages = w.n_pages[k];
        for (int page = 0; page < pages; page++) {
            assert_int_equal(ek_pages_refs(w.p, (ek_layer_kind)k, page), holders[k][page]);
            used += holders[k][page] > 0;
        }
        assert_int_equal(ek_pages_unused(w.p, (ek_layer_kind)k), pages - used); /* none is both free and held */
    }
}

/* As a step writes: rows [t->n - n, t->n) of every kind, into whatever page the table says. */
static void write_rows(int i, int n, uint64_t stamp)
{
    ek_page_table *t = &w.t[i];
    for (int pos = t->n - n; pos < t->n; pos++) {
        w.list[i][pos] = ek_mix64(stamp + (uint64_t)pos) | 1;
        for (int k = 0; k < EK_KIND_COUNT; k++)
            if (t->has[k]) *slot(t, k, pos) = w.list[i][pos];
    }
}

static void extend(int i, uint64_t r)
{
    ek_page_table *t = &w.t[i];
    int n = 1 + (int)(r % 3 ? r % 12 : (r >> 8) % 130), before = t->n;
    if (before + n > CAP) n = CAP - before;
    if (n == 0) return;
    int room = ek_page_table_room(t, w.p, n), missing[EK_PAGE_KINDS], unused[EK_PAGE_KINDS];
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        missing[k] = ek_page_table_missing(t, w.p, (ek_layer_kind)k, n);
        unused[k] = ek_pages_unused(w.p, (ek_layer_kind)k);
    }
    int copies = w.copies;
    ek_err err = ek_page_table_extend(t, w.p, n);
    assert_int_equal(err == EK_OK, room == n);
    if (err) {
        w.refused++;
        assert_int_equal(t->n, before);
        if (room == 0) return;
        n = room;
        for (int k = 0; k < EK_PAGE_KINDS; k++) missing[k] = ek_page_table_missing(t, w.p, (ek_layer_kind)k, n);
        assert_int_equal(ek_page_table_extend(t, w.p, n), EK_OK);
    }
    for (int k = 0; k < EK_PAGE_KINDS && copies == w.copies; k++) /* a copy gives nothing back: others hold the page */
        assert_int_equal(ek_pages_unused(w.p, (ek_layer_kind)k), unused[k] - missing[k]);
    write_rows(i, n, r);
}

static void truncate_table(int i, uint64_t r)
{
    ek_page_table *t = &w.t[i];
    int n = t->n - (int)(r % 4 ? r % 8 : r % 150);
    if (n < 0) n = 0;
    if (!ek_page_table_holds(t, n)) return; /* the window has passed */
    ek_page_table_truncate(t, w.p, n);
    w.truncated++;
}

static void adopt(int i, int from, uint64_t r)
{
    ek_page_table *t = &w.t[i];
    if (i == from || w.t[from].n == 0) return;
    int n = 1 + (int)(r % (uint64_t)w.t[from].n);
    if (r >> 40 & 1) n = w.t[from].n;
    if (!ek_page_table_holds(&w.t[from], n)) return;
    ek_page_table_clear(t, w.p);
    int unused = ek_pages_unused(w.p, EK_FULL) + ek_pages_unused(w.p, EK_FULL_START);
    if (ek_page_table_adopt(t, w.p, &w.t[from], n)) {
        w.refused++;
        assert_int_equal(t->n, 0);
        return;
    }
    w.adopted++;
    if (t->has[EK_FULL]) {
        int left = ek_pages_unused(w.p, EK_FULL) + ek_pages_unused(w.p, EK_FULL_START);
        assert_int_equal(left, unused - (n % 64 > 0));
    }
    memcpy(w.list[i], w.list[from], sizeof **w.list * (size_t)n);
}

static void run_world(uint64_t seed)
{
    uint64_t r = ek_mix64(seed);
    int kinds = (int)(r % 5), pages[EK_PAGE_KINDS];
    w.layout = (ek_kv_layout){.sliding_window = 1 + (int)((r >> 8) % 200), .n_start = (int)(r >> 40) % 4};
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        bool start = k >= EK_KIND_COUNT;
        w.layout.page_bytes[k] = kinds != 1 + k % EK_KIND_COUNT && (!start || w.layout.n_start > 0) ? 64 : 0;
        pages[k] = w.layout.page_bytes[k] ? 4 + (int)(ek_mix64(r + (uint64_t)k) % (POOL - 3)) : 0;
    }
    memcpy(w.n_pages, pages, sizeof pages);
    ek_page_memory memory = {&w, copy_page, wipe_page};
    assert_int_equal(ek_pages_open(&w.p, pages, &memory), EK_OK);
    for (int i = 0; i < TABLES; i++) ek_page_table_init(&w.t[i], &w.layout, CAP);
    for (uint64_t step = 0; step < 400; step++) {
        r = ek_mix64(seed * 100003 + step);
        int i = (int)(r % TABLES), other = (int)((r >> 8) % TABLES);
        ek_page_table *t = &w.t[i];
        switch ((r >> 16) % 12) {
        case 0: ek_page_table_clear(t, w.p); break;
        case 1:
        case 2: adopt(i, other, r >> 20); break;
        case 3:
        case 4: truncate_table(i, r >> 20); break;
        case 7:
        case 8: ek_page_table_trim(t, w.p, t->n); break;
        default: extend(i, r >> 20);
        }
        check_world();
    }
    for (int i = 0; i < TABLES; i++) {
        ek_page_table_clear(&w.t[i], w.p);
        ek_page_table_fini(&w.t[i]);
    }
    ek_pages_close(w.p);
}

static void tables_share_pages_and_never_contents(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) run_world(seed);
    assert_true(w.adopted > 1000 && w.copies > 1000 && w.refused > 1000 && w.truncated > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sliding_pages_are_held_while_visible),
        cmocka_unit_test(the_bound_is_tight),
        cmocka_unit_test(tables_share_pages_and_never_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
