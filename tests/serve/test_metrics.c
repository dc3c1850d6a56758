/* serve: the engine's part of /metrics, byte for byte; and that each number of stats.def reaches it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "serve/status.h"

/* Every number another one. */
static void fill(ek_engine_stats *st)
{
    uint64_t *const n[] = {&st->requests,
                           &st->prompt_tokens,
                           &st->cached_tokens,
                           &st->reply_tokens,
                           &st->drafted_tokens,
                           &st->accepted_tokens,
                           &st->steps,
                           &st->preempted,
                           &st->cache_lookups,
                           &st->cache_hits,
                           &st->cache_tokens,
                           &st->cache_waits,
                           &st->cache_evicted_pages,
                           &st->cache_audits,
                           &st->cache_audit_mismatches,
                           &st->held_pages,
                           &st->held_digest,
                           &st->held_late,
                           &st->disk_written,
                           &st->disk_read,
                           &st->disk_evicted,
                           &st->disk_damaged,
                           &st->disk_failed,
                           &st->disk_bytes,
                           &st->host_written,
                           &st->host_read,
                           &st->host_evicted,
                           &st->host_bytes,
                           &st->shared_hits,
                           &st->shared_misses,
                           &st->shared_written,
                           &st->shared_known,
                           &st->shared_read_bytes,
                           &st->shared_written_bytes,
                           &st->shared_wrong,
                           &st->shared_errors,
                           &st->shared_dropped,
                           &st->shared_waiting_bytes,
                           &st->media_tokens[0],
                           &st->media_tokens[1],
                           &st->media_reused[0],
                           &st->media_reused[1],
                           &st->encoded[0],
                           &st->encoded[1],
                           &st->feature_evicted,
                           &st->feature_bytes,
                           &st->remote_questions,
                           &st->remote_answers,
                           &st->remote_accepted,
                           &st->remote_waited};
    const struct {
        ek_histogram *h;
        double first;
    } times[] = {{&st->queue_seconds, EK_HISTOGRAM_SECONDS},
                 {&st->step_seconds, EK_HISTOGRAM_SECONDS},
                 {&st->mask_seconds, EK_HISTOGRAM_MICRO},
                 {&st->step_requests, EK_HISTOGRAM_COUNTS},
                 {&st->encode_seconds, EK_HISTOGRAM_SECONDS}};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) *n[i] = 1000000007 * (i + 1);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 3 * (i + 1); k++)
            ek_histogram_add(times[i].h, times[i].first, times[i].first * (k * k + 0.5));
    st->running = 3, st->waiting = 4, st->shared_connected = 2, st->shared = true;
    for (int k = 0; k < EK_PAGE_KINDS; k++)
        st->pages_used[k] = 10 + k, st->pages_cached[k] = 20 + k, st->pages_total[k] = k < 3 ? 50 + k : 0;
}

static void test_text(void **state)
{
    (void)state;
    ek_engine_stats st = {0};
    ek_buf text = {0};
    ek_buf want = {0};
    fill(&st);
    ek_metrics_engine(&text, &st);
    st.shared = false;
    ek_buf_str(&text, "--- not shared\n");
    ek_metrics_engine(&text, &st);
    assert_int_equal(ek_file_read(&want, "tests/serve/metrics.txt", 1 << 20), EK_OK);
    assert_string_equal(ek_buf_text(&want), ek_buf_text(&text));
    ek_buf_fini(&text);
    ek_buf_fini(&want);
}

/* A row with a name is in the text once. */
static void test_rows(void **state)
{
    (void)state;
    static const char *const name[] = {
#define STAT(section, ctype, field, from, of, type, name, help) name,
#define STAT_PAIR(section, field, name, help)                   name,
#define STAT_TIMES(section, field, first, bins, name, help)     name,
#include "engine/stats.def"
    };
    ek_engine_stats st = {.shared = true};
    ek_buf text = {0};
    ek_metrics_engine(&text, &st);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char head[128];
        if (!*name[i]) continue;
        snprintf(head, sizeof head, "# TYPE %s ", name[i]);
        const char *at = strstr(ek_buf_text(&text), head);
        if (!at || strstr(at + 1, head)) fail_msg("%s is not in the text once", name[i]);
    }
    ek_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
