#include "serve/status.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/page_table.h"
#include "media/locked/helper.h"
#include "serve/journal/journal.h"
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

static void gauge(ek_buf *b, const char *name, const char *help, double v)
{
    head(b, name, "gauge", help);
    ek_buf_fmt(b, "%s %.17g\n", name, v);
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

/* The fullest pool: what decides whether another request fits. */
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
    counter(b, "evenkeel_decoded_total",
            "Files of pictures and sounds given to decoders, headers counted by themselves.", d.files);
    counter(b, "evenkeel_decoders_crashed_total", "Of these, those whose decoder crashed or was killed.", d.crashed);
    counter(b, "evenkeel_decoders_late_total", "Of these, those that took more processor time than there is.", d.late);
    counter(b, "evenkeel_decoders_dropped_total", "Of these, those whose client left.", d.dropped);
    counter(b, "evenkeel_decoder_lines_total", "Lines that decoders wrote to standard error.", d.lines);
}

/* The rows of engine/stats.def. */
typedef enum section { IN_none, IN_load, IN_cache, IN_shared, IN_times, IN_media } section;
typedef enum row_type { IS_counter, IS_gauge, IS_pair, IS_times } row_type;

typedef struct row {
    section section;
    row_type type;
    const char *name, *help;
    size_t at;    /* of the field in ek_engine_stats */
    bool is_int;  /* else uint64_t; a gauge */
    double first; /* of a histogram, and how many bins of it */
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
    counter(b, "evenkeel_resumed_total", "Of these, streams that went on here behind what was sent before.",
            m->resumed);
    head(b, "evenkeel_http_responses_total", "counter", "Responses by status.");
    for (int status = 100; status < 600; status++)
        if (ek_http_responses(s->http, status))
            ek_buf_fmt(b, "evenkeel_http_responses_total{code=\"%d\"} %llu\n", status,
                       (unsigned long long)ek_http_responses(s->http, status));
    counter(b, "evenkeel_cached_tokens_total", "Prompt tokens that came from a cache.", m->cached_tokens);
    counter(b, "evenkeel_metrics_texts_total", "Texts of /metrics that were made; replies between repeat one.",
            m->n_texts);
    gauge(b, "evenkeel_ready", "1 if /ready is 200.", ek_ready(s) == EK_READY);
    counter(b, "evenkeel_canary_mismatches_total", "Canaries whose digest was not the first one's.",
            m->canary_mismatches);
    counter(b, "evenkeel_stalls_total", "Times that no step ended for --stall-timeout.", m->stalls);
    counter(b, "evenkeel_log_lost_lines_total", "Lines of the log that nobody read in time.", ek_log_lost());
    gauge(b, "evenkeel_connections", "Open connections.", ek_http_connections(s->http));
    gauge(b, "evenkeel_requests_preparing", "Requests whose prompt is being made or waits for it.",
          ek_workers_waiting(s->workers));
    gauge(b, "evenkeel_body_bytes", "Bytes of bodies that arrive or wait.", (double)ek_http_body_bytes(s->http));
    gauge(b, "evenkeel_request_memory_bytes", "Memory counted for requests.", (double)atomic_load(&s->memory.used));
    gauge(b, "evenkeel_request_memory_limit_bytes", "Memory that requests may take.", (double)s->memory.total);
    gauge(b, "evenkeel_event_turn_seconds_max", "CPU time of the longest turn of the event loop.", s->loop.max);
    histogram(b, "evenkeel_event_turn_seconds", "CPU time of turns of the event loop.", &s->loop.turns,
              EK_HISTOGRAM_MICRO, EK_HISTOGRAM_BINS);
    counter(b, "evenkeel_journal_lost_lines_total", "Lines of the journal that were not written.",
            (uint64_t)ek_journal_lost(s->journal));
    gauge(b, "process_resident_memory_bytes", "Resident memory.", resident_bytes());
    gauge(b, "evenkeel_uptime_seconds", "Seconds since the start.", (double)(ek_unix_time() - s->started));
    histogram(b, "evenkeel_prepare_seconds", "Time from a request's arrival to its prompt's tokens.", &m->prepare,
              EK_HISTOGRAM_SECONDS, EK_HISTOGRAM_BINS);
    histogram(b, "evenkeel_first_token_seconds", "Time from a request's arrival to its first token.", &m->first_token,
              EK_HISTOGRAM_SECONDS, EK_HISTOGRAM_BINS);
    histogram(b, "evenkeel_token_gap_seconds", "Time between tokens of a reply.", &m->token_gap, EK_HISTOGRAM_SECONDS,
              EK_HISTOGRAM_BINS);
    histogram(b, "evenkeel_request_seconds", "Time from a request's arrival to the end of its reply.", &m->whole,
              EK_HISTOGRAM_SECONDS, EK_HISTOGRAM_BINS);
}

static void put_events(ek_buf *b, const ek_server *s)
{
    ek_events_stats e;
    if (!s->events) return;
    ek_events_stats_read(s->events, &e);
    counter(b, "evenkeel_kv_events_batches_total", "Batches of --kv-events.", e.batches);
    counter(b, "evenkeel_kv_events_bytes_total", "Bytes of these batches.", e.bytes);
    counter(b, "evenkeel_kv_events_stored_pages_total", "Pages that they said are held.", e.came);
    counter(b, "evenkeel_kv_events_removed_pages_total", "Pages that they said are held no more.", e.went);
    gauge(b, "evenkeel_kv_events_pages", "Pages that are held, by these batches.", (double)e.pages);
    counter(b, "evenkeel_kv_events_replays_total", "Requests of --kv-replay that were answered whole.", e.replays);
    counter(b, "evenkeel_kv_events_lost_replays_total", "Those that were given up: nobody read.", e.lost_replays);
    counter(b, "evenkeel_kv_events_bad_requests_total", "Messages at --kv-replay that are no requests.",
            e.bad_requests);
}

static void put_label(ek_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') ek_buf_char(b, '\\');
        ek_buf_char(b, *s == '\n' ? ' ' : *s);
    }
}

/* Gateways that know nothing of us (llm-d, the Gateway API inference extension, vLLM's production stack, SMG) look for
 * these names, those of older versions among them. */
static void put_aliases(ek_buf *b, const ek_server *s, const ek_engine_stats *st)
{
    double asked = (double)st->prompt_tokens, hit = (double)st->cached_tokens;
    const struct {
        const char *name, *type, *help;
        double value;
    } aliases[] = {
        {"vllm:num_requests_running", "gauge", "As evenkeel_requests_running.", st->running},
        {"vllm:num_requests_waiting", "gauge", "As evenkeel_requests_waiting, with those being prepared.",
         st->waiting + ek_workers_waiting(s->workers)},
        {"vllm:kv_cache_usage_perc", "gauge", "As evenkeel_kv_usage_ratio.", kv_usage(st)},
        {"vllm:gpu_cache_usage_perc", "gauge", "As evenkeel_kv_usage_ratio.", kv_usage(st)},
        {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens that were looked up.", asked},
        {"vllm:prefix_cache_hits_total", "counter", "Of these, those that came from the prefix cache.", hit},
        {"vllm:gpu_prefix_cache_queries_total", "counter", "As vllm:prefix_cache_queries_total.", asked},
        {"vllm:gpu_prefix_cache_hits_total", "counter", "As vllm:prefix_cache_hits_total.", hit},
        {"vllm:gpu_prefix_cache_hit_rate", "gauge", "The quotient of the two.", asked > 0 ? hit / asked : 0},
    };
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        head(b, aliases[i].name, aliases[i].type, aliases[i].help);
        ek_buf_fmt(b, "%s{model_name=\"", aliases[i].name);
        put_label(b, s->model_name);
        ek_buf_fmt(b, "\"} %.17g\n", aliases[i].value);
    }
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
    put_aliases(b, s, &st);
}

/* Everybody may ask, as often as they like: the text is good for a moment. */
void ek_metrics_reply(ek_server *s, ek_exchange *x)
{
    static const double FRESH = 0.02; /* seconds */
    ek_metrics *m = &s->metrics;
    double now = ek_now();
    if (m->text.len == 0 || now - m->text_made > FRESH) {
        ek_buf_clear(&m->text);
        m->n_texts++;
        write_text(&m->text, s);
        m->text_made = now;
    }
    ek_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", m->text.data, m->text.len);
}
