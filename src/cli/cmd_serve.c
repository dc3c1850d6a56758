#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/pool.h"
#include "cli/hub.h"
#include "cli/open.h"
#include "engine/budget.h"
#include "model/digest.h"
#include "serve/journal.h"
#include "serve/server.h"

/* A connection is a descriptor; the soft limit is often 1024. */
static ek_err raise_descriptors(int connections)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim)) return EK_OK;
    lim.rlim_cur = lim.rlim_max;
    setrlimit(RLIMIT_NOFILE, &lim);
    getrlimit(RLIMIT_NOFILE, &lim);
    if (lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur < (rlim_t)connections + 128)
        return ek_fail(EK_EINVAL, "--max-connections %d, but this process may open only %llu files (ulimit -n)",
                       connections, (unsigned long long)lim.rlim_cur);
    return EK_OK;
}

/* Whoever waits for the file never sees half a number. */
static ek_err write_port(const char *path, int port)
{
    ek_buf tmp = {0};
    ek_buf_fmt(&tmp, "%s.%d", path, (int)getpid());
    FILE *f = fopen(ek_buf_text(&tmp), "w");
    bool ok = f && fprintf(f, "%d\n", port) > 0;
    if (f) ok = !fclose(f) && ok;
    ok = ok && !rename(ek_buf_text(&tmp), path);
    ek_err err = ok ? EK_OK : ek_fail(EK_EIO, "cannot write %s: %s", path, strerror(errno));
    ek_buf_fini(&tmp);
    return err;
}

static ek_err open_journal(const ek_cli *cli, const ek_cli_model *m, ek_journal **out)
{
    char digest[17];
    if (!cli->has.journal) return EK_OK;
    EK_TRY(ek_model_digest(digest, m->dir, m->pool));
    ek_journal_opts opts = {.path = cli->journal,
                            .model = digest,
                            .numerics = ek_model_numerics_id(m->model),
                            .prompts = cli->journal_prompts};
    return ek_journal_open(out, &opts);
}

static ek_err serve(const ek_cli *cli, ek_cli_model *m)
{
    ek_journal *journal = NULL;
    EK_TRY(open_journal(cli, m, &journal));
    char *name = ek_cli_model_name(cli, m->dir);
    ek_server_opts opts = {
        .http = {.host = cli->host,
                 .port = (int)cli->port,
                 .max_connections = (int)cli->max_connections,
                 .max_body = (size_t)cli->max_body,
                 .max_unsent = (size_t)cli->stream_buffer,
                 .body_timeout = (double)cli->body_timeout,
                 .idle_timeout = (double)cli->idle_timeout},
        .limits = {.max_json_values = (int)cli->max_json_values,
                   .max_messages = (int)cli->max_messages,
                   .request_memory = cli->has.request_memory ? (size_t)cli->request_memory : 0,
                   .prepare_threads = (int)cli->prepare_threads,
                   .prepare_queue = (int)cli->prepare_queue,
                   .request_timeout = (double)cli->request_timeout,
                   .drain_timeout = (double)cli->drain_timeout,
                   .stall_timeout = (double)cli->stall_timeout},
        .api_keys = cli->has.api_key ? cli->api_key : NULL,
        .api_key_file = cli->has.api_key_file ? cli->api_key_file : NULL,
        .cors_origins = cli->cors_origins,
        .allowed_hosts = cli->has.allowed_hosts ? cli->allowed_hosts : NULL,
        .whole_calls = cli->whole_calls,
        .model = m->model,
        .model_dir = m->dir,
        .model_name = cli->has.model_name ? cli->model_name : name,
        .journal = journal,
    };
    ek_server *server;
    ek_err err = ek_server_open(&server, m->engine, &opts);
    free(name);
    if (err) {
        ek_journal_close(journal);
        return err;
    }
    if (cli->has.port_file) err = write_port(cli->port_file, ek_server_port(server));
    if (!err) {
        bool v6 = strchr(cli->host, ':') != NULL;
        const ek_kv_layout *kv = ek_model_kv_layout(m->model);
        ek_engine_stats stats;
        ek_engine_stats_read(m->engine, &stats);
        char start[96] = "";
        if (cli->kv_start > 0)
            snprintf(start, sizeof start, ", %.0f and %.0f for the first %d positions",
                     ek_budget_token_bytes(kv, EK_FULL_START), ek_budget_token_bytes(kv, EK_SLIDING_START),
                     (int)cli->kv_start);
        printf("evenkeel %s serves %s at http://%s%s%s:%d/v1 (context %d, %d threads, %s; keys and values in %s: %.0f "
               "bytes per token in full layers, %.0f in sliding ones%s, room for %d full contexts)\n",
               EK_VERSION,
               cli->has.model_name ? cli->model_name
               : cli->has.model    ? cli->model
                                   : m->dir,
               v6 ? "[" : "", cli->host, v6 ? "]" : "", ek_server_port(server), ek_engine_ctx(m->engine),
               ek_pool_threads(m->pool), cli->has.isa ? cli->isa : ek_cpu_isa(ek_cpu_detect()), cli->kv,
               ek_budget_token_bytes(kv, EK_FULL), ek_budget_token_bytes(kv, EK_SLIDING), start,
               ek_budget_requests(kv, stats.pages_total, ek_engine_ctx(m->engine)));
        fflush(stdout);
        err = ek_server_run(server);
    }
    ek_server_close(server);
    ek_journal_close(journal);
    return err;
}

int ek_cmd_serve(const ek_cli *cli)
{
    ek_cli_model m;
    if (!strcmp(cli->log, "cache")) ek_log_topics_set(EK_LOG_CACHE);
    if (raise_descriptors((int)cli->max_connections)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_err err = ek_cli_open_engine(&m, cli, (int)cli->max_requests, (int)cli->queue);
    if (err) return ek_cli_refused(cli, err);
    err = serve(cli, &m);
    int status = err ? ek_cli_failed(cli) : 0;
    ek_cli_close_model(&m);
    return status;
}
