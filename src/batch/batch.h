/* A batch turns a file of requests, one per line, into a file of results in the same order (docs/EVALUATE.md).
 *
 * The bytes of OUT are a function of IN, the model, its numerics, the context, the sampling defaults, the seed and the
 * program's version; the head of a run names these. Values that would differ between runs follow from a line's content
 * (ids by ek_batch_line_id, seeds by ek_batch_line_seed, the model's name) or are 0 (created, cache counts). Times and
 * machines are only in OUT.run.json. */
#ifndef EK_BATCH_BATCH_H
#define EK_BATCH_BATCH_H

#include "batch/line.h"
#include "batch/part.h"
#include "batch/runner.h"

/* --- IN: a file of lines, indexed by offset. A line takes 32 bytes of memory --- */

typedef struct ek_batch_entry {
    uint64_t at, n;  /* offset and bytes of the line, without its newline */
    uint64_t hash;   /* first 8 bytes of its SHA-256 */
    uint64_t number; /* line number in the file, from 1, blank lines counted */
} ek_batch_entry;

typedef struct ek_batch_input {
    int fd;
    char *path;
    char sha256[65]; /* of the file */
    ek_batch_entry *lines;
    size_t n;
    uint64_t bytes;
} ek_batch_input;

/* Opens a regular file and reads it once. Skips blank lines, a byte order mark and CR before LF; the last line may lack
 * its newline. requests: lines are requests; EINVAL, with both line numbers, if two have the same custom_id. ENOTFOUND,
 * EIO with the path. ek_batch_input_close is allowed after a failure and for a zeroed struct. */
ek_err ek_batch_input_open(ek_batch_input *in, const char *path, bool requests);
void ek_batch_input_close(ek_batch_input *in);

/* Reads line i into out, which is emptied first. EIO if the file has changed. */
ek_err ek_batch_input_line(const ek_batch_input *in, size_t i, ek_buf *out);
/* Reads line i as a request. text: the bytes that line points into; empty for a line that is too long. id:
 * ek_batch_line_id; for a line that is too long, from its hash. */
ek_err ek_batch_input_request(const ek_batch_input *in, size_t i, ek_buf *text, ek_batch_line *line,
                              char id[EK_BATCH_ID]);

/* --- a run --- */

typedef struct ek_batch_progress {
    size_t lines;  /* lines of this run or shard */
    size_t done;   /* finished lines, including those of earlier runs */
    size_t before; /* finished in earlier runs */
    size_t errors;
} ek_batch_progress;

typedef struct ek_batch_watch {
    void (*progress)(void *arg, const ek_batch_progress *p); /* several times a second */
    bool (*stop)(void *arg);                                 /* true ends the run with ECANCELLED */
    void *arg;
} ek_batch_watch;

enum { EK_BATCH_SHARDS = 10000 };

/* Reads "2/5", numbers from 1 to EK_BATCH_SHARDS; false for anything else. */
bool ek_batch_shard_read(int *shard, int *shards, const char *text);
/* The number of a shard's lines among n, and the index among all lines of the shard's line i. */
size_t ek_batch_shard_lines(size_t n, int shard, int shards);
size_t ek_batch_shard_line(size_t i, int shard, int shards);

typedef struct ek_batch_opts {
    const char *out;
    const char *errors; /* a file for copies of error lines, neither IN nor OUT; NULL: none */
    int shard, shards;  /* up to EK_BATCH_SHARDS; line i belongs to shard 1 + i mod shards */
    int64_t seed;
} ek_batch_opts;

typedef struct ek_batch_result {
    size_t lines, errors;
    size_t computed; /* in this run */
    char sha256[65]; /* of OUT */
    double seconds;
} ek_batch_result;

/* Before the part is opened: EINVAL if the run would write the copy of errors to IN, OUT or a file beside OUT, or would
 * overwrite IN by a file beside either; EIO if o->errors cannot be written. */
ek_err ek_batch_check_names(const char *in, const ek_batch_opts *o);

/* Computes the lines that the part lacks and writes OUT. Errors of runner and part; ECANCELLED if
 * watch->stop returns true, and the part stays. An existing OUT of the same run is not changed. */
ek_err ek_batch_run(ek_batch_result *r, const ek_batch_opts *o, const ek_batch_input *in, ek_batch_part *part,
                    ek_batch_runner *runner, const ek_batch_watch *watch);

/* --- OUT.run.json: the origin of OUT --- */

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
    size_t lines, equal; /* recomputed lines; those equal to OUT's */
    size_t number;       /* number in OUT, from 1, of the first different line; 0: none */
    ek_buf why;          /* the difference there */
} ek_batch_checked;

/* Recomputes about one line in `every`: lines whose custom_id has a SHA-256 with first 8 bytes divisible by it, or the
 * first line if there are none. EINVAL if out does not belong to this input, or the runner's fingerprint differs. */
ek_err ek_batch_check(ek_batch_checked *c, const char *out, const ek_batch_about *about, const ek_batch_input *in,
                      int every, ek_batch_runner *runner, const ek_batch_watch *watch);

/* Merges the files of all shards into the file of a single run. EINVAL names the shard that is missing, doubled, or of
 * another run. */
ek_err ek_batch_merge(ek_batch_result *r, const char *out, const char *const *part, int n);

/* The first member in which two JSON objects differ, and its two values, truncated. */
typedef struct ek_batch_other {
    char member[64], there[200], here[200];
} ek_batch_other;
/* Compares two different texts. The member is "JSON" if one is no object, or only the spelling differs. */
void ek_batch_find_other(ek_batch_other *o, const ek_buf *there, const ek_buf *here);

/* Compares two files of results line by line. If they differ, appends the first difference: the line, its custom_id,
 * and the token with its log-probabilities, or the surrounding text without them. */
ek_err ek_batch_diff(ek_buf *out, bool *same, const char *a, const char *b);
/* The same for two different lines without newlines. */
void ek_batch_diff_line(ek_buf *out, const char *a, size_t n_a, const char *b, size_t n_b);

#endif
