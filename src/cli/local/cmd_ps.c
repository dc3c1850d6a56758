/* ps: the servers of this user on this machine. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/frame/cli.h"
#include "cli/frame/hub.h"
#include "cli/local/running.h"
#include "cli/frame/terminal.h"

/* "3 days", "2 h", "14 min", "8 s" */
static void age_text(char out[16], int64_t seconds)
{
    if (seconds >= 2 * 86400) snprintf(out, 16, "%d days", (int)(seconds / 86400) % 100000);
    else if (seconds >= 2 * 3600) snprintf(out, 16, "%d h", (int)(seconds / 3600));
    else if (seconds >= 120) snprintf(out, 16, "%d min", (int)(seconds / 60));
    else snprintf(out, 16, "%d s", seconds > 0 ? (int)seconds : 0);
}

static void count_text(char out[16], int n)
{
    if (n < 0) snprintf(out, 16, "-");
    else snprintf(out, 16, "%d", n);
}

static void print_table(const ek_running *v, int n)
{
    int address = 7, model = 5;
    char url[300], memory[16], age[16], clients[16], running[16];
    for (int i = 0; i < n; i++) {
        ek_running_url(url, sizeof url, &v[i]);
        if ((int)strlen(url) > address) address = (int)strlen(url);
        if ((int)strlen(v[i].model) > model) model = (int)strlen(v[i].model);
    }
    if (!n) {
        printf("no server of yours runs on this machine; `evenkeel serve` starts one\n");
        return;
    }
    printf("%-*s  %-*s  %10s  %8s  %7s  %8s  %-8s  %8s  %s\n", address, "address", model, "model", "memory", "context",
           "clients", "requests", "for", "process", "device");
    for (int i = 0; i < n; i++) {
        ek_running_now now;
        ek_running_ask(&now, &v[i]);
        ek_running_url(url, sizeof url, &v[i]);
        if (now.memory < 0) snprintf(memory, sizeof memory, "-");
        else ek_cli_size_text(memory, now.memory);
        age_text(age, ek_unix_time() - v[i].started);
        count_text(clients, now.connections);
        count_text(running, now.running < 0 ? -1 : now.running + now.waiting);
        printf("%-*s  ", address, url);
        ek_cli_put(stdout, v[i].model);
        printf("%*s  %10s  %8d  %7s  %8s  %-8s  %8d  ", model - (int)strlen(v[i].model), "", memory, v[i].ctx, clients,
               running, age, v[i].pid);
        ek_cli_put(stdout, v[i].device);
        printf("\n");
    }
}

static void print_json(const ek_running *v, int n)
{
    json_t *list = json_array();
    char url[300];
    for (int i = 0; i < n; i++) {
        ek_running_now now;
        ek_running_ask(&now, &v[i]);
        ek_running_url(url, sizeof url, &v[i]);
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:s,s:i,s:f,s:i,s:i,s:i,s:i,s:I}", "url", url, "model", v[i].model,
                                        "device", v[i].device, "pid", v[i].pid, "memory_bytes", now.memory, "context",
                                        v[i].ctx, "clients", now.connections, "running", now.running, "waiting",
                                        now.waiting, "started", (json_int_t)v[i].started));
    }
    json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    printf("\n");
    json_decref(list);
}

int ek_cmd_ps(const ek_cli *cli)
{
    int n;
    if (cli->ready) {
        /* By its port, because a server in a container may have no folder for its file. */
        const ek_running r = {.port = (int)cli->port};
        return ek_running_ready(&r) ? 0 : 1;
    }
    ek_running *v = ek_running_list(&n);
    if (cli->json) print_json(v, n);
    else print_table(v, n);
    free(v);
    return 0;
}
