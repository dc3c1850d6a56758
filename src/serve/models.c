/* GET /v1/models, /v1/models/{id}, /health and /ready. */
#include <string.h>

#include "serve/reply.h"
#include "serve/server_state.h"
#include "text/json.h"

static void entry(ek_buf *out, const ek_server *s)
{
    ek_buf_str(out, "{\"id\":");
    ek_json_quote(out, s->model_name, strlen(s->model_name));
    ek_buf_fmt(
        out,
        ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"evenkeel\",\"max_model_len\":%d,\"context_length\":%d}",
        (long long)s->started, ek_engine_ctx(s->engine), ek_engine_ctx(s->engine));
}

void ek_models_list(ek_server *s, ek_exchange *x)
{
    ek_buf b = {0};
    ek_buf_str(&b, "{\"object\":\"list\",\"data\":[");
    entry(&b, s);
    ek_buf_str(&b, "]}");
    ek_reply_json(x, 200, &b);
    ek_buf_fini(&b);
}

void ek_models_one(ek_server *s, ek_exchange *x, const char *id)
{
    ek_buf b = {0};
    if (!strcmp(id, s->model_name)) {
        entry(&b, s);
        ek_reply_json(x, 200, &b);
    } else {
        ek_buf_fmt(&b, "there is no model \"%.200s\" here; this server has \"%s\"", id, s->model_name);
        ek_reply_error(x, s->dialects[0], 404, ek_buf_text(&b), "model", "model_not_found");
    }
    ek_buf_fini(&b);
}

static void status_reply(ek_server *s, ek_exchange *x, ek_readiness r, bool good)
{
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    ek_buf b = {0};
    ek_buf_fmt(&b, "{\"status\":\"%s\",\"running\":%d,\"waiting\":%d}", ek_ready_name(r), st.running, st.waiting);
    if (!good) ek_exchange_header(x, "retry-after", "5");
    ek_exchange_header(x, "cache-control", "no-store");
    ek_reply_json(x, good ? 200 : 503, &b);
    ek_buf_fini(&b);
}

/* Live means: takes requests, and the engine moves when there is work. A canary that has not been answered yet is no
 * reason to restart the process. */
void ek_health(ek_server *s, ek_exchange *x)
{
    ek_readiness r = ek_ready(s);
    bool live = r == EK_READY || r == EK_READY_STARTING;
    status_reply(s, x, live ? EK_READY : r, live);
}

void ek_readiness_reply(ek_server *s, ek_exchange *x)
{
    ek_readiness r = ek_ready(s);
    status_reply(s, x, r, r == EK_READY);
}
