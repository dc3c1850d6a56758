/* stop: ends servers of this user on this machine, like SIGTERM: running requests are finished first. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/frame/cli.h"
#include "cli/local/running.h"
#include "cli/frame/terminal.h"

static bool named(const ek_running *r, const char *word)
{
    char port[16], pid[16];
    snprintf(port, sizeof port, "%d", r->port);
    snprintf(pid, sizeof pid, "%d", r->pid);
    return !strcmp(word, port) || !strcmp(word, pid) || !strcmp(word, r->model);
}

/* "8080 (pocket), 8081 (e2b)" */
static void list_all(ek_buf *out, const ek_running *v, int n)
{
    for (int i = 0; i < n; i++) ek_buf_fmt(out, "%s%d (%s)", i ? ", " : "", v[i].port, v[i].model);
}

static void pause_short(void)
{
    struct timespec step = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&step, NULL);
}

/* Waits until the process is gone. The server first gives running requests the time of its --drain-timeout, then
 * cancels them. */
static ek_err end(const ek_running *r)
{
    char url[300];
    ek_running_url(url, sizeof url, r);
    if (kill(r->pid, SIGTERM)) return ek_fail(EK_EIO, "process %d: %s", r->pid, strerror(errno));
    double begun = ek_now();
    bool reported = false;
    while (ek_running_alive(r)) {
        if (!reported && ek_now() - begun > 1) {
            reported = true;
            fprintf(stderr, "%s finishes its requests; Ctrl-C leaves it to itself\n", url);
        }
        pause_short();
    }
    printf("stopped ");
    ek_cli_put(stdout, r->model);
    printf(" at %s\n", url);
    fflush(stdout);
    return EK_OK;
}

static int stop(const ek_cli *cli, const ek_running *v, int n)
{
    int which = -1, fit = 0, failed = 0;
    ek_buf all = {0};
    for (int i = 0; i < n; i++)
        if (!cli->arg || named(&v[i], cli->arg)) which = i, fit++;
    list_all(&all, v, n);
    int status = 0;
    if (!n) {
        ek_fail(EK_ENOTFOUND, "no server of yours runs on this machine");
        status = ek_cli_failed(cli);
    } else if (cli->arg && !fit) {
        ek_fail(EK_ENOTFOUND, "no server of yours has the port or the model %.80s; there are %s", cli->arg,
                ek_buf_text(&all));
        status = ek_cli_failed(cli);
    } else if (fit > 1 && !cli->all) {
        status = ek_cli_wrong(cli, "%d servers run, name one by its port, or all with --all: %s", fit,
                              ek_buf_text(&all));
    } else {
        for (int i = 0; i < n; i++)
            if ((cli->all && (!cli->arg || named(&v[i], cli->arg))) || i == which) failed += end(&v[i]) != EK_OK;
        if (failed) status = ek_cli_failed(cli);
    }
    ek_buf_fini(&all);
    return status;
}

int ek_cmd_stop(const ek_cli *cli)
{
    int n;
    ek_running *v = ek_running_list(&n);
    int status = stop(cli, v, n);
    free(v);
    return status;
}
