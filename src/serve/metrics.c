#include "serve/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/page_table.h"
#include "media/locked/helper.h"
#include "serve/journal/journal.h"
#include "serve/receipts.h"
#include "serve/server_state.h"

const char *ek_outcome_name(ek_outcome o)
{
    static const char *const names[] = {"done", "refused", "failed", "client_gone", "timeout", "cut"};
    return names[o];
}

static void head(ek_buf *b, const char *name, const char *type, const char *help)
{
    ek_buf_fmt(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(ek_buf *b, const char *name, const char *help, uint64_t v)
{
    head(b, name, "counter", help);
    ek_buf_fmt(b, "%s %llu\n", name, (unsigned long long)v);
}

static void number(ek_buf *b, const char *name, const char *type, const char *help, double v)
{
    head(b, name, type, help);
    ek_buf_fmt(b, "%s %.17g\n", name, v);
}

static void gauge(ek_buf *b, const char *name, const char *help, double v)
{
    number(b, name, "gauge", help, v);
}

static void histogram(ek_buf *b, const char *name, const char *help, const ek_histogram *h, double first, int n_bins)
{
    uint64_t sum = 0;
    int i = 0;
    head(b, name, "histogram", help);
    for (double bound = first; i < n_bins; bound *= 2, i++)
        ek_buf_fmt(b, "%s_bucket{le=\"%.6g\"} %llu\n", name, bound, (unsigned long long)(sum += h->bin[i]));
    for (; i <= EK_HISTOGRAM_BINS; i++) sum += h->bin[i];
    ek_buf_fmt(b, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9g\n%s_count %llu\n", name, (unsigned long long)sum, name,
               h->sum, name, (unsigned long long)sum);
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* The usage of the fullest pool, which decides whether another request fits. */
static double kv_usage(const ek_engine_stats *st)
{
    double usage = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++)
        if (st->pages_total[k] > 0 && (double)st->pages_used[k] / st->pages_total[k] > usage)
            usage = (double)st->pages_used[k] / st->pages_total[k];
    return usage;
}

static void by_sense(ek_buf *b, const char *name, const char *help, const uint64_t n[2])
{
    head(b, name, "counter", help);
    for (int k = 0; k < 2; k++)
        ek_buf_fmt(b, "%s{kind=\"%s\"} %llu\n", name, k ? "sound" : "image", (unsigned long long)n[k]);
}

static void put_decoders(ek_buf *b)
{
    ek_helper_stats d;
    ek_helper_stats_get(&d);
#define METRIC_DECODER(name, help, member) counter(b, name, help, d.member);
#include "serve/metrics.def"
}

/* The rows of engine/stats.def. */
typedef enum section { IN_none, IN_load, IN_cache, IN_shared, IN_times, IN_media } section;
typedef enum row_type { IS_counter, IS_gauge, IS_pair, IS_times } row_type;

typedef struct row {
    section section;
    row_type type;
    const char *name, *help;
    size_t at;    /* offset of the field in ek_engine_stats */
    bool is_int;  /* int, and a gauge; else uint64_t */
    double first; /* first bin of a histogram; its number of bins */
    int n_bins;
} row;

#define AT(field) offsetof(ek_engine_stats, field)
static const row rows[] = {
#define STAT(section, ctype, field, from, of, type, name, help) \
    {IN_##section, IS_##type, name, help, AT(field), sizeof(ctype) == sizeof(int), 0, 0},
#define STAT_PAIR(section, field, name, help) {IN_##section, IS_pair, name, help, AT(field), false, 0, 0},
#define STAT_TIMES(section, field, first, bins, name, help) \
    {IN_##section, IS_times, name, help, AT(field), false, first, bins},
#include "engine/stats.def"
};

static void put_row(ek_buf *b, const row *r, const ek_engine_stats *st)
{
    const void *at = (const char *)st + r->at;
    if (r->type == IS_pair) by_sense(b, r->name, r->help, at);
    else if (r->type == IS_times) histogram(b, r->name, r->help, at, r->first, r->n_bins);
    else if (r->type == IS_counter) counter(b, r->name, r->help, *(const uint64_t *)at);
    else gauge(b, r->name, r->help, r->is_int ? *(const int *)at : (double)*(const uint64_t *)at);
}

static void put_section(ek_buf *b, section which, const ek_engine_stats *st)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].section == which) put_row(b, &rows[i], st);
}

static void put_pages(ek_buf *b, const ek_engine_stats *st)
{
    static const char *const kinds[] = {[EK_FULL] = "full",
                                        [EK_SLIDING] = "sliding",
                                        [EK_FULL_START] = "full_start",
                                        [EK_SLIDING_START] = "sliding_start"};
    head(b, "evenkeel_kv_pages", "gauge", "Pages of keys and values.");
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        if (k >= EK_KIND_COUNT && st->pages_total[k] == 0) continue;
        const struct {
            const char *state;
            int n;
        } pages[] = {{"used", st->pages_used[k]}, {"cached", st->pages_cached[k]}, {"total", st->pages_total[k]}};
        for (int i = 0; i < 3; i++)
            ek_buf_fmt(b, "evenkeel_kv_pages{kind=\"%s\",state=\"%s\"} %d\n", kinds[k], pages[i].state, pages[i].n);
    }
}

void ek_metrics_engine(ek_buf *b, const ek_engine_stats *st)
{
    put_section(b, IN_load, st);
    put_pages(b, st);
    put_section(b, IN_cache, st);
    if (st->shared) put_section(b, IN_shared, st);
    gauge(b, "evenkeel_kv_usage_ratio", "Used share of the fuller pool of pages.", kv_usage(st));
    put_section(b, IN_times, st);
    put_decoders(b);
    put_section(b, IN_media, st);
}

static void put_server(ek_buf *b, const ek_server *s)
{
    const ek_metrics *m = &s->metrics;
    head(b, "evenkeel_requests_total", "counter", "Requests to the API by outcome.");
    for (int i = 0; i < EK_OUTCOME_COUNT; i++)
        ek_buf_fmt(b, "evenkeel_requests_total{outcome=\"%s\"} %llu\n", ek_outcome_name((ek_outcome)i),
                   (unsigned long long)m->outcome[i]);
    head(b, "evenkeel_http_responses_total", "counter", "Responses by status.");
    for (int status = 100; status < 600; status++)
        if (ek_http_responses(s->http, status))
            ek_buf_fmt(b, "evenkeel_http_responses_total{code=\"%d\"} %llu\n", status,
                       (unsigned long long)ek_http_responses(s->http, status));
    histogram(b, "evenkeel_event_turn_seconds", "CPU time of turns of the event loop.", &s->loop.turns,
              EK_HISTOGRAM_MICRO, EK_HISTOGRAM_BINS);
#define METRIC_COUNT(field, name, help)   counter(b, name, help, m->field);
#define METRIC_TIMES(field, name, help)   histogram(b, name, help, &m->field, EK_HISTOGRAM_SECONDS, EK_HISTOGRAM_BINS);
#define METRIC_READ(type, name, help, of) number(b, name, #type, help, (double)(of));
#include "serve/metrics.def"
}

static void put_events(ek_buf *b, const ek_server *s)
{
    ek_events_stats e;
    if (!s->events) return;
    ek_events_stats_read(s->events, &e);
#define EVENTS_STAT(field, debug, type, name, help) \
    if (*name) number(b, name, #type, help, (double)e.field);
#include "serve/events/stats.def"
}

static void put_replies(ek_buf *b, const ek_server *s)
{
    static const char *const origins[] = {[EK_REPLY_COMPUTED] = "memory",
                                          [EK_REPLY_DISK] = "disk",
                                          [EK_REPLY_SHARED] = "shared",
                                          [EK_REPLY_FILE] = "file"};
    ek_replies_stats r;
    if (!s->replies) return;
    ek_replies_stats_read(s->replies, &r);
    head(b, "evenkeel_stored_replies_total", "counter", "Replies that could be stored, by what of them was there.");
    const struct {
        const char *outcome;
        uint64_t n;
    } by[] = {{"hit", r.hits}, {"part", r.parts}, {"miss", r.misses}};
    for (int i = 0; i < 3; i++)
        ek_buf_fmt(b, "evenkeel_stored_replies_total{outcome=\"%s\"} %llu\n", by[i].outcome,
                   (unsigned long long)by[i].n);
    head(b, "evenkeel_stored_replies_found_total", "counter", "Stored replies that were found, by place.");
    for (int i = 0; i < EK_REPLY_ORIGINS; i++)
        ek_buf_fmt(b, "evenkeel_stored_replies_found_total{place=\"%s\"} %llu\n", origins[i],
                   (unsigned long long)r.from[i]);
    counter(b, "evenkeel_stored_reply_tokens_total", "Tokens of replies that were stored.", r.tokens);
    counter(b, "evenkeel_stored_replies_kept_total", "Replies that were stored.", r.stored);
    counter(b, "evenkeel_stored_replies_evicted_total", "Stored replies dropped for room or age.", r.evicted);
    counter(b, "evenkeel_stored_replies_unwritten_total", "Those that were not written: too many waited.", r.unwritten);
    counter(b, "evenkeel_stored_replies_damaged_total", "Damaged ones, dropped.", r.damaged);
    counter(b, "evenkeel_stored_replies_audits_total", "Hits that were computed again.", r.audits);
    counter(b, "evenkeel_stored_replies_wrong_total", "Stored replies that were wrong.", r.wrong);
    gauge(b, "evenkeel_stored_replies", "Stored replies in memory.", (double)r.entries);
    gauge(b, "evenkeel_stored_reply_bytes", "Memory of stored replies.", (double)r.bytes);
}

static void put_log(ek_buf *b, const ek_server *s)
{
    char root[65];
    if (!ek_receipts_logs(s)) return;
    gauge(b, "evenkeel_receipts_log_entries", "Entries of the log of receipts.", (double)ek_receipts_log_size(s));
    const size_t size = ek_receipts_root(s, root);
    if (size == 0) return;
    head(b, "evenkeel_receipts_log_root", "gauge", "The latest root of that log, and its entries.");
    ek_buf_fmt(b, "evenkeel_receipts_log_root{root=\"%s\"} %zu\n", root, size);
}

static void put_label(ek_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') ek_buf_char(b, '\\');
        ek_buf_char(b, *s == '\n' ? ' ' : *s);
    }
}

static void put_alias(ek_buf *b, const ek_server *s, const char *name, const char *type, const char *help, double v)
{
    head(b, name, type, help);
    ek_buf_fmt(b, "%s{model_name=\"", name);
    put_label(b, s->model_name);
    ek_buf_fmt(b, "\"} %.17g\n", v);
}

static void put_aliases(ek_buf *b, const ek_server *s, const ek_engine_stats *st)
{
#define METRIC_ALIAS(type, name, help, of) put_alias(b, s, name, #type, help, (double)(of));
#include "serve/metrics.def"
    head(b, "vllm:cache_config_info", "gauge", "Tokens per page and pages.");
    ek_buf_fmt(b, "vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n", EK_PAGE_TOKENS,
               st->pages_total[EK_FULL] ? st->pages_total[EK_FULL] : st->pages_total[EK_SLIDING]);
}

static void write_text(ek_buf *b, const ek_server *s)
{
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    head(b, "evenkeel_info", "gauge", "What runs.");
    ek_buf_str(b, "evenkeel_info{version=\"" EK_VERSION "\",model_name=\"");
    put_label(b, s->model_name);
    ek_buf_str(b, "\",fingerprint=\"");
    put_label(b, s->fingerprint);
    ek_buf_str(b, "\"} 1\n");
    ek_metrics_engine(b, &st);
    put_server(b, s);
    put_events(b, s);
    put_replies(b, s);
    put_log(b, s);
    put_aliases(b, s, &st);
}

/* --- OpenMetrics 1.0, for scrapers that request it: with exemplars, the latest traced requests of each bin --- */

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

static bool begins_with(const char *p, const char *end, const char *with)
{
    const size_t n = strlen(with);
    return (size_t)(end - p) >= n && !memcmp(p, with, n);
}

/* Whether the metric of these lines "# HELP" and "# TYPE" is a counter; its family's name has no _total. */
static bool is_counter(const char *type, const char *end)
{
    static const char word[] = " counter\n";
    return begins_with(type, end, "# TYPE ") && end - type > (ptrdiff_t)sizeof word &&
           !memcmp(end - sizeof word + 1, word, sizeof word - 1);
}

static void put_family(ek_buf *out, const char *p, const char *end, bool counter)
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
        if (begins_with(p, end, of[i].name) && begins_with(p + strlen(of[i].name), end, "_bucket{")) e = of[i].of;
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
        const bool help = begins_with(p, next, "# HELP ");
        if (help) {
            counter = is_counter(next, end_of(next, end));
            bin = 0;
        }
        if (*p == '#') put_family(out, p, next, counter);
        else put_sample(out, p, next, of, n_of, &bin);
    }
    ek_buf_str(out, "# EOF\n");
}

/* --- replies --- */

/* Anybody may ask as often as they like, so one text serves all requests for a moment. */
void ek_metrics_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    static const double FRESH = 0.02; /* seconds */
    ek_metrics *m = &s->metrics;
    double now = ek_now();
    if (m->text.len == 0 || now - m->text_made > FRESH) {
        ek_buf_clear(&m->text);
        m->n_texts++;
        write_text(&m->text, s);
        m->text_made = now;
    }
    const char *accept = ek_exchange_find(x, "accept");
    ek_exchange_header(x, "vary", "accept");
    if (accept && strstr(accept, "application/openmetrics-text")) {
        const ek_exemplars_of of[] = {{"evenkeel_prepare_seconds", &m->traces.prepare},
                                      {"evenkeel_first_token_seconds", &m->traces.first_token},
                                      {"evenkeel_request_seconds", &m->traces.whole}};
        ek_buf b = {0};
        ek_openmetrics_write(&b, m->text.data, m->text.len, of, sizeof of / sizeof *of);
        ek_exchange_reply(x, 200, "application/openmetrics-text; version=1.0.0; charset=utf-8", b.data, b.len);
        ek_buf_fini(&b);
        return;
    }
    ek_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", m->text.data, m->text.len);
}
