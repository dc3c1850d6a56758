/* The text of /metrics in the format OpenMetrics 1.0, for scrapers that request it: with exemplars, the latest traced
 * requests of each bin. */
#include <string.h>

#include "base/clock.h"
#include "serve/status.h"

void ek_exemplars_add(ek_exemplars *e, double first, double value, const char *trace)
{
    int i = 0;
    if (!*trace) return;
    for (double bound = first; i < EK_HISTOGRAM_BINS && value > bound; bound *= 2) i++; /* as ek_histogram_add */
    e->bin[i] = (ek_exemplar){.value = value, .time = ek_unix_now()};
    memcpy(e->bin[i].trace, trace, sizeof e->bin[i].trace);
}

static const char *end_of(const char *p, const char *end)
{
    const char *line = memchr(p, '\n', (size_t)(end - p));
    return line ? line + 1 : end;
}

static bool begins(const char *p, const char *end, const char *with)
{
    const size_t n = strlen(with);
    return (size_t)(end - p) >= n && !memcmp(p, with, n);
}

/* Whether the metric of these lines "# HELP" and "# TYPE" is a counter; its family's name has no _total. */
static bool is_counter(const char *type, const char *end)
{
    static const char word[] = " counter\n";
    return begins(type, end, "# TYPE ") && end - type > (ptrdiff_t)sizeof word &&
           !memcmp(end - sizeof word + 1, word, sizeof word - 1);
}

static void put_head(ek_buf *out, const char *p, const char *end, bool counter)
{
    static const char total[] = "_total";
    const size_t lead = sizeof "# HELP " - 1, n = sizeof total - 1;
    const char *name = memchr(p + lead, ' ', (size_t)(end - p) - lead);
    const bool cut = counter && name && (size_t)(name - p) > lead + n && !memcmp(name - n, total, n);
    if (!cut) {
        ek_buf_add(out, p, (size_t)(end - p));
        return;
    }
    ek_buf_add(out, p, (size_t)(name - p) - n);
    ek_buf_add(out, name, (size_t)(end - name));
}

static void put_exemplar(ek_buf *out, const ek_exemplar *e)
{
    if (e->time > 0) ek_buf_fmt(out, " # {trace_id=\"%s\"} %.9g %.3f", e->trace, e->value, e->time);
}

/* Writes a line of a bin; *bin counts the family's bins. */
static void put_sample(ek_buf *out, const char *p, const char *end, const ek_exemplars_of *of, int n_of, int *bin)
{
    const ek_exemplars *e = NULL;
    for (int i = 0; i < n_of && !e; i++)
        if (begins(p, end, of[i].name) && begins(p + strlen(of[i].name), end, "_bucket{")) e = of[i].of;
    ek_buf_add(out, p, (size_t)(end - p) - 1);
    if (e && *bin <= EK_HISTOGRAM_BINS) put_exemplar(out, &e->bin[(*bin)++]);
    ek_buf_char(out, '\n');
}

void ek_openmetrics_write(ek_buf *out, const char *text, size_t n, const ek_exemplars_of *of, int n_of)
{
    const char *end = text + n;
    int bin = 0;
    bool counter = false;
    for (const char *p = text, *next; p < end; p = next) {
        next = end_of(p, end);
        const bool help = begins(p, next, "# HELP ");
        if (help) {
            counter = is_counter(next, end_of(next, end));
            bin = 0;
        }
        if (*p == '#') put_head(out, p, next, counter);
        else put_sample(out, p, next, of, n_of, &bin);
    }
    ek_buf_str(out, "# EOF\n");
}
