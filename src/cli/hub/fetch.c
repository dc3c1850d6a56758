#include "cli/hub/fetch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/frame/hub.h"
#include "cli/frame/terminal.h"
#include "hub/cache.h"
#include "hub/pull.h"

typedef struct screen {
    bool tty, drawn;
    double drawn_at, line_at; /* the times at which the bar and the last line of progress were written */
    double start, start_bytes, speed;
    const char *name;
} screen;

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static bool stop(void *arg)
{
    (void)arg;
    return interrupted;
}

static void clear_bar(screen *s)
{
    if (s->drawn) ek_cli_status_clear(stderr);
    s->drawn = false;
}

static void line(void *arg, const char *text)
{
    screen *s = arg;
    clear_bar(s);
    ek_cli_put(stderr, text);
    fputc('\n', stderr);
    fflush(stderr);
}

static void draw(screen *s, const ek_hub_progress *p, double now)
{
    char done[16], all[16], speed[16], left[16] = "-:--";
    const double fraction = p->bytes > 0 ? p->bytes_done / p->bytes : 1, passed = now - s->start;
    /* the speed of the whole pull, without bytes that were there before */
    s->speed = passed > 0.2 ? (p->bytes_done - s->start_bytes) / passed : 0;
    if (s->speed < 0) s->speed = 0;
    ek_cli_size_text(done, p->bytes_done);
    ek_cli_size_text(all, p->bytes);
    ek_cli_size_text(speed, s->speed);
    if (s->speed > 0) ek_cli_time_text(left, (p->bytes - p->bytes_done) / s->speed);
    if (!s->tty) {
        fprintf(stderr, "%d %%, %s of %s, %s/s, %s left\n", (int)(fraction * 100), done, all, speed, left);
        fflush(stderr);
        return;
    }
    ek_field field[] = {{.rank = 0}, {.rank = 1}, {.rank = 3}, {.rank = 2}, {.rank = 4}};
    snprintf(field[0].text, sizeof field[0].text, "%3d %%", (int)(fraction * 100));
    snprintf(field[1].text, sizeof field[1].text, "%9s of %s", done, all);
    snprintf(field[2].text, sizeof field[2].text, "%9s/s", speed);
    snprintf(field[3].text, sizeof field[3].text, "%7s left", left);
    snprintf(field[4].text, sizeof field[4].text, "file %d of %d", p->n_done < p->n_files ? p->n_done + 1 : p->n_files,
             p->n_files);
    ek_cli_status_bar(stderr, fraction, field, sizeof field / sizeof *field);
    s->drawn = true;
}

static void progress(void *arg, const ek_hub_progress *p, bool end)
{
    screen *s = arg;
    double now = ek_now();
    if (s->start == 0) *s = (screen){.tty = s->tty, .start = now, .line_at = now, .start_bytes = p->bytes_done};
    if (end) {
        clear_bar(s);
    } else if (s->tty && now - s->drawn_at >= 0.1) {
        s->drawn_at = now;
        draw(s, p, now);
    } else if (!s->tty && now - s->line_at >= 10) {
        s->line_at = now;
        draw(s, p, now);
    }
}

/* Asks before gigabytes are downloaded. Without a terminal nobody is asked. */
static bool agree(void *arg, double n, double there, const char *to)
{
    screen *s = arg;
    char all[16], rest[16];
    ek_cli_size_text(all, n);
    ek_cli_size_text(rest, n - there);
    fprintf(stderr, "%s is not here. Fetch %s", s->name, rest);
    if (there > 0) fprintf(stderr, ", the rest of %s,", all);
    fprintf(stderr, " into %s? [y/N] ", to);
    fflush(stderr);
    return ek_cli_yes();
}

/* Appends the path to open. ask: prints size and folder, and waits for a yes; ECANCELLED without one. Ctrl-C ends it
 * with ECANCELLED; received bytes are kept. */
static ek_err cli_fetch(ek_buf *path, int connections, int retries, bool ask, const ek_hub_name *name)
{
    ek_hub_places places;
    ek_buf text = {0};
    screen s = {.tty = isatty(STDERR_FILENO)};
    ek_hub_watch watch = {.line = line, .progress = progress, .stop = stop, .arg = &s};
    if (ask) watch.agree = agree;
    ek_hub_name_text(&text, name);
    s.name = ek_buf_text(&text);
    ek_cli_on_stop(on_signal, 0);
    ek_err err = ek_hub_places_init(&places, getenv);
    ek_hub_opts opts = {.places = &places, .watch = &watch, .connections = connections, .retries = retries};
    if (!err) err = ek_hub_pull(path, &opts, name);
    clear_bar(&s);
    ek_hub_places_fini(&places);
    ek_buf_fini(&text);
    return err;
}

/* Whether the first part of ORG/NAME is a folder here, so that a path was meant. */
static bool is_path(const char *text)
{
    char top[256];
    size_t n = strcspn(text, "/");
    if (!text[n] || n >= sizeof top) return false;
    memcpy(top, text, n);
    top[n] = '\0';
    return !n || access(top, F_OK) == 0;
}

/* Whether --model names a model of the Hub that is not in the cache. */
static bool is_missing(const ek_cli *cli, ek_hub_name *name)
{
    ek_hub_places places;
    ek_buf found = {0};
    if (!cli->has.model || access(cli->model, F_OK) == 0 || is_path(cli->model) || ek_cli_hub_name(name, cli->model))
        return false;
    ek_err err = ek_hub_places_init(&places, getenv);
    if (!err) err = ek_hub_find(&found, places.cache, name);
    ek_hub_places_fini(&places);
    ek_buf_fini(&found);
    return err == EK_ENOTFOUND;
}

ek_err ek_cli_fetch_missing(const ek_cli *cli)
{
    ek_hub_name name;
    ek_buf path = {0};
    const bool can_ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    if ((!cli->yes && !can_ask) || !is_missing(cli, &name)) return EK_OK; /* opening the model reports what is wrong */
    const ek_err err = cli_fetch(&path, 8, 5, !cli->yes, &name);
    ek_buf_fini(&path);
    ek_cli_on_stop(SIG_DFL, 0); /* the commands after this have their own handlers, or none */
    return err;
}

/* The file that remembers a no; false: there is no place for it. */
static bool refusal_file(ek_buf *out)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/') ek_buf_fmt(out, "%s", state);
    else if (home && *home == '/') ek_buf_fmt(out, "%s/.local/state", home);
    else return false;
    ek_buf_str(out, "/evenkeel/bundled");
    return true;
}

static void keep_refusal(const char *file)
{
    static const char why[] = "evenkeel run: the bundled model without a question\n";
    ek_file_make_folders(file);
    (void)ek_file_replace(file, why, sizeof why - 1, 0600);
}

const char *ek_cli_offer(const ek_cli *cli, char **said)
{
    *said = NULL;
    ek_buf file = {0};
    const char *offline = getenv("HF_HUB_OFFLINE"), *chosen = NULL;
    const bool can_ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO) &&
                         !(offline && *offline && strcmp(offline, "0"));
    const bool may = can_ask && refusal_file(&file) && access(ek_buf_text(&file), F_OK) != 0;
    const ek_hub_short *best = may ? ek_cli_recommended(cli) : NULL;
    if (best) {
        ek_cli of = *cli;
        ek_hub_name name;
        of.model = best->name, of.has.model = true;
        const bool missing = is_missing(&of, &name);
        fprintf(stderr,
                "The bundled model is small and knows no facts. %.*s fits here: ", (int)strcspn(best->text, ","),
                best->text);
        if (missing) fprintf(stderr, "fetch %s, about %.1f GB, and run it? [y/N] ", best->name, best->gigabytes);
        else fprintf(stderr, "run %s instead? [y/N] ", best->name);
        fflush(stderr);
        char *answer = ek_cli_answer();
        if (answer && ek_cli_is_yes(answer)) chosen = best->name;
        else if (!answer || ek_cli_is_no(answer)) keep_refusal(file.data);
        else *said = answer, answer = NULL;
        free(answer);
    }
    ek_buf_fini(&file);
    return chosen;
}

/* pull: a model from the Hub into the cache. Prints the path that --model takes. */
int ek_cmd_pull(const ek_cli *cli)
{
    ek_hub_name name;
    ek_buf path = {0};
    if (ek_cli_hub_name(&name, cli->arg)) return ek_cli_wrong(cli, "%s", ek_err_text());
    const ek_err err = cli_fetch(&path, (int)cli->connections, (int)cli->retries, false, &name);
    if (!err) printf("%s\n", ek_buf_text(&path));
    ek_buf_fini(&path);
    return err ? ek_cli_failed(cli) : 0;
}
