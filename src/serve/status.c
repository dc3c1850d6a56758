/* GET /health, /ready, /ping, /load and /version. */
#include "serve/reply.h"
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

/* As vLLM says it: requests in the server, those whose prompt is being made included. */
void ek_load_reply(ek_server *s, ek_exchange *x)
{
    ek_engine_stats st;
    ek_engine_stats_read(s->engine, &st);
    ek_buf b = {0};
    ek_buf_fmt(&b, "{\"server_load\":%d}", st.running + st.waiting + ek_workers_waiting(s->workers));
    ek_exchange_header(x, "cache-control", "no-store");
    ek_reply_json(x, 200, &b);
    ek_buf_fini(&b);
}

/* Routers ask it to learn which kind of server this is. */
void ek_version_reply(ek_exchange *x)
{
    ek_buf b = {0};
    ek_buf_str(&b, "{\"version\":\"" EK_VERSION "\"}");
    ek_reply_json(x, 200, &b);
    ek_buf_fini(&b);
}
