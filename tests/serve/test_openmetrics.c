/* /metrics as OpenMetrics: families of counters without their suffix, exemplars in their bins, nothing else changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/status.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"

static void the_text_is_translated(void **state)
{
    (void)state;
    static const char text[] =
        "# HELP a_total Counts.\n# TYPE a_total counter\na_total 5\na_total{k=\"v\"} 6\n"
        "# HELP b_total A gauge of that name.\n# TYPE b_total gauge\nb_total 1\n"
        "# HELP c No suffix.\n# TYPE c counter\nc 2\n"
        "# HELP t Times.\n# TYPE t histogram\nt_bucket{le=\"0.0001\"} 0\nt_bucket{le=\"0.0002\"} 2\n"
        "t_bucket{le=\"+Inf\"} 3\nt_sum 1\nt_count 3\n"
        "# HELP tt Others.\n# TYPE tt histogram\ntt_bucket{le=\"0.0001\"} 0\n";
    static const char want[] = "# HELP a Counts.\n# TYPE a counter\na_total 5\na_total{k=\"v\"} 6\n"
                               "# HELP b_total A gauge of that name.\n# TYPE b_total gauge\nb_total 1\n"
                               "# HELP c No suffix.\n# TYPE c counter\nc 2\n"
                               "# HELP t Times.\n# TYPE t histogram\nt_bucket{le=\"0.0001\"} 0\n"
                               "t_bucket{le=\"0.0002\"} 2 # {trace_id=\"" TRACE "\"} 0.00015 ";
    ek_exemplars e = {0};
    const ek_exemplars_of of = {"t", &e};
    ek_buf out = {0};
    ek_exemplars_add(&e, EK_HISTOGRAM_SECONDS, 0.00015, TRACE);
    ek_exemplars_add(&e, EK_HISTOGRAM_SECONDS, 0.00015, ""); /* without a trace */
    ek_openmetrics_write(&out, text, sizeof text - 1, &of, 1);
    assert_memory_equal(out.data, want, sizeof want - 1);
    assert_non_null(strstr(out.data, "\nt_bucket{le=\"+Inf\"} 3\nt_sum 1\nt_count 3\n# HELP tt Others.\n"));
    assert_string_equal(strstr(out.data, "tt_bucket"), "tt_bucket{le=\"0.0001\"} 0\n# EOF\n");
    ek_buf_fini(&out);
}

/* An exemplar lies within the bounds of its bin, as the histogram counts. */
static void exemplars_are_in_their_bins(void **state)
{
    (void)state;
    for (double v = 1e-5; v < 1e4; v *= 1.37) {
        ek_exemplars e = {0};
        ek_histogram h = {0};
        ek_exemplars_add(&e, EK_HISTOGRAM_SECONDS, v, TRACE);
        ek_histogram_add(&h, EK_HISTOGRAM_SECONDS, v);
        for (int i = 0; i <= EK_HISTOGRAM_BINS; i++) assert_int_equal(e.bin[i].time > 0, h.bin[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_translated),
        cmocka_unit_test(exemplars_are_in_their_bins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
