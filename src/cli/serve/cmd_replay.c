/* replay: runs a journal again, in any order and company, and compares the digest of every reply.
 *
 * A reply is sampled again with its own options until it has the journal's number of tokens; its digest then chains the
 * same rows of logits. A mask that restricted its tokens (record.forced) is made again from its form. If the journal
 * lacks the form, the reply's tokens are appended to the prompt, and the logits at their positions are compared: the
 * same rows, computed as a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/rng.h"
#include "chat/bounds.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "engine/sample/sampler.h"
#include "serve/journal/journal.h"

typedef struct replay replay;

/* A reply that is run again. */
typedef struct rerun {
    replay *r;
    struct rerun *next_free;
    ek_journal_line line;
    int64_t number;      /* the line's number, from 1 */
    ek_grammar *grammar; /* the grammar of its form; NULL: none */
    ek_bounds bounds;
    bool tokens_given; /* the tokens are part of the prompt, and only logits are compared */
    uint64_t digest;
    int n_tokens, first_other; /* first_other: index of the first token that differs from the journal's; -1: none */
    int32_t other;
    char error[256];
} rerun;

struct replay {
    const ek_cli *cli;
    ek_opened m;
    ek_chat_model chat; /* for forms: opened at the first form */
    ek_journal_file *file;
    const char *model; /* its digest */
    int64_t *order;    /* the numbers of the journal's lines, from 0 */
    rerun *runs, *free;
    int n_running;
    int64_t agree, differ, skipped, given; /* given: replies that ran with tokens_given */
};

static void skip(replay *r, int64_t number, const char *why)
{
    printf("skipped  line %lld: ", (long long)number);
    ek_cli_put(stdout, why);
    putchar('\n');
    r->skipped++;
}

/* --- one reply --- */

static void free_rerun(rerun *x)
{
    ek_bounds_fini(&x->bounds);
    ek_grammar_close(x->grammar);
    x->grammar = NULL;
    ek_journal_line_fini(&x->line);
}

static void judge(rerun *x)
{
    replay *r = x->r;
    const ek_journal_line *l = &x->line;
    if (!*x->error && x->n_tokens == l->n_tokens && x->digest == l->digest && x->first_other < 0) {
        r->agree++;
    } else {
        r->differ++;
        printf("differ   line %lld, ", (long long)x->number);
        ek_cli_put(stdout, l->id);
        if (l->choice > 0) printf(" choice %d", l->choice);
        if (*x->error) printf(": %s", x->error);
        else if (x->first_other >= 0)
            printf(": token %d of %d is %d and was %d; ", x->first_other, l->n_tokens, x->other,
                   l->record.reply.data[x->first_other]);
        else printf(": %d tokens, ", x->n_tokens);
        if (!*x->error)
            printf("digest %016llx, journal %016llx", (unsigned long long)x->digest, (unsigned long long)l->digest);
        putchar('\n');
    }
    r->given += x->tokens_given;
    free_rerun(x);
    x->next_free = r->free;
    r->free = x;
    r->n_running--;
}

static void on_event(void *arg, const ek_event *e)
{
    rerun *x = e->user;
    (void)arg;
    if (!x->tokens_given && e->token >= 0) {
        const ek_ids *reply = &x->line.record.reply;
        int i = x->n_tokens++;
        x->digest = ek_digest_row(x->digest, e->digest);
        if (x->first_other < 0 && (i >= (int)reply->len || reply->data[i] != e->token))
            x->first_other = i < (int)reply->len ? i : -1, x->other = e->token;
    }
    if (e->finish == EK_FINISH_NONE) return;
    if (e->finish == EK_FINISH_ERROR) snprintf(x->error, sizeof x->error, "%s", e->text ? e->text : "failed");
    judge(x);
}

static void on_row(void *user, int pos, const float *logits)
{
    rerun *x = user;
    (void)pos;
    x->n_tokens++;
    x->digest = ek_digest_row(x->digest, ek_logits_digest(logits, ek_engine_vocab(x->r->m.engine)));
}

/* Makes the bounds again that restricted the tokens. */
static ek_err make_bounds(rerun *x)
{
    replay *r = x->r;
    const ek_record *rec = &x->line.record;
    if (!r->chat.tokenizer) EK_TRY(ek_chat_model_open(&r->chat, r->m.path));
    if (rec->form) EK_TRY(ek_form_grammar(&x->grammar, r->chat.vocab, rec->form, strlen(rec->form)));
    ek_bounds_init(&x->bounds, &r->chat, x->grammar, rec->max_thinking, rec->prompt.data, rec->prompt.len,
                   rec->thinking);
    x->bounds.n_vocab = ek_engine_vocab(r->m.engine);
    return EK_OK;
}

static ek_err submit(rerun *x)
{
    ek_record *rec = &x->line.record;
    x->tokens_given = rec->forced && !rec->has_bounds;
    if (rec->forced && rec->has_bounds) EK_TRY(make_bounds(x));
    ek_mask mask = ek_bounds_mask(&x->bounds);
    ek_request_opts o = {.max_tokens = x->line.n_tokens,
                         .sampling = rec->sampling,
                         .ignore_eos = rec->ignore_eos,
                         .mask = ek_bounds_any(&x->bounds) ? &mask : NULL,
                         .sink = on_event,
                         .user = x,
                         .reply_digest = true};
    o.prompt_logits_from = rec->n_prompt;
    if (x->tokens_given) {
        for (int i = 0; i + 1 < x->line.n_tokens; i++) ek_ids_add(&rec->prompt, rec->reply.data[i]);
        o.max_tokens = 1;
        o.prompt_logits_from = rec->n_prompt - 1;
        o.on_prompt_logits = on_row;
        o.reply_digest = false;
    }
    o.tokens = rec->prompt.data;
    o.n_tokens = (int)rec->prompt.len;
    return ek_engine_submit(x->r->m.engine, &o, NULL);
}

/* --- the journal --- */

/* Why a line cannot be compared; NULL if it can. */
static const char *obstacle(const replay *r, const ek_journal_line *l)
{
    static char why[256];
    const char *numerics = ek_model_numerics_id(r->m.model);
    if (l->n_tokens == 0) return "a reply without tokens";
    if (l->record.n_parts > 0) return "its prompt has pictures or sounds, which the journal does not keep";
    if (l->record.mode != EK_RECORD_TOKENS) return "it has no prompt: the server ran without --journal-prompts";
    if (strcmp(l->numerics, numerics))
        snprintf(why, sizeof why, "its numerics are \"%.80s\", here they are \"%.80s\"", l->numerics, numerics);
    else if (l->digest_version != EK_DIGEST_VERSION)
        snprintf(why, sizeof why, "its digest is of version %d, here they are of version %d", l->digest_version,
                 EK_DIGEST_VERSION);
    else if (strcmp(l->model, r->model))
        snprintf(why, sizeof why, "it is of model %.64s, this is %s", l->model, r->model);
    else return NULL;
    return why;
}

/* Starts line i, or counts it as skipped. */
static void start(replay *r, int64_t i)
{
    rerun *x = r->free;
    *x = (rerun){.r = r, .next_free = x->next_free, .first_other = -1};
    x->number = ek_journal_file_number(r->file, i);
    const char *why = NULL;
    if (ek_journal_file_read(r->file, i, &x->line)) why = ek_err_text();
    else if (x->line.lost > 0) {
        printf("lost     line %lld: %lld lines before it could not be written\n", (long long)x->number,
               (long long)x->line.lost);
        r->skipped += x->line.lost;
        free_rerun(x);
        return;
    } else why = obstacle(r, &x->line);
    if (!why && submit(x)) why = ek_err_text();
    if (why) {
        skip(r, x->number, why);
        free_rerun(x);
        return;
    }
    r->free = x->next_free;
    r->n_running++;
}

static void make_order(replay *r)
{
    int64_t n = ek_journal_file_lines(r->file);
    r->order = ek_alloc(((size_t)n + 1) * sizeof *r->order);
    for (int64_t i = 0; i < n; i++) r->order[i] = !strcmp(r->cli->order, "reverse") ? n - 1 - i : i;
    if (strcmp(r->cli->order, "random")) return;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(ek_mix64((uint64_t)r->cli->seed + ek_mix64((uint64_t)i)) % (uint64_t)(i + 1));
        int64_t other = r->order[i];
        r->order[i] = r->order[j];
        r->order[j] = other;
    }
}

static void run_all(replay *r)
{
    int64_t next = 0, n = ek_journal_file_lines(r->file);
    do {
        while (r->free && next < n) start(r, r->order[next++]);
        fflush(stdout);
    } while (ek_engine_step(r->m.engine) || next < n);
    EK_ASSERT(r->n_running == 0);
}

static ek_err replay_file(replay *r)
{
    int n = (int)r->cli->concurrency;
    EK_TRY(ek_file_check(r->cli->arg)); /* lines are read in any order */
    EK_TRY(ek_journal_file_open(&r->file, r->cli->arg));
    if (ek_journal_file_lines(r->file) == 0) return ek_fail(EK_EINVAL, "%s: there is no line in it", r->cli->arg);
    EK_TRY(ek_cli_open_engine(&r->m, r->cli, false, n, n));
    EK_TRY(ek_opened_digest(&r->model, &r->m));
    r->runs = ek_alloc((size_t)n * sizeof *r->runs);
    for (int i = 0; i < n; i++) {
        r->runs[i].next_free = r->free;
        r->free = &r->runs[i];
    }
    make_order(r);
    run_all(r);
    return EK_OK;
}

int ek_cmd_replay(const ek_cli *cli)
{
    replay r = {.cli = cli};
    ek_err err = replay_file(&r);
    int status = err ? ek_cli_refused(cli, err) : r.differ > 0 || r.agree == 0;
    if (!err && r.given > 0)
        printf("%lld of them by their logits alone: the journal does not say what bound their tokens\n",
               (long long)r.given);
    if (!err)
        printf("%lld agree, %lld differ, %lld skipped\n", (long long)r.agree, (long long)r.differ,
               (long long)r.skipped);
    ek_journal_file_close(r.file);
    ek_chat_model_close(&r.chat);
    ek_opened_close(&r.m);
    free(r.order);
    free(r.runs);
    return status;
}
