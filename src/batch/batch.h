/* A batch: a file of requests, one per line, to a file of results in the same order (docs/EVALUATE.md).
 *
 * The bytes of OUT are a function of IN, the model, its numerics, the context, the sampling defaults, the seed and the
 * program's version, which the head of a run names. Values that would differ from run to run follow from a line's
 * content or are left out: ids (ek_batch_line_id), created (0), seeds (ek_batch_line_seed), counts of caches (0), the
 * model's name (the line's), times and machines (OUT.run.json). */
#ifndef EK_BATCH_BATCH_H
#define EK_BATCH_BATCH_H

#include "batch/input.h"
#include "batch/part.h"
#include "batch/runner.h"

typedef struct ek_batch_progress {
    size_t lines;  /* of this run or shard */
    size_t done;   /* of them, those of earlier runs included */
    size_t before; /* those of earlier runs */
    size_t errors;
} ek_batch_progress;

typedef struct ek_batch_watch {
    void (*progress)(void *arg, const ek_batch_progress *p); /* several times a second */
    bool (*stop)(void *arg);                                 /* true ends the run with ECANCELLED */
    void *arg;
} ek_batch_watch;

enum { EK_BATCH_SHARDS = 10000 };

/* Reads "2/5", 1 up to EK_BATCH_SHARDS; false for all else. */
bool ek_batch_shard_read(int *shard, int *shards, const char *text);
/* How many of n lines belong to a shard, and where line i of it stands among all. */
size_t ek_batch_shard_lines(size_t n, int shard, int shards);
size_t ek_batch_shard_line(size_t i, int shard, int shards);

typedef struct ek_batch_opts {
    const char *out;
    const char *errors; /* where error lines are copied, neither IN nor OUT; NULL: nowhere */
    int shard, shards;  /* up to EK_BATCH_SHARDS; line i belongs to shard 1 + i mod shards */
    int64_t seed;
} ek_batch_opts;

typedef struct ek_batch_result {
    size_t lines, errors;
    size_t computed; /* in this run */
    char sha256[65]; /* of OUT */
    double seconds;
} ek_batch_result;

/* Computes the lines that the part lacks and writes OUT. Errors of runner and part; EINVAL for o->errors; ECANCELLED
 * when watch->stop says so: the part stays. An OUT of the same run that is there already is left as it is. */
ek_err ek_batch_run(ek_batch_result *r, const ek_batch_opts *o, const ek_batch_input *in, ek_batch_part *part,
                    ek_batch_runner *runner, const ek_batch_watch *watch);

/* --- OUT.run.json: what OUT was made of --- */

typedef struct ek_batch_about {
    char *input; /* its path */
    char input_sha256[65], output_sha256[65];
    size_t lines;  /* of the input */
    size_t errors; /* of the output */
    int shard, shards, ctx;
    int64_t seed;
    char *identity; /* the fingerprint */
} ek_batch_about;

/* Reads the file beside out. ENOTFOUND, EIO, EPARSE with its path. ek_batch_about_fini also after a failure. */
ek_err ek_batch_about_read(ek_batch_about *a, const char *out);
ek_err ek_batch_about_write(const ek_batch_about *a, const char *out, const ek_batch_result *r);
void ek_batch_about_fini(ek_batch_about *a);
/* Appends the head of a run, a JSON object: the members that decide OUT. */
void ek_batch_head(ek_buf *out, const ek_batch_about *a);

/* --- results --- */

typedef struct ek_batch_checked {
    size_t lines, equal; /* computed again; of these, equal to OUT's */
    size_t number;       /* of the first other one in OUT, from 1; 0: none */
    ek_buf why;          /* the difference there */
} ek_batch_checked;

/* Computes one line in `every` of those that made out again: those whose SHA-256 of the custom_id, its first 8 bytes,
 * is a multiple of it; the first one if there is none. EINVAL where out is not of this input, or the runner's
 * fingerprint is another one. */
ek_err ek_batch_check(ek_batch_checked *c, const char *out, const ek_batch_about *about, const ek_batch_input *in,
                      int every, ek_batch_runner *runner, const ek_batch_watch *watch);

/* Puts the files of all shards of one run together to what one run would have written. EINVAL names the shard that is
 * missing, there twice, or of another run. */
ek_err ek_batch_merge(ek_batch_result *r, const char *out, const char *const *part, int n);

/* The first member in which two JSON objects differ, and its two values, cut. */
typedef struct ek_batch_other {
    char member[64], there[200], here[200];
} ek_batch_other;
/* Of two texts that differ; "JSON" is the member where one is no object, or only the spelling differs. */
void ek_batch_find_other(ek_batch_other *o, const ek_buf *there, const ek_buf *here);

/* Compares two files of results line by line. *same; else appends the first difference: the line, its custom_id, the
 * token and its log-probabilities where they are there, else the text around the place. */
ek_err ek_batch_diff(ek_buf *out, bool *same, const char *a, const char *b);
/* The same of two lines without their ends, which differ. */
void ek_batch_diff_line(ek_buf *out, const char *a, size_t n_a, const char *b, size_t n_b);

#endif
