/* Shards: their lines, and the merge of all shards of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "batch/batch.h"

bool ek_batch_shard_read(int *shard, int *shards, const char *text)
{
    int end = 0;
    return sscanf(text, "%5d/%5d%n", shard, shards, &end) == 2 && !text[end] && *shard >= 1 && *shard <= *shards &&
           *shards <= EK_BATCH_SHARDS;
}

size_t ek_batch_shard_lines(size_t n, int shard, int shards)
{
    const size_t first = (size_t)shard - 1;
    return n > first ? 1 + (n - first - 1) / (size_t)shards : 0;
}

size_t ek_batch_shard_line(size_t i, int shard, int shards)
{
    return i * (size_t)shards + (size_t)shard - 1;
}

typedef struct shard {
    const char *path;
    ek_batch_about about;
    ek_batch_input file;
} shard;

static ek_err open_shard(shard *s, const char *path)
{
    s->path = path;
    EK_TRY(ek_batch_about_read(&s->about, path));
    EK_TRY(ek_batch_input_open(&s->file, path, false));
    if (!strcmp(s->file.sha256, s->about.output_sha256)) return EK_OK;
    return ek_fail(EK_EINVAL, "%s: it is not as its run left it: its SHA-256 is %.16s..., not %.16s...", path,
                   s->file.sha256, s->about.output_sha256);
}

/* Checks that two shards belong to one run. Only their numbers may differ. */
static ek_err same_run(const shard *a, const shard *b)
{
    const char *what = strcmp(a->about.input_sha256, b->about.input_sha256) ? "input"
                       : a->about.seed != b->about.seed                     ? "seed"
                       : a->about.shards != b->about.shards                 ? "number of shards"
                       : strcmp(a->about.identity, b->about.identity)       ? "fingerprint"
                                                                            : NULL;
    return what ? ek_fail(EK_EINVAL, "%s and %s differ in their %s", a->path, b->path, what) : EK_OK;
}

/* Checks that each shard of the run occurs once, and sorts the shards. */
static ek_err sort(shard **by_number, shard *s, int n)
{
    const int shards = s[0].about.shards;
    for (int i = 0; i < n; i++) {
        EK_TRY(same_run(&s[0], &s[i]));
        shard **at = &by_number[s[i].about.shard - 1];
        if (*at)
            return ek_fail(EK_EINVAL, "%s and %s are both shard %d/%d", (*at)->path, s[i].path, s[i].about.shard,
                           shards);
        *at = &s[i];
    }
    for (int k = 0; k < shards; k++) {
        if (!by_number[k]) return ek_fail(EK_EINVAL, "shard %d/%d is missing", k + 1, shards);
        const size_t lines = s[0].about.lines, wanted = ek_batch_shard_lines(lines, k + 1, shards);
        if (by_number[k]->file.n != wanted)
            return ek_fail(EK_EINVAL, "%s has %zu lines, shard %d/%d of %zu lines has %zu", by_number[k]->path,
                           by_number[k]->file.n, k + 1, shards, lines, wanted);
    }
    return EK_OK;
}

static ek_err write_lines(ek_batch_file *to, shard *const *by_number, size_t n, int shards)
{
    ek_buf line = {0};
    ek_err err = EK_OK;
    for (size_t i = 0; i < n && !err; i++) {
        err = ek_batch_input_line(&by_number[i % (size_t)shards]->file, i / (size_t)shards, &line);
        if (!err) err = ek_batch_file_line(to, ek_buf_text(&line), line.len);
    }
    ek_buf_fini(&line);
    return err;
}

/* An existing file is kept, unless it has the same content. */
static ek_err check_there(ek_batch_file *file, const char *out)
{
    ek_batch_input there = {.fd = -1};
    char sha256[65];
    if (access(out, F_OK)) return EK_OK;
    EK_TRY(ek_batch_file_sum(file, sha256));
    ek_err err = ek_batch_input_open(&there, out, false);
    if (!err && strcmp(there.sha256, sha256))
        err = ek_fail(EK_EINVAL, "%s: it exists, and is another one; remove it, or name another file", out);
    ek_batch_input_close(&there);
    return err;
}

static ek_err merge(ek_batch_result *r, const char *out, shard *s, int n)
{
    const int shards = s[0].about.shards;
    const double begun = ek_now();
    shard **by_number = ek_alloc((size_t)shards * sizeof *by_number);
    ek_batch_file file;
    ek_err err = sort(by_number, s, n);
    if (!err) {
        err = ek_batch_file_open(&file, out);
        if (!err) err = write_lines(&file, by_number, s[0].about.lines, shards);
        if (!err) err = check_there(&file, out);
        err = ek_batch_file_close(&file, err, r->sha256);
    }
    if (!err) {
        ek_batch_about whole = s[0].about;
        whole.shard = whole.shards = 1;
        r->lines = whole.lines;
        for (int k = 0; k < shards; k++) r->errors += by_number[k]->about.errors;
        r->seconds = ek_now() - begun;
        err = ek_batch_about_write(&whole, out, r);
    }
    free(by_number);
    return err;
}

ek_err ek_batch_merge(ek_batch_result *r, const char *out, const char *const *part, int n)
{
    shard *s = ek_alloc((size_t)n * sizeof *s);
    ek_err err = EK_OK;
    *r = (ek_batch_result){0};
    for (int i = 0; i < n && !err; i++) {
        err = ek_batch_check_names(part[i], &(ek_batch_opts){.out = out});
        if (!err) err = open_shard(&s[i], part[i]);
    }
    if (!err) err = merge(r, out, s, n);
    for (int i = 0; i < n; i++) {
        ek_batch_about_fini(&s[i].about);
        ek_batch_input_close(&s[i].file);
    }
    free(s);
    return err;
}
