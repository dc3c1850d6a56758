#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/notify.h"
#include "base/machine/cpu.h"
#include "base/log.h"
#include "base/machine/pool.h"
#include "cli/hub/fetch.h"
#include "cli/frame/hub.h"
#include "cli/local/running.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "cli/serve/serve_replies.h"
#include "engine/budget.h"
#include "serve/events/events.h"
#include "hub/name.h"
#include "media/pdf.h"
#include "model/weights/digest.h"
#include "receipts/key.h"
#include "serve/api/model_card.h"
#include "serve/http/access.h"
#include "serve/journal/journal.h"
#include "serve/server.h"

/* Each connection needs a descriptor, and the soft limit is often 1024. */
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

/* Writes the file in one step, so that a program that waits for it never sees half a number. */
static ek_err write_port(const char *path, int port)
{
    char text[16];
    const int n = snprintf(text, sizeof text, "%d\n", port);
    return ek_file_replace(path, text, (size_t)n, 0644);
}

static ek_err open_journal(const ek_cli *cli, ek_opened *m, ek_journal **out)
{
    const char *digest;
    if (!cli->has.journal) return EK_OK;
    EK_TRY(ek_opened_digest(&digest, m));
    ek_journal_opts opts = {.path = cli->journal,
                            .model = digest,
                            .numerics = ek_model_numerics_id(m->model),
                            .prompts = cli->journal_prompts};
    return ek_journal_open(out, &opts);
}

/* Warns if others may read the file, because its keys let them use the server. */
static void check_key_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || !(st.st_mode & 0077)) return;
    ek_log(EK_LOG_WARN, "%s has mode %04o, so that %s can %s its keys; chmod 600 it", path,
           (unsigned)st.st_mode & 07777, st.st_mode & 0007 ? "everybody on this machine" : "its group",
           st.st_mode & 0022 ? "change" : "read");
}

/* Printed when the server can be used: model, device and address, and settings that would make it faster. */
static void say_start(const ek_cli *cli, const ek_opened *m, const char *name, int port)
{
    const bool v6 = strchr(cli->host, ':') != NULL;
    char where[640], address[300];
    ek_cli_where(where, sizeof where, cli, m);
    snprintf(address, sizeof address, "http://%s%s%s:%d", v6 ? "[" : "", cli->host, v6 ? "]" : "", port);
    printf("evenkeel %s serves ", EK_VERSION);
    ek_cli_put(stdout, name);
    if (cli->no_engine) printf(" from stored replies alone, at %s/v1; it reads no weights\n", address);
    else printf(" %s, keys and values in %s, at %s/v1; its page for people is %s/\n", where, cli->kv, address, address);
    if (ek_opened_gpu(m) && !cli->has.max_requests)
        printf("up to %d requests run at once (--max-requests), by the device's memory for keys and values\n",
               ek_engine_max_requests(m->engine));
    if (ek_opened_gpu(m) && !cli->has.chunk && cli->max_gap > 0)
        printf("a step reads up to %d prompt tokens (--chunk), and beside replies what takes %d ms (--max-gap)\n",
               ek_engine_chunk(m->engine), (int)cli->max_gap);
    fflush(stdout);
}

/* What --verbose adds. */
static void say_more(const ek_cli *cli, const ek_opened *m)
{
    const ek_kv_layout *kv = ek_model_kv_layout(m->model);
    ek_engine_stats stats;
    char start[96] = "";
    ek_engine_stats_read(m->engine, &stats);
    if (cli->kv_start > 0)
        snprintf(start, sizeof start, ", %.0f and %.0f for the first %d positions",
                 ek_budget_token_bytes(kv, EK_FULL_START), ek_budget_token_bytes(kv, EK_SLIDING_START),
                 (int)cli->kv_start);
    ek_log(EK_LOG_DEBUG, "context %d, %d threads, %s, %s", ek_engine_ctx(m->engine), ek_pool_threads(m->pool),
           cli->has.isa ? cli->isa : ek_cpu_isa(ek_cpu_detect()), m->path);
    ek_log(
        EK_LOG_DEBUG,
        "keys and values in %s: %.0f bytes per token in full layers, %.0f in sliding ones%s; room for %d full contexts",
        cli->kv, ek_budget_token_bytes(kv, EK_FULL), ek_budget_token_bytes(kv, EK_SLIDING), start,
        ek_budget_requests(kv, stats.pages_total, ek_engine_ctx(m->engine)));
}

/* For ps and stop; the server also works without them. */
static void note_running(const ek_cli *cli, const ek_opened *m, const char *name, int port)
{
    ek_running r = {.port = port, .ctx = ek_engine_ctx(m->engine), .keys = cli->has.api_key || cli->has.api_key_file};
    snprintf(r.host, sizeof r.host, "%s", cli->host);
    snprintf(r.model, sizeof r.model, "%s", name);
    snprintf(r.device, sizeof r.device, "%s", ek_opened_device(m));
    if (ek_running_write(&r)) ek_log(EK_LOG_DEBUG, "`evenkeel ps` will not list this server: %s", ek_err_text());
}

static size_t max_body(const ek_cli *cli, const ek_chat_media *media)
{
    if (cli->has.max_body) return (size_t)cli->max_body;
    return (media->image || media->audio ? 128u : 32u) << 20;
}

/* Values of options that are read before anything is fetched, bound or loaded, so that errors are reported at once. */
typedef struct early {
    ek_events_address events, replay;
    const char *kv_name; /* the name in --kv-events; NULL: none */
    bool kv_arrays;
    char kv_events[512]; /* their text */
    ek_fetch_from urls;
} early;

/* The address, and after commas name=HOST:PORT and arrays. */
static ek_err read_events_words(early *out, const ek_cli *cli)
{
    if (strlen(cli->kv_events) >= sizeof out->kv_events)
        return ek_fail(EK_EINVAL, "--kv-events %.60s...: longer than %zu bytes", cli->kv_events, sizeof out->kv_events);
    snprintf(out->kv_events, sizeof out->kv_events, "%s", cli->kv_events);
    char *at = out->kv_events, *word;
    strsep(&at, ",");
    while ((word = strsep(&at, ",")) != NULL) {
        if (!strcmp(word, "arrays")) out->kv_arrays = true;
        else if (strncmp(word, "name=", 5))
            return ek_fail(EK_EINVAL, "--kv-events ...,%.80s: name=HOST:PORT or arrays is needed", word);
        else if (!word[5] || strchr(word, '@'))
            return ek_fail(EK_EINVAL, "--kv-events ...,%.80s: name=HOST:PORT is needed, without @", word);
        else out->kv_name = word + 5;
    }
    return EK_OK;
}

static ek_err read_events(early *out, const ek_cli *cli)
{
    if (cli->has.kv_replay && !cli->has.kv_events)
        return ek_fail(EK_EINVAL, "--kv-replay repeats what --kv-events publishes");
    if (!cli->has.kv_events) return EK_OK;
    if (!ek_events_built()) return ek_fail(EK_EUNSUPPORTED, "--kv-events: this program was built without msgpack-c");
    if (cli->has.cache_bytes && cli->cache_bytes == 0)
        return ek_fail(EK_EINVAL, "--kv-events tells of pages that --cache-bytes 0 does not keep");
    EK_TRY(read_events_words(out, cli));
    EK_TRY(ek_events_address_parse(&out->events, "--kv-events", out->kv_events, false));
    return cli->has.kv_replay ? ek_events_address_parse(&out->replay, "--kv-replay", cli->kv_replay, true) : EK_OK;
}

static ek_err check_keys(const ek_cli *cli)
{
    ek_keys *keys;
    EK_TRY(
        ek_keys_open(&keys, cli->has.api_key ? cli->api_key : NULL, cli->has.api_key_file ? cli->api_key_file : NULL));
    ek_keys_close(keys);
    return EK_OK;
}

/* Checks the allowed pages and hosts. One that can match nothing would otherwise have no effect, without a message. */
static ek_err check_browsers(const ek_cli *cli)
{
    if (ek_cors_check(cli->cors_origins)) return ek_fail_in(EK_EINVAL, "--cors-origins");
    if (cli->has.allowed_hosts && ek_origins_check_hosts(cli->allowed_hosts))
        return ek_fail_in(EK_EINVAL, "--allowed-hosts");
    return EK_OK;
}

static ek_err check_names(const ek_cli *cli)
{
    if (cli->has.served_name && ek_served_check(cli->served_name)) return ek_fail_in(EK_EINVAL, "--served-name");
    return EK_OK;
}

/* Further names of the model: its short name, its repository, and the repository without the organisation. */
static void put_aliases(ek_buf *out, const ek_cli *cli, const char *name)
{
    const char *given[] = {name, cli->has.model ? cli->model : NULL};
    for (int i = 0; i < 2; i++) {
        if (!given[i]) continue;
        const ek_hub_short *row = ek_hub_short_find(given[i]);
        const char *names[] = {given[i], row ? row->model : NULL};
        for (int k = 0; k < 2; k++) {
            if (!names[k]) continue;
            const char *slash = strrchr(names[k], '/');
            ek_buf_fmt(out, "%s%s", out->len ? "," : "", names[k]);
            if (slash && slash[1]) ek_buf_fmt(out, ",%s", slash + 1);
        }
    }
}

/* Reports a key that cannot sign before the model is loaded. */
static ek_err check_receipts(const ek_cli *cli)
{
    ek_signing_key *key;
    const char *needs = cli->has.receipts_log        ? "--receipts-log"
                        : cli->has.receipts_openings ? "--receipts-openings"
                        : cli->receipts_hide_lengths ? "--receipts-hide-lengths"
                                                     : NULL;
    if (needs && !cli->has.receipts) return ek_fail(EK_EINVAL, "%s needs --receipts", needs);
    if (!cli->has.receipts) return EK_OK;
    const ek_err err = ek_signing_key_open(&key, cli->receipts);
    ek_signing_key_close(key);
    return err ? ek_fail_in(err, "--receipts") : EK_OK;
}

/* Lines of one file would damage another, and a port number would replace a key. */
static ek_err check_files(const ek_cli *cli)
{
    const struct {
        const char *option, *path; /* NULL: not given */
    } file[] = {{"--receipts", cli->has.receipts ? cli->receipts : NULL},
                {"--receipts-log", cli->has.receipts_log ? cli->receipts_log : NULL},
                {"--receipts-openings", cli->has.receipts_openings ? cli->receipts_openings : NULL},
                {"--journal", cli->has.journal ? cli->journal : NULL},
                {"--port-file", cli->has.port_file ? cli->port_file : NULL}};
    enum { FILES = sizeof file / sizeof *file };
    for (int i = 0; i < FILES; i++)
        for (int k = i + 1; k < FILES; k++)
            if (file[i].path && file[k].path && ek_is_same_place(file[i].path, file[k].path))
                return ek_fail(EK_EINVAL, "%s and %s are one file, %s", file[i].option, file[k].option, file[k].path);
    return EK_OK;
}

static ek_err read_early(early *out, const ek_cli *cli)
{
    ek_open_paths paths;
    ek_open_opts o;
    if (cli->store_age > 0 && !cli->has.store) return ek_fail(EK_EINVAL, "--store-age is for what --store keeps");
    if (strcmp(cli->role, "both") && !cli->has.cache_shared)
        return ek_fail(EK_EINVAL, "--role %s needs --cache-shared: pages are handed over there", cli->role);
    EK_TRY(ek_open_paths_parse(&paths, cli->open_paths));
    EK_TRY(check_browsers(cli));
    EK_TRY(check_names(cli));
    EK_TRY(ek_serve_check_replies(cli));
    EK_TRY(ek_fetch_parse(&out->urls, cli->media_urls));
    EK_TRY(read_events(out, cli));
    EK_TRY(check_receipts(cli));
    EK_TRY(check_files(cli));
    EK_TRY(ek_cli_open_opts(&o, cli));
    EK_TRY(ek_open_check(&o));
    return check_keys(cli);
}

static ek_err digest(void *arg, char out[EK_MODEL_DIGEST])
{
    return ek_open_digest(out, ((const ek_opened *)arg)->path, NULL); /* the pool computes replies */
}

/* Programs that read files in requests; NULL: not wanted. */
typedef struct readers {
    ek_ffmpeg *ffmpeg;
    char *pdftotext, *pdftoppm; /* owned paths */
} readers;

/* bound: is taken over by the server, or closed. */
static ek_err serve(const ek_cli *cli, const early *said, ek_opened *m, ek_bound *bound, const readers *files)
{
    ek_journal *journal = NULL;
    ek_replies *replies = NULL;
    char weights[EK_MODEL_DIGEST] = "", tokenizer[EK_MODEL_DIGEST] = "";
    ek_err err = open_journal(cli, m, &journal);
    if (!err && cli->has.receipts)
        err = ek_model_sha256(weights, tokenizer, m->path, m->towers ? ek_towers_file(m->towers) : NULL, m->pool);
    if (!err) err = ek_serve_open_replies(&replies, cli, m);
    if (err) {
        ek_journal_close(journal);
        ek_bound_close(bound);
        return err;
    }
    char *numerics = cli->no_engine ? ek_serve_numerics(replies) : NULL;
    char *name = ek_cli_model_name(cli, m->path);
    ek_buf aliases = {0};
    put_aliases(&aliases, cli, name);
    ek_server_opts opts = {
        .http = {.host = cli->host,
                 .port = (int)cli->port,
                 .bound = bound,
                 .path_prefix = cli->has.path_prefix ? cli->path_prefix : NULL,
                 .max_connections = (int)cli->max_connections,
                 .max_body = max_body(cli, &m->chat.media),
                 .max_unsent = (size_t)cli->stream_buffer,
                 .min_body_rate = (double)cli->body_rate,
                 .body_timeout = (double)cli->body_timeout,
                 .idle_timeout = (double)cli->idle_timeout},
        .limits = {.max_json_values = (int)cli->max_json_values,
                   .max_messages = (int)cli->max_messages,
                   .max_images = (int)cli->max_images,
                   .request_memory = cli->has.request_memory ? (size_t)cli->request_memory : 0,
                   .prepare_threads = (int)cli->prepare_threads,
                   .prepare_queue = (int)cli->prepare_queue,
                   .request_timeout = (double)cli->request_timeout,
                   .drain_timeout = (double)cli->drain_timeout,
                   .stall_timeout = (double)cli->stall_timeout},
        .api_keys = cli->has.api_key ? cli->api_key : NULL,
        .api_key_file = cli->has.api_key_file ? cli->api_key_file : NULL,
        .open_paths = cli->open_paths,
        .cors_origins = cli->cors_origins,
        .allowed_hosts = cli->has.allowed_hosts ? cli->allowed_hosts : NULL,
        .whole_calls = cli->whole_calls,
        .shares = cli->has.cache_shared,
        .prefill = !strcmp(cli->role, "prefill"),
        .decode = !strcmp(cli->role, "decode"),
        .kv_events = cli->has.kv_events ? &said->events : NULL,
        .kv_replay = cli->has.kv_replay ? &said->replay : NULL,
        .kv_arrays = said->kv_arrays,
        .kv_name = said->kv_name,
        .media_urls = said->urls,
        .ffmpeg = files->ffmpeg,
        .pdftotext = files->pdftotext,
        .pdftoppm = files->pdftoppm,
        .model = m->model,
        .digest = cli->no_engine ? ek_serve_digest : digest, /* the files of the digest may be missing */
        .digest_arg = cli->no_engine ? (void *)replies : m,
        .chat = &m->chat,
        .model_dir = m->path,
        .on_device = ek_opened_gpu(m) != NULL,
        .model_name = cli->has.model_name ? cli->model_name : name,
        .served_names = cli->has.served_name ? cli->served_name : NULL,
        .aliases = ek_buf_text(&aliases),
        .strict_model = cli->strict_model,
        .stop_loops = cli->stop_loops,
        .journal = journal,
        .replies = replies,
        .store_dir = cli->has.store ? cli->store : NULL,
        .store_age = (double)cli->store_age,
        .receipt_key = cli->has.receipts ? cli->receipts : NULL,
        .receipt_log = cli->has.receipts_log ? cli->receipts_log : NULL,
        .receipt_openings = cli->has.receipts_openings ? cli->receipts_openings : NULL,
        .receipts_hide_lengths = cli->receipts_hide_lengths,
        .weights_sha256 = weights,
        .tokenizer_sha256 = tokenizer,
        .no_engine = cli->no_engine,
        .numerics = numerics,
    };
    ek_server *server;
    err = ek_server_open(&server, m->engine, &opts);
    ek_buf_fini(&aliases);
    free(numerics);
    if (err) {
        free(name);
        ek_bound_close(bound);
        ek_journal_close(journal);
        ek_replies_close(replies);
        return err;
    }
    if (cli->has.port_file) err = write_port(cli->port_file, ek_server_port(server));
    if (!err) {
        note_running(cli, m, opts.model_name, ek_server_port(server)); /* before the line, whose reader may call `ps` */
        say_start(cli, m, opts.model_name, ek_server_port(server));
        say_more(cli, m);
        err = ek_server_run(server);
        ek_running_remove();
    }
    free(name);
    ek_server_close(server);
    ek_journal_close(journal);
    ek_replies_close(replies);
    return err;
}

static ek_err open_ffmpeg(ek_ffmpeg **out, const ek_cli *cli)
{
    EK_TRY(ek_cli_ffmpeg(out, cli));
    if (!*out) return EK_OK;
    ek_log(EK_LOG_DEBUG, "videos are read with %s", ek_ffmpeg_text(*out));
    if (!ek_ffmpeg_has_landlock())
        ek_log(EK_LOG_WARN, "this kernel has no Landlock: an ffmpeg that a video takes over could read, and show its "
                            "sender, what this server's user can read, its environment too");
    return EK_OK;
}

static void close_readers(readers *r)
{
    ek_ffmpeg_close(r->ffmpeg);
    free(r->pdftotext);
    free(r->pdftoppm);
}

static ek_err open_readers(readers *r, const ek_cli *cli)
{
    ek_err err = open_ffmpeg(&r->ffmpeg, cli);
    if (err) return err;
    if (cli->pdftotext) err = ek_pdftotext_find(&r->pdftotext, ek_cli_program(cli->pdftotext));
    if (err) return ek_fail_in(err, "--pdftotext");
    if (cli->pdftoppm) err = ek_pdftoppm_find(&r->pdftoppm, ek_cli_program(cli->pdftoppm));
    if (err) return ek_fail_in(err, "--pdftoppm");
    if (r->pdftotext) ek_log(EK_LOG_DEBUG, "PDFs are read with %s", r->pdftotext);
    if (r->pdftoppm) ek_log(EK_LOG_DEBUG, "pages of PDFs are drawn with %s", r->pdftoppm);
    return EK_OK;
}

static ek_err open_without_weights(ek_opened *m, const ek_cli *cli)
{
    ek_open_opts o;
    EK_TRY(ek_cli_open_opts(&o, cli));
    return ek_open_without_weights(m, &o);
}

/* A SIGHUP while the model loads waits until the server reads its files again; it would end the program. how:
 * SIG_BLOCK, also for threads that begin from now on, or SIG_UNBLOCK. */
static void hangups(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(how, &set, NULL);
}

enum { CLOSING = 4 }; /* the model's seconds, rounded up to 5 */

int ek_cmd_serve(const ek_cli *cli)
{
    ek_opened m;
    readers files = {0};
    hangups(SIG_BLOCK);
    ek_log_start();
    ek_notify_open(getenv("NOTIFY_SOCKET"), getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"));
    if (cli->verbose && !strcmp(cli->verbose, "cache")) ek_log_topics_set(EK_LOG_CACHE);
    if (raise_descriptors((int)cli->max_connections)) return ek_cli_wrong(cli, "%s", ek_err_text());
    early said = {0};
    ek_err err = read_early(&said, cli);
    if (err == EK_EINVAL || err == EK_EUNSUPPORTED) return ek_cli_wrong(cli, "%s", ek_err_text());
    hangups(SIG_UNBLOCK); /* ends a fetch */
    if (err || ek_cli_fetch_missing(cli)) return ek_cli_failed(cli);
    /* The port comes first: a port in use is known at once, but loading a large model takes minutes. */
    ek_bound bound;
    if (ek_bound_open(&bound, cli->host, (int)cli->port)) return ek_cli_failed(cli);
    if (cli->has.api_key_file) check_key_file(cli->api_key_file);
    hangups(SIG_BLOCK);
    ek_notify("STATUS=loads the model\n");
    err = open_readers(&files, cli);
    if (!err && cli->no_engine) err = open_without_weights(&m, cli);
    else if (!err) err = ek_cli_open_engine(&m, cli, true, (int)cli->max_requests, (int)cli->queue);
    if (err) {
        close_readers(&files);
        ek_bound_close(&bound);
        return ek_cli_refused(cli, err);
    }
    err = serve(cli, &said, &m, &bound, &files);
    int status = err ? ek_cli_failed(cli) : 0;
    ek_last_signal_within(CLOSING); /* a device or a disk may also hang here */
    ek_opened_close(&m);
    close_readers(&files);
    ek_log_stop(2);
    return status;
}
