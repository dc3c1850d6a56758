#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "batch/batch.h"
#include "text/json/json.h"

enum { MAX_FILE = 1 << 20 };

void ek_batch_head(ek_buf *out, const ek_batch_about *a)
{
    ek_buf_fmt(out, "{\"input_sha256\":\"%s\",\"lines\":%zu,\"shard\":\"%d/%d\",\"seed\":%lld,\"fingerprint\":%s}",
               a->input_sha256, a->lines, a->shard, a->shards, (long long)a->seed, a->identity);
}

static char *name_of(const char *out)
{
    ek_buf b = {0};
    ek_buf_fmt(&b, "%s.run.json", out);
    return b.data;
}

static bool copy_digest(char to[65], const json_t *v, const char *member)
{
    size_t n = 0;
    const char *s = ek_json_get_text(v, member, &n);
    if (!s || n != 64) return false;
    memcpy(to, s, 65);
    return true;
}

static bool take(ek_batch_about *a, const json_t *v)
{
    const json_t *run = ek_json_get(v, "run"), *identity = ek_json_get(run, "fingerprint");
    const char *input = ek_json_get_text(v, "input", NULL), *shard = ek_json_get_text(run, "shard", NULL);
    ek_buf text = {0};
    a->lines = (size_t)json_integer_value(ek_json_get(run, "lines"));
    a->errors = (size_t)json_integer_value(ek_json_get(v, "errors"));
    a->seed = json_integer_value(ek_json_get(run, "seed"));
    a->ctx = (int)json_integer_value(ek_json_get(identity, "context"));
    if (!input || !shard || !json_is_object(identity) || a->ctx <= 0) return false;
    if (!ek_batch_shard_read(&a->shard, &a->shards, shard)) return false;
    a->input = ek_strdup(input);
    ek_json_write(&text, identity);
    a->identity = text.data;
    return copy_digest(a->input_sha256, run, "input_sha256") && copy_digest(a->output_sha256, v, "output_sha256");
}

ek_err ek_batch_about_read(ek_batch_about *a, const char *out)
{
    json_t *v = NULL;
    char *path = name_of(out);
    *a = (ek_batch_about){0};
    ek_err err = ek_json_read_file(&v, path, MAX_FILE);
    if (!err && !take(a, v)) err = ek_fail(EK_EPARSE, "%s: it does not say what %s was made of", path, out);
    json_decref(v);
    free(path);
    return err;
}

ek_err ek_batch_about_write(const ek_batch_about *a, const char *out, const ek_batch_result *r)
{
    ek_buf b = {0};
    char host[256] = "", *path = name_of(out);
    gethostname(host, sizeof host - 1);
    ek_put_string_after(&b, "{\"input\":", a->input);
    ek_buf_str(&b, ",\n\"run\":");
    ek_batch_head(&b, a);
    ek_buf_fmt(&b,
               ",\n\"output_sha256\":\"%s\",\"output_lines\":%zu,\"errors\":%zu,\n\"computed\":%zu,\"seconds\":%.1f,"
               "\"ended\":%lld,\"host\":",
               r->sha256, r->lines, r->errors, r->computed, r->seconds, (long long)ek_unix_time());
    ek_put_string(&b, host);
    ek_buf_str(&b, "}\n");
    const ek_err err = ek_file_replace(path, b.data, b.len, 0644);
    ek_buf_fini(&b);
    free(path);
    return err;
}

void ek_batch_about_fini(ek_batch_about *a)
{
    free(a->input);
    free(a->identity);
    *a = (ek_batch_about){0};
}
