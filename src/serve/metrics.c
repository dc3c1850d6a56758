#include "serve/metrics.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/page_table.h"
#include "media/locked/helper.h"
#include "serve/journal/journal.h"
#include "serve/ready.h"
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

static void put_media(ek_buf *b, const ek_engine_stats *st)
{
    put_decoders(b);
    by_sense(b, "evenkeel_media_tokens_total", "Prompt tokens that stood for images or sounds.", st->media_tokens);
    by_sense(b, "evenkeel_media_cached_tokens_total", "Of these, those whose features were in the cache of features.",
             st->media_reused);
    by_sense(b, "evenkeel_media_encoded_total", "Images and sounds that were encoded.", st->encoded);
    counter(b, "evenkeel_features_evicted_total", "Images and sounds whose features were dropped for others.",
            st->feature_evicted);
    gauge(b, "evenkeel_features_bytes", "Bytes of features in memory.", (double)st->feature_bytes);
    histogram(b, "evenkeel_encode_seconds", "Time from the first slice of an encoding to its last.",
              &st->encode_seconds, EK_HISTOGRAM_SECONDS, EK_HISTOGRAM_BINS);
}

/* Of a server that several processes share; nothing without one. */
static void put_shared(ek_buf *b, const ek_engine_stats *st)
{
    if (!st->shared) return;
    counter(b, "evenkeel_cache_shared_hits_total", "Pages that the shared server had.", st->shared_hits);
    counter(b, "evenkeel_cache_shared_misses_total", "Pages that it did not have, or not in time.", st->shared_misses);
    counter(b, "evenkeel_cache_shared_written_pages_total", "Pages sent to it.", st->shared_written);
    counter(b, "evenkeel_cache_shared_known_pages_total", "Pages that it had already.", st->shared_known);
    counter(b, "evenkeel_cache_shared_read_bytes_total", "Bytes of pages that came from it.", st->shared_read_bytes);
    counter(b, "evenkeel_cache_shared_written_bytes_total", "Bytes of pages sent to it.", st->shared_written_bytes);
    counter(b, "evenkeel_cache_shared_wrong_pages_total",
            "Pages that were damaged, another's, or not what computing them again gives.", st->shared_wrong);
    counter(b, "evenkeel_cache_shared_errors_total", "Connections that failed, commands that were refused.",
            st->shared_errors);
    counter(b, "evenkeel_cache_shared_dropped_pages_total", "Pages not sent: no room, or refused.", st->shared_dropped);
    gauge(b, "evenkeel_cache_shared_waiting_bytes", "Bytes of pages that wait to be sent.",
          (double)st->shared_waiting_bytes);
    gauge(b, "evenkeel_cache_shared_connections", "Connections to it: 2 when all is well.", st->shared_connected);
}

static void put_engine(ek_buf *b, const ek_engine_stats *st)
{
    gauge(b, "evenkeel_requests_running", "Requests that the engine computes.", st->running);
    gauge(b, "evenkeel_requests_waiting", "Requests that wait for the engine.", st->waiting);
    counter(b, "evenkeel_engine_requests_total", "Replies submitted to the engine.", st->requests);
    counter(b, "evenkeel_prompt_tokens_total", "Prompt tokens of requests that got their first token.",
            st->prompt_tokens);
    counter(b, "evenkeel_reply_tokens_total", "Tokens generated.", st->reply_tokens);
    counter(b, "evenkeel_drafted_tokens_total", "Drafted tokens that were verified.", st->drafted_tokens);
    counter(b, "evenkeel_accepted_tokens_total", "Drafted tokens that stood.", st->accepted_tokens);
    counter(b, "evenkeel_steps_total", "Steps of the engine.", st->steps);
    counter(b, "evenkeel_preempted_total", "Requests that gave up their pages and started over.", st->preempted);
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
    counter(b, "evenkeel_cache_lookups_total", "Requests that the prefix cache was asked for.", st->cache_lookups);
    counter(b, "evenkeel_cache_hits_total", "Of these, those that began with cached pages.", st->cache_hits);
    counter(b, "evenkeel_cache_waits_total", "Requests that waited for a prompt which another computed.",
            st->cache_waits);
    counter(b, "evenkeel_cache_evicted_pages_total", "Cached pages dropped for others.", st->cache_evicted_pages);
    counter(b, "evenkeel_cache_audits_total", "Cached prefixes computed again.", st->cache_audits);
    counter(b, "evenkeel_cache_audit_mismatch_total", "Pages that were not the same.", st->cache_audit_mismatches);
    counter(b, "evenkeel_cache_disk_written_pages_total", "Cached pages written to disk.", st->disk_written);
    counter(b, "evenkeel_cache_disk_read_pages_total", "Cached pages read from disk.", st->disk_read);
    counter(b, "evenkeel_cache_disk_damaged_total", "Damaged records and files dropped.", st->disk_damaged);
    counter(b, "evenkeel_cache_disk_failed_pages_total", "Pages that could not be written.", st->disk_failed);
    counter(b, "evenkeel_cache_host_written_pages_total", "Cached pages copied to host memory.", st->host_written);
    counter(b, "evenkeel_cache_host_read_pages_total", "Cached pages taken from host memory.", st->host_read);
    counter(b, "evenkeel_cache_host_evicted_pages_total", "Pages in host memory dropped for others.", st->host_evicted);
    gauge(b, "evenkeel_cache_host_bytes", "Bytes of cached pages in host memory.", (double)st->host_bytes);
    put_shared(b, st);
    gauge(b, "evenkeel_kv_usage_ratio", "Used share of the fuller pool of pages.", kv_usage(st));
    histogram(b, "evenkeel_queue_seconds", "Time from a request's arrival at the engine to its first step.",
              &st->queue_seconds, EK_HISTOGRAM_SECONDS, EK_HISTOGRAM_BINS);
    histogram(b, "evenkeel_step_seconds", "Time of a step.", &st->step_seconds, EK_HISTOGRAM_SECONDS,
              EK_HISTOGRAM_BINS);
    histogram(b, "evenkeel_mask_seconds", "Time that a step waited for the masks of structured output.",
              &st->mask_seconds, EK_HISTOGRAM_MICRO, EK_HISTOGRAM_BINS);
    histogram(b, "evenkeel_step_requests", "Requests that shared a step.", &st->step_requests, EK_HISTOGRAM_COUNTS, 11);
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
    put_engine(b, &st);
    put_media(b, &st);
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
