#include "serve/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

enum { MAX_PENDING = 64 << 20 };

/* A line that waits for the file. */
typedef struct item {
    struct item *next;
    size_t bytes;
    ek_journal_line line; /* without model and numerics, which are the journal's */
} item;

struct ek_journal {
    char *path, *model, *numerics;
    ek_record_mode mode;
    size_t max_pending;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;

    /* Under the lock. */
    item *first, **last;
    size_t pending;
    int64_t dropped;    /* lines dropped since the writer last looked */
    int64_t total_lost; /* for whatever reason */
    bool closing;

    /* The writer's. */
    int fd;        /* -1: not open */
    bool mid_line; /* the file does not end with a whole line */
    bool failing;
    int64_t lost;       /* lines since the last {"lost":N} */
    int64_t unreported; /* dropped lines that the log does not report yet */
    double reported;    /* ek_now() */
};

/* --- the file --- */

/* O_NONBLOCK: a FIFO without a reader is an error, not a wait. */
static ek_err open_file(ek_journal *j)
{
    j->fd = open(j->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (j->fd < 0) return ek_fail(EK_EIO, "journal %s: %s", j->path, strerror(errno));
    char last = '\n';
    int r = open(j->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    if (r >= 0 && fstat(r, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
        pread(r, &last, 1, st.st_size - 1) != 1)
        last = '\n';
    if (r >= 0) close(r);
    j->mid_line = last != '\n'; /* an earlier process was killed while it wrote */
    return EK_OK;
}

static void close_file(ek_journal *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
}

/* Whether the name still belongs to the open file. */
static bool is_current(const ek_journal *j)
{
    struct stat a, b;
    return j->fd >= 0 && fstat(j->fd, &a) == 0 && stat(j->path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static ek_err write_all(ek_journal *j, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t took = write(j->fd, p, n);
        if (took < 0 && errno == EINTR) continue;
        if (took <= 0) return ek_fail(EK_EIO, "journal %s: %s", j->path, strerror(took < 0 ? errno : EIO));
        p += took;
        n -= (size_t)took;
        j->mid_line = p[-1] != '\n';
    }
    return EK_OK;
}

static ek_err write_batch(ek_journal *j, const ek_buf *text)
{
    if (!is_current(j)) {
        close_file(j);
        EK_TRY(open_file(j));
    }
    ek_buf head = {0};
    ek_journal_line lost = {.lost = j->lost};
    if (j->mid_line) ek_buf_char(&head, '\n');
    if (j->lost > 0) ek_journal_line_write(&head, &lost);
    ek_err err = write_all(j, ek_buf_text(&head), head.len);
    ek_buf_fini(&head);
    if (err) return err;
    j->lost = 0;
    return write_all(j, ek_buf_text(text), text->len);
}

/* Logs the first failure and the end of failing, not every line. */
static void report(ek_journal *j, ek_err err, int64_t lost)
{
    if (err && !j->failing) ek_log(EK_LOG_WARN, "%s; lines are lost until it can be written", ek_err_text());
    if (!err && j->failing)
        ek_log(EK_LOG_INFO, "journal %s: written again, %lld lines were lost", j->path, (long long)lost);
    j->failing = err != EK_OK;
}

/* --- the writer's thread --- */

static void free_item(item *i)
{
    free((void *)(uintptr_t)i->line.id);
    free((void *)(uintptr_t)i->line.trace);
    free((void *)(uintptr_t)i->line.api);
    ek_record_fini(&i->line.record);
    free(i);
}

static int64_t format(ek_journal *j, item *i, ek_buf *text)
{
    int64_t n = 0;
    for (item *next; i; i = next, n++) {
        next = i->next;
        i->line.model = j->model;
        i->line.numerics = j->numerics;
        ek_journal_line_write(text, &i->line);
        free_item(i);
    }
    return n;
}

static void write_items(ek_journal *j, item *first)
{
    ek_buf text = {0};
    int64_t n = format(j, first, &text), lost = j->lost;
    ek_err err = write_batch(j, &text);
    if (err) {
        j->lost += n;
        pthread_mutex_lock(&j->lock);
        j->total_lost += n;
        pthread_mutex_unlock(&j->lock);
    }
    report(j, err, lost);
    ek_buf_fini(&text);
}

/* Logs at most one line per second. */
static void tell_dropped(ek_journal *j, int64_t dropped, bool now)
{
    j->unreported += dropped;
    if (j->unreported == 0 || (!now && ek_now() - j->reported < 1)) return;
    ek_log(EK_LOG_WARN, "event=journal_lost lines=%lld: more of them wait than %zu bytes", (long long)j->unreported,
           j->max_pending);
    j->unreported = 0;
    j->reported = ek_now();
}

static void *run(void *arg)
{
    ek_journal *j = arg;
    pthread_mutex_lock(&j->lock);
    while (j->first || !j->closing) {
        if (!j->first) {
            pthread_cond_wait(&j->news, &j->lock);
            continue;
        }
        item *first = j->first;
        j->first = NULL;
        j->last = &j->first;
        int64_t dropped = j->dropped;
        j->lost += dropped;
        j->dropped = 0;
        size_t bytes = j->pending;
        pthread_mutex_unlock(&j->lock);
        tell_dropped(j, dropped, false);
        write_items(j, first);
        pthread_mutex_lock(&j->lock);
        j->pending -= bytes; /* only now, because a line takes memory while it is written */
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* --- open and close --- */

static void free_journal(ek_journal *j)
{
    close_file(j);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->news);
    free(j->path);
    free(j->model);
    free(j->numerics);
    free(j);
}

ek_err ek_journal_open(ek_journal **out, const ek_journal_opts *opts)
{
    ek_journal *j = ek_alloc(sizeof *j);
    j->path = ek_strdup(opts->path);
    j->model = ek_strdup(opts->model);
    j->numerics = ek_strdup(opts->numerics);
    j->mode = opts->prompts ? EK_RECORD_TOKENS : EK_RECORD_FACTS;
    j->max_pending = opts->max_pending ? opts->max_pending : MAX_PENDING;
    j->last = &j->first;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->news, NULL);
    ek_err err = open_file(j);
    if (!err && pthread_create(&j->thread, NULL, run, j))
        err = ek_fail(EK_ENOMEM, "journal %s: no thread can be started", j->path);
    if (!err) {
        *out = j;
        return EK_OK;
    }
    free_journal(j);
    return err;
}

void ek_journal_close(ek_journal *j)
{
    if (!j) return;
    pthread_mutex_lock(&j->lock);
    j->closing = true;
    pthread_cond_signal(&j->news);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    tell_dropped(j, j->dropped, true);
    int64_t lost = j->lost + j->dropped;
    if (lost > 0) ek_log(EK_LOG_WARN, "journal %s: %lld lines were lost", j->path, (long long)lost);
    free_journal(j);
}

/* --- records from the server --- */

ek_record_mode ek_journal_mode(const ek_journal *j)
{
    return j ? j->mode : EK_RECORD_NONE;
}

static const char *finish_of(const ek_turn_result *r)
{
    static const char *const words[] = {
        [EK_END_NONE] = "none",           [EK_END_STOP] = "stop",
        [EK_END_CALLS] = "tool_calls",    [EK_END_STOP_STRING] = "stop_string",
        [EK_END_MAX_TOKENS] = "length",   [EK_END_CONTEXT] = "context",
        [EK_END_CANCELLED] = "cancelled", [EK_END_ERROR] = "error",
        [EK_END_UNCACHED] = "uncached",   [EK_END_LOOP] = "loop",
    };
    return words[r->end];
}

/* Lines that are written together or not at all. */
typedef struct batch {
    item *first, **last;
    size_t bytes;
    int n;
} batch;

static void add_item(batch *b, const ek_journal_line *line)
{
    const ek_record *r = &line->record;
    item *i = ek_alloc(sizeof *i);
    i->line = *line;
    i->line.time = ek_unix_now();
    i->line.id = ek_strdup(line->id);
    i->line.api = ek_strdup(line->api);
    i->line.trace = line->trace ? ek_strdup(line->trace) : NULL;
    /* a token takes up to 8 bytes in the line and 4 in the record */
    b->bytes += 1024 + 12 * (r->prompt.len + r->reply.len) + 32 * (size_t)r->sampling.n_bias;
    if (r->form) b->bytes += 2 * strlen(r->form);
    if (!b->last) b->last = &b->first;
    *b->last = i;
    b->last = &i->next;
    b->n++;
}

/* Appends the lines, unless too many bytes wait; if nothing waits, any line is taken. */
static void enqueue(ek_journal *j, const batch *b)
{
    if (b->n == 0) return;
    pthread_mutex_lock(&j->lock);
    bool room = j->pending == 0 || j->pending + b->bytes <= j->max_pending;
    if (room) {
        j->pending += b->bytes;
        *j->last = b->first;
        j->last = b->last;
        pthread_cond_signal(&j->news);
    } else {
        j->dropped += b->n;
        j->total_lost += b->n;
    }
    pthread_mutex_unlock(&j->lock);
    for (item *i = room ? NULL : b->first, *next; i; i = next) {
        next = i->next;
        free_item(i);
    }
}

void ek_journal_add(ek_journal *j, const ek_journal_line *line)
{
    batch b = {0};
    add_item(&b, line);
    enqueue(j, &b);
}

int64_t ek_journal_lost(ek_journal *j)
{
    if (!j) return 0;
    pthread_mutex_lock(&j->lock);
    int64_t n = j->total_lost;
    pthread_mutex_unlock(&j->lock);
    return n;
}

void ek_journal_turns(ek_journal *j, const char *id, const char *api, const char *trace, ek_turn *const *turns, int n)
{
    batch b = {0};
    for (int i = 0; j && i < n; i++) {
        const ek_turn_result *r = ek_turn_result_of(turns[i]);
        ek_journal_line line = {.id = id,
                                .api = api,
                                .trace = *trace ? trace : NULL,
                                .finish = finish_of(r),
                                .choice = i,
                                .n_cached = r->n_cached,
                                .n_tokens = r->n_tokens,
                                .digest = r->digest,
                                .digest_version = EK_DIGEST_VERSION,
                                .record = ek_turn_take_record(turns[i])};
        if (line.record.n_prompt > 0) add_item(&b, &line);
        else ek_record_fini(&line.record); /* never submitted */
    }
    if (j) enqueue(j, &b);
}
