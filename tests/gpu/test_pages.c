/* Pages are the same bytes wherever they are computed: what a device's replica leaves serves the CPU's, and the other
 * way round. The device is the emulated one; the records are those of the server that replicas share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/machine/cpu.h"
#include "cache/shared/shared.h"
#include "emulated.h"
#include "engine/trace.h"

/* A place for records, which outlives the engines that use it. */
enum { MAX_RECORDS = 256 };

typedef struct place {
    const ek_kv_layout *layout;
    struct {
        char key[EK_RECORD_KEY];
        uint8_t *bytes;
        size_t n;
    } record[MAX_RECORDS];
    int n, read;
    ek_store_counts counts;
} place;

static int find(const place *p, const char *key)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->record[i].key, key)) return i;
    return -1;
}

static void write_pages(void *arg, ek_store_page *const *page, int n)
{
    place *p = arg;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < EK_KIND_COUNT; k++) {
            char key[EK_RECORD_KEY];
            ek_record_key(key, "any", &page[i]->chain, k);
            if (!page[i]->has[k] || find(p, key) >= 0) continue;
            assert_true(p->n < MAX_RECORDS);
            memcpy(p->record[p->n].key, key, sizeof key);
            p->record[p->n].n = ek_record_bytes(p->layout, page[i], k);
            p->record[p->n].bytes = malloc(p->record[p->n].n);
            ek_record_write(p->record[p->n++].bytes, p->layout, page[i], k);
        }
}

static void read_page(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    place *p = arg;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        char key[EK_RECORD_KEY];
        ek_record_key(key, "any", &page->chain, k);
        int i = want[k] ? find(p, key) : -1;
        page->has[k] = i >= 0 && ek_record_read(p->record[i].bytes, p->record[i].n, p->layout, page, k);
        p->read += page->has[k];
    }
}

static void close_place(void *arg)
{
    (void)arg;
}

static void empty(place *p)
{
    for (int i = 0; i < p->n; i++) free(p->record[i].bytes);
    *p = (place){0};
}

/* Runs one request with the place behind the cache. Returns the prefixes that were computed again. */
static int run(const ek_executor *on, place *p, const ek_ask *ask, double audit, ek_trace *out)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_store_backend b = {
        .arg = p, .write = write_pages, .read = read_page, .close = close_place, .counts = &p->counts};
    p->layout = on->layout;
    o.max_requests = 2, o.chunk = 64, o.ctx_tokens = 450, o.cache_store = &b, o.cache_audit = audit;
    assert_int_equal(ek_engine_open_on(&e, on, &o), EK_OK);
    assert_int_equal(ek_trace_run(e, ask, 1, out), EK_OK);
    while (ek_engine_step(e)) continue;
    ek_engine_stats stats;
    ek_engine_stats_read(e, &stats);
    assert_int_equal(stats.cache_audit_mismatches, 0);
    ek_engine_close(e);
    return (int)stats.cache_audits;
}

static void compare(ek_trace *want, ek_trace *got)
{
    char where[256];
    bool same = ek_trace_same(want, got, where, sizeof where);
    if (!same) print_message("%s\n", where);
    assert_true(same);
    ek_trace_fini(got);
}

static void exchange(const char *shape, int bits, ek_kv_format k, ek_kv_format v, int start)
{
    enum { PROMPT = 200 };
    static ek_config c;
    static place by[2];
    int32_t tokens[PROMPT];
    ek_model *m;
    ek_gpu *g;
    ek_trace want, got;
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = k, .v_format = v, .kv_start = start};
    assert_int_equal(ek_config_tiny(&c, shape), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, &c, bits, 5, &o), EK_OK);
    for (int t = 0; t < PROMPT; t++) tokens[t] = (t * 7 + 5) % c.vocab_size;
    ek_ask ask = {.tokens = tokens,
                  .n_tokens = PROMPT,
                  .max_tokens = 4,
                  .prompt_logits_from = PROMPT,
                  .ignore_eos = true,
                  .sampling = ek_sampling_greedy()};
    ek_gpu_driver d = emulated();
    ek_executor on = ek_executor_cpu(m);
    run(&on, &by[0], &ask, 0, &want);
    assert_int_equal(ek_gpu_open(&g, &d, m, 0), EK_OK);
    on = ek_gpu_executor(g);
    run(&on, &by[1], &ask, 0, &got);
    compare(&want, &got);
    assert_int_equal(by[0].n, by[1].n);
    assert_true(by[0].n >= 3);
    for (int i = 0; i < by[0].n; i++) {
        int j = find(&by[1], by[0].record[i].key);
        assert_true(j >= 0 && by[0].record[i].n == by[1].record[j].n);
        assert_memory_equal(by[0].record[i].bytes, by[1].record[j].bytes, by[0].record[i].n);
    }
    on = ek_gpu_executor(g); /* the CPU's pages on the device, and the other way round; the audit agrees, too */
    int audits = run(&on, &by[0], &ask, 1, &got);
    assert_true(got.n_cached >= PROMPT / EK_PAGE_TOKENS * EK_PAGE_TOKENS && by[0].read > 0);
    compare(&want, &got);
    on = ek_executor_cpu(m);
    audits += run(&on, &by[1], &ask, 1, &got);
    assert_true(got.n_cached >= PROMPT / EK_PAGE_TOKENS * EK_PAGE_TOKENS && by[1].read > 0);
    compare(&want, &got);
    assert_int_equal(audits, 2);
    ek_trace_fini(&want);
    empty(&by[0]), empty(&by[1]);
    ek_gpu_close(g);
    ek_model_close(m);
}

static void what_a_device_leaves_serves_the_cpu(void **state)
{
    (void)state;
    exchange("Q1", 4, EK_KV_F16, EK_KV_F16, 0);
    exchange("T2", 0, EK_KV_Q8, EK_KV_Q4, 0);
    exchange("T1", 0, EK_KV_BF16, EK_KV_I16, 0);
    exchange("Q1", 4, EK_KV_I8, EK_KV_I8, 0);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_device_leaves_serves_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
