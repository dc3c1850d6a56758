/* GET /health, /ready, /ping, /load, /version and /debug; /props and /slots. */
#include "serve/routes.h"
#include "serve/server_state.h"

static void status_reply(ek_server *s, ek_exchange *x, ek_readiness r, bool good)
{
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    ek_buf b = {0};
    ek_buf_fmt(&b, "{\"status\":\"%s\",\"running\":%d,\"waiting\":%d}", ek_ready_name(r), st.running, st.waiting);
    if (!good) ek_exchange_header(x, "retry-after", "5");
    ek_exchange_header(x, "cache-control", "no-store");
    ek_reply_json(x, good ? 200 : 503, &b);
}

/* Alive means: the server takes requests, and the engine makes progress if there is work. A canary without an answer
 * yet is no reason to restart the process. */
void ek_health(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_readiness r = ek_ready(s);
    bool live = r == EK_READY || r == EK_READY_STARTING;
    status_reply(s, x, live ? EK_READY : r, live);
}

void ek_readiness_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_readiness r = ek_ready(s);
    status_reply(s, x, r, r == EK_READY);
}

/* vLLM's definition: requests in the server, including those whose prompt is being made. */
void ek_load_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    ek_buf b = {0};
    ek_buf_fmt(&b, "{\"server_load\":%d}", st.running + st.waiting + ek_workers_waiting(s->workers));
    ek_exchange_header(x, "cache-control", "no-store");
    ek_reply_json(x, 200, &b);
}

/* Routers use this path to recognise the kind of server. */
void ek_version_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)s, (void)rest;
    ek_buf b = {0};
    ek_buf_str(&b, "{\"version\":\"" EK_VERSION "\"}");
    ek_reply_json(x, 200, &b);
}

static void put_events(ek_buf *b, const ek_events *e)
{
    ek_events_stats s;
    if (!e) {
        ek_buf_str(b, "null");
        return;
    }
    ek_events_stats_read(e, &s);
    ek_put_string_after(b, "{\"endpoint\":", s.endpoint[0]);
    ek_put_string_after(b, ",\"replay\":", *s.endpoint[1] ? s.endpoint[1] : NULL);
#define EVENTS_STAT(field, debug, type, name, help) ek_buf_fmt(b, ",\"" debug "\":%llu", (unsigned long long)s.field);
#include "serve/events/stats.def"
    ek_buf_char(b, '}');
}

/* The index's own count of held pages, besides the published ones: a subscriber that has rebuilt the set compares its
 * number of pages and the exclusive or of their hashes. */
void ek_debug_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    static const char *const kinds[] = {"full", "sliding", "full_start", "sliding_start"};
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    ek_buf b = {0};
    ek_buf_fmt(&b,
               "{\"running\":%d,\"waiting\":%d,\"steps\":%llu,\"held\":{\"pages\":%llu,\"digest\":\"%016llx\",\"late\":"
               "%llu},\"pages\":{",
               st.running, st.waiting, (unsigned long long)st.steps, (unsigned long long)st.held_pages,
               (unsigned long long)st.held_digest, (unsigned long long)st.held_late);
    for (int k = 0; k < EK_PAGE_KINDS; k++)
        ek_buf_fmt(&b, "%s\"%s\":{\"used\":%d,\"cached\":%d,\"total\":%d}", k ? "," : "", kinds[k], st.pages_used[k],
                   st.pages_cached[k], st.pages_total[k]);
    ek_buf_fmt(
        &b,
        "},\"shared\":{\"on\":%s,\"connections\":%d,\"hits\":%llu,\"misses\":%llu,\"written\":%llu,\"wrong\":%llu,"
        "\"errors\":%llu},\"kv_events\":",
        st.shared ? "true" : "false", st.shared_connected, (unsigned long long)st.shared_hits,
        (unsigned long long)st.shared_misses, (unsigned long long)st.shared_written,
        (unsigned long long)st.shared_wrong, (unsigned long long)st.shared_errors);
    put_events(&b, s->events);
    ek_buf_char(&b, '}');
    ek_exchange_header(x, "cache-control", "no-store");
    ek_reply_json(x, 200, &b);
}

/* --- llama.cpp's paths, with the members that its clients read; a slot stores no conversation --- */

/* Sampling defaults of requests; -1 as an unsigned number of 32 bits means "any seed". */
static void put_settings(ek_buf *out, const ek_server *s, int id, bool busy)
{
    const ek_config *c = s->config;
    ek_buf_fmt(
        out,
        "{\"id\":%d,\"id_task\":%d,\"n_ctx\":%d,\"speculative\":false,\"is_processing\":%s,\"params\":{"
        "\"n_predict\":-1,\"max_tokens\":-1,\"seed\":4294967295,\"temperature\":%.9g,\"top_k\":%d,\"top_p\":%.9g,"
        "\"min_p\":0,\"repeat_penalty\":1,\"repeat_last_n\":-1,\"presence_penalty\":0,\"frequency_penalty\":0,"
        "\"stop\":[],\"stream\":true},\"next_token\":{\"has_next_token\":%s,\"n_remain\":-1,\"n_decoded\":0}}",
        id, busy ? id : -1, ek_engine_ctx(s->engine), busy ? "true" : "false", (double)c->temperature, c->top_k,
        (double)c->top_p, busy ? "true" : "false");
}

void ek_props_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_buf b = {0};
    ek_buf_str(&b, "{\"default_generation_settings\":");
    put_settings(&b, s, 0, false);
    ek_buf_fmt(&b, ",\"total_slots\":%d,\"model_alias\":", ek_engine_max_requests(s->engine));
    ek_put_string(&b, s->model_name);
    ek_buf_str(&b, ",\"model_path\":"); /* the name, because the path on disk is private */
    ek_put_string(&b, s->model_name);
    ek_buf_fmt(&b,
               ",\"chat_template\":\"\",\"modalities\":{\"vision\":%s,\"audio\":%s},\"bos_token\":\"<bos>\","
               "\"eos_token\":\"<turn|>\",\"build_info\":\"evenkeel " EK_VERSION "\",\"is_sleeping\":false}",
               s->chat->media.image ? "true" : "false", s->chat->media.audio ? "true" : "false");
    ek_reply_json(x, 200, &b);
}

enum { MAX_SLOTS = 256 }; /* the event loop writes the reply at once */

/* As many slots are busy as requests run. */
void ek_slots_reply(ek_server *s, ek_exchange *x, const char *rest)
{
    (void)rest;
    ek_engine_stats st;
    ek_buf b = {0};
    int n = ek_engine_max_requests(s->engine);
    ek_engine_stats_read(s->engine, &st);
    if (n > MAX_SLOTS) n = MAX_SLOTS;
    ek_buf_char(&b, '[');
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(&b, ',');
        put_settings(&b, s, i, i < st.running);
    }
    ek_buf_char(&b, ']');
    ek_exchange_header(x, "cache-control", "no-store");
    ek_reply_json(x, 200, &b);
}
