/* GET /v1/models, /v1/models/{id} and /health. */
#include <string.h>

#include "base/clock.h"
#include "serve/reply.h"
#include "serve/server_state.h"
#include "text/json.h"

static void entry(ek_buf *out, const ek_server *s)
{
    ek_buf_str(out, "{\"id\":");
    ek_json_quote(out, s->model_name, strlen(s->model_name));
    ek_buf_fmt(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"evenkeel\"}", (long long)s->started);
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

/* Healthy means: takes requests, and the engine moves when there is work. */
void ek_health(ek_server *s, ek_exchange *x)
{
    enum { STALL_SECONDS = 300 };
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    bool stalled = st.running > 0 && st.steps == s->last_steps && ek_now() - s->last_step_time > STALL_SECONDS;
    const char *status = s->n_signals ? "stopping" : stalled ? "stalled" : "ok";
    ek_buf b = {0};
    ek_buf_fmt(&b, "{\"status\":\"%s\",\"running\":%d,\"waiting\":%d}", status, st.running, st.waiting);
    ek_reply_json(x, strcmp(status, "ok") ? 503 : 200, &b);
    ek_buf_fini(&b);
}
