/* From lines to results: only a window of lines is in progress, whatever their total number. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "batch/batch.h"

enum { WINDOW_BYTES = 256 << 20, AHEAD = 2 }; /* bytes of lines in progress; lines in progress per computed line */
static const double TURN = 0.1;               /* seconds between two checks of progress and stop */

typedef struct run {
    const ek_batch_opts *o;
    const ek_batch_input *in;
    ek_batch_part *part;
    ek_batch_runner *runner;
    const ek_batch_watch *watch;
    size_t n, next, before; /* lines of the shard; the next one; lines there at the start */
    size_t active, bytes;   /* on their way */
} run;

/* The index in the input of the shard's line i. */
static size_t index_of(const run *r, size_t i)
{
    return ek_batch_shard_line(i, r->o->shard, r->o->shards);
}

static ek_err put(run *r, size_t i, const ek_batch_task *t)
{
    ek_buf line = {0};
    const bool error = ek_batch_put(&line, &t->line, t->id, t->status, &t->body);
    const ek_err err = ek_batch_part_add(r->part, i, &line, error);
    ek_buf_fini(&line);
    return err;
}

/* Begins line i of the shard. A line that is not a request gets its result at once. */
static ek_err begin(run *r, size_t i)
{
    ek_batch_task *t = ek_alloc(sizeof *t);
    t->index = i;
    ek_err err = ek_batch_input_request(r->in, index_of(r, i), &t->text, &t->line, t->id);
    if (!err && t->line.dialect) {
        t->seed = ek_batch_line_seed(r->o->seed, &t->line);
        r->active++;
        r->bytes += t->text.len;
        r->runner->start(r->runner, t);
        return EK_OK;
    }
    if (!err) err = put(r, i, t);
    ek_batch_task_free(t);
    return err;
}

/* Begins only some lines at a time. Otherwise a million lines that are not requests would delay progress and stop. */
static ek_err fill(run *r)
{
    const size_t width = (size_t)r->runner->width * AHEAD;
    const double until = ek_now() + TURN;
    while (r->next < r->n && r->active < width && r->bytes < WINDOW_BYTES && ek_now() < until) {
        const size_t i = r->next++;
        if (!ek_batch_part_has(r->part, i)) EK_TRY(begin(r, i));
    }
    return EK_OK;
}

static void tell(const run *r)
{
    if (!r->watch->progress) return;
    const ek_batch_progress p = {r->n, ek_batch_part_count(r->part), r->before, ek_batch_part_errors(r->part)};
    r->watch->progress(r->watch->arg, &p);
}

static ek_err compute(run *r)
{
    double reported = 0;
    while (r->next < r->n || r->active > 0) {
        ek_batch_task *t = NULL;
        EK_TRY(fill(r));
        ek_err err = r->active > 0 ? r->runner->wait(r->runner, TURN, &t) : EK_OK;
        if (t) {
            r->active--;
            r->bytes -= t->text.len;
            if (err) ek_fail_in(err, "line %llu", (unsigned long long)r->in->lines[index_of(r, t->index)].number);
            else err = put(r, t->index, t);
            ek_batch_task_free(t);
        }
        EK_TRY(err);
        if (ek_now() - reported < TURN) continue;
        reported = ek_now();
        tell(r);
        if (r->watch->stop && r->watch->stop(r->watch->arg)) return ek_fail(EK_ECANCELLED, "stopped");
    }
    tell(r);
    return EK_OK;
}

static ek_err finish(run *r, const ek_batch_about *a, ek_batch_result *result, double begun)
{
    result->lines = r->n;
    result->errors = ek_batch_part_errors(r->part);
    result->computed = r->n - r->before;
    EK_TRY(ek_batch_part_write(r->part, r->o->errors, result->sha256));
    result->seconds = ek_now() - begun;
    EK_TRY(ek_batch_about_write(a, r->o->out, result));
    return ek_batch_part_remove(r->part);
}

/* Whether the existing OUT belongs to this run. */
static ek_err look(const run *r, const ek_buf *head, ek_batch_result *result)
{
    ek_batch_about there;
    ek_batch_input out;
    ek_buf other = {0};
    bool same = !ek_batch_about_read(&there, r->o->out);
    if (same) ek_batch_head(&other, &there);
    same = same && other.len == head->len && !memcmp(other.data, head->data, other.len);
    if (same) {
        same = !ek_batch_input_open(&out, r->o->out, false) && !strcmp(out.sha256, there.output_sha256);
        ek_batch_input_close(&out);
    }
    if (same) memcpy(result->sha256, there.output_sha256, sizeof result->sha256);
    result->lines = r->n;
    result->errors = there.errors;
    ek_batch_about_fini(&there);
    ek_buf_fini(&other);
    return same ? EK_OK
                : ek_fail(EK_EINVAL, "%s: it exists, and is not the end of this run; remove it, or name another file",
                          r->o->out);
}

/* Whether a path is the place of OUT, with an empty last entry, or of another file that a run writes and removes. */
static bool is_of_run(const char *path, const char *out, const char *const *ends, size_t n)
{
    ek_buf own = {0};
    bool same = false;
    for (size_t i = 0; i < n && !same; i++) {
        ek_buf_clear(&own);
        ek_buf_fmt(&own, "%s%s", out, ends[i]);
        same = ek_is_same_place(path, ek_buf_text(&own));
    }
    ek_buf_fini(&own);
    return same;
}

/* The copy of the errors must be possible at the end, which may be hours later. */
static ek_err check_folder(const char *path)
{
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) return ek_fail(EK_EINVAL, "--errors %s is no file", path);
    char *copy = ek_strdup(path);
    const bool can = !access(dirname(copy), W_OK | X_OK);
    const int why = errno;
    free(copy);
    return can ? EK_OK : ek_fail(EK_EIO, "--errors %s: %s", path, strerror(why));
}

ek_err ek_batch_check_names(const char *in, const ek_batch_opts *o)
{
    static const char *const ends[] = {".part", ".tmp", ".run.json", ""};
    enum { ALL = sizeof ends / sizeof *ends };
    if (is_of_run(in, o->out, ends, ALL - 1))
        return ek_fail(EK_EINVAL, "%s would be overwritten on the way to %s; name another result", in, o->out);
    if (!o->errors) return EK_OK;
    if (ek_is_same_place(o->errors, in)) return ek_fail(EK_EINVAL, "--errors %s is the input", o->errors);
    if (is_of_run(o->errors, o->out, ends, ALL))
        return ek_fail(EK_EINVAL, "--errors %s is the result's own file", o->errors);
    if (is_of_run(in, o->errors, &ends[1], 1))
        return ek_fail(EK_EINVAL, "%s would be overwritten on the way to --errors %s", in, o->errors);
    return check_folder(o->errors);
}

ek_err ek_batch_run(ek_batch_result *result, const ek_batch_opts *o, const ek_batch_input *in, ek_batch_part *part,
                    ek_batch_runner *runner, const ek_batch_watch *watch)
{
    run r = {.o = o,
             .in = in,
             .part = part,
             .runner = runner,
             .watch = watch,
             .n = ek_batch_shard_lines(in->n, o->shard, o->shards)};
    const double begun = ek_now();
    char *path = realpath(in->path, NULL);
    ek_buf head = {0};
    ek_batch_about a = {.input = path ? path : in->path,
                        .lines = in->n,
                        .shard = o->shard,
                        .shards = o->shards,
                        .seed = o->seed,
                        .identity = runner->identity.data};
    memcpy(a.input_sha256, in->sha256, sizeof a.input_sha256);
    ek_batch_head(&head, &a);
    *result = (ek_batch_result){0};
    ek_err err;
    if (ek_batch_part_ended(part)) {
        err = look(&r, &head, result);
    } else {
        err = ek_batch_part_begin(part, &head, r.n);
        if (!err) r.before = ek_batch_part_count(part);
        if (!err) err = compute(&r);
        if (!err) err = finish(&r, &a, result, begun);
    }
    ek_buf_fini(&head);
    free(path);
    return err;
}
