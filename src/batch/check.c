/* Runs some lines again and compares them with their results in a file. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash/hash.h"
#include "batch/batch.h"

static const double TURN = 0.1; /* seconds between two checks of stop */

typedef struct check {
    ek_batch_checked *c;
    const ek_batch_about *about;
    const ek_batch_input *in, *out;
    int every;
    ek_batch_runner *runner;
    size_t n, next, active; /* lines of out */
    bool all;               /* no line was chosen, so the first one is checked */
} check;

static bool is_chosen(const check *k, const ek_batch_task *t)
{
    uint8_t hash[32];
    ek_sha256(hash, t->line.name ? t->line.name : "", t->line.n_name);
    return ek_get_le(hash, 8) % (uint64_t)k->every == 0 || (k->all && t->index == 0);
}

static ek_err compare(check *k, ek_batch_task *t)
{
    ek_buf here = {0}, there = {0};
    ek_err err = ek_batch_input_line(k->out, t->index, &there);
    ek_batch_put(&here, &t->line, t->id, t->status, &t->body);
    if (!err) {
        const bool equal = here.len == there.len && !memcmp(here.data, ek_buf_text(&there), here.len);
        k->c->lines++;
        k->c->equal += equal;
        if (!equal && (k->c->number == 0 || t->index + 1 < k->c->number)) {
            k->c->number = t->index + 1;
            ek_buf_clear(&k->c->why);
            ek_batch_diff_line(&k->c->why, ek_buf_text(&there), there.len, here.data, here.len);
        }
    }
    ek_buf_fini(&here);
    ek_buf_fini(&there);
    return err;
}

static ek_err begin(check *k, size_t i)
{
    ek_batch_task *t = ek_alloc(sizeof *t);
    t->index = i;
    const size_t index = ek_batch_shard_line(i, k->about->shard, k->about->shards);
    ek_err err = ek_batch_input_request(k->in, index, &t->text, &t->line, t->id);
    if (!err && is_chosen(k, t) && t->line.dialect) {
        t->seed = ek_batch_line_seed(k->about->seed, &t->line);
        k->active++;
        k->runner->start(k->runner, t);
        return EK_OK;
    }
    if (!err && is_chosen(k, t)) err = compare(k, t); /* not a request: its error is written again */
    ek_batch_task_free(t);
    return err;
}

static ek_err compute(check *k, const ek_batch_watch *watch)
{
    while (k->next < k->n || k->active > 0) {
        ek_batch_task *t = NULL;
        const double until = ek_now() + TURN;
        while (k->next < k->n && k->active < (size_t)k->runner->width && ek_now() < until) EK_TRY(begin(k, k->next++));
        ek_err err = k->active > 0 ? k->runner->wait(k->runner, TURN, &t) : EK_OK;
        if (t) {
            if (!err) err = compare(k, t);
            k->active--;
            ek_batch_task_free(t);
        }
        EK_TRY(err);
        if (watch->stop && watch->stop(watch->arg)) return ek_fail(EK_ECANCELLED, "stopped");
    }
    return EK_OK;
}

static ek_err check_origin(const check *k, const char *out)
{
    const ek_batch_about *a = k->about;
    const size_t wanted = ek_batch_shard_lines(k->in->n, a->shard, a->shards);
    if (strcmp(k->in->sha256, a->input_sha256))
        return ek_fail(EK_EINVAL, "%s: it is not the input of %s: its SHA-256 is %.16s..., not %.16s...", k->in->path,
                       out, k->in->sha256, a->input_sha256);
    if (k->out->n != wanted) return ek_fail(EK_EINVAL, "%s has %zu lines, its input makes %zu", out, k->out->n, wanted);
    if (!strcmp(k->runner->identity.data, a->identity)) return EK_OK;
    const ek_buf there = {.data = a->identity, .len = strlen(a->identity)};
    ek_batch_other other;
    ek_batch_find_other(&other, &there, &k->runner->identity);
    return ek_fail(EK_EINVAL, "%s is of another run, with %s %s, not %s", out, other.member, other.there, other.here);
}

ek_err ek_batch_check(ek_batch_checked *c, const char *out, const ek_batch_about *about, const ek_batch_input *in,
                      int every, ek_batch_runner *runner, const ek_batch_watch *watch)
{
    ek_batch_input file;
    check k = {.c = c, .about = about, .in = in, .out = &file, .every = every, .runner = runner};
    *c = (ek_batch_checked){0};
    ek_err err = ek_batch_input_open(&file, out, false);
    if (!err) err = check_origin(&k, out);
    k.n = file.n;
    if (!err) err = compute(&k, watch);
    if (!err && c->lines == 0 && k.n > 0) {
        k.all = true;
        k.next = 0, k.n = 1;
        err = compute(&k, watch);
    }
    ek_batch_input_close(&file);
    return err;
}
