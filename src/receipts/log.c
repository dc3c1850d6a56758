#include "receipts/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/linux.h"
#include "base/log.h"

enum { MAX_ORIGIN = 200, MAX_LINE = 16 << 10, ROOM = 1 << 20 };
#define MAX_FILE ((size_t)64 << 30)

struct ek_receipt_log {
    pthread_mutex_t lock;
    int fd;
    char *path, *origin;
    ek_tree tree;
    ek_hash last;  /* SHA-256 of the last line, without its newline */
    off_t size;    /* bytes of whole lines */
    size_t marked; /* entries that the last root covers */
    bool failed;   /* the last line could not be written */
    bool torn;     /* a part of that line is in the file after size */
};

/* --- reading --- */

static bool is_word(const char *s)
{
    for (const char *c = s; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\' || *c == '+') return false;
    return *s && strlen(s) <= MAX_ORIGIN;
}

static ek_err bad_line(const ek_receipt_log *l, size_t number, const char *why)
{
    return ek_fail(EK_EFORMAT, "%s line %zu: %s", l->path, number, why);
}

static ek_err read_head(ek_receipt_log *l, const json_t *o)
{
    const char *origin = ek_json_get_text(o, "origin", NULL);
    if (json_integer_value(ek_json_get(o, "evenkeel_receipts_log")) != 1 || !origin || !is_word(origin))
        return bad_line(l, 1, "this is no log of receipts");
    l->origin = ek_strdup(origin);
    return EK_OK;
}

static ek_err read_line(ek_receipt_log *l, const json_t *o, size_t number)
{
    size_t n;
    ek_hash h, root;
    const json_t *count = ek_json_get(o, "n");
    const char *prev = ek_json_get_text(o, "prev", &n);
    if (!prev || !ek_hash_read(&h, prev, n)) return bad_line(l, number, "it names no line before it");
    if (!ek_hash_equal(&h, &l->last))
        return bad_line(l, number, "it does not follow the line before it: one was changed, added or left out");
    if (!json_is_integer(count) || (size_t)json_integer_value(count) != l->tree.n)
        return bad_line(l, number, "its count is another one than that of the entries before it");
    const char *entry = ek_json_get_text(o, "entry", &n);
    if (entry) {
        if (!ek_hash_read(&h, entry, n)) return bad_line(l, number, "its entry is no hash");
        const ek_hash leaf = ek_tree_leaf(h.h, EK_HASH);
        ek_tree_grow(&l->tree, &leaf);
        return EK_OK;
    }
    const char *text = ek_json_get_text(o, "root", &n);
    if (!text || !ek_hash_read(&root, text, n)) return bad_line(l, number, "neither an entry nor a root");
    h = ek_tree_first(&l->tree, l->tree.n);
    if (!ek_hash_equal(&h, &root)) return bad_line(l, number, "its root is another one than that of the entries");
    l->marked = l->tree.n;
    return EK_OK;
}

static ek_err read_lines(ek_receipt_log *l, const char *text, size_t n)
{
    size_t number = 0;
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        json_t *o = NULL;
        if (!end) break; /* a torn line; its receipt was never sent */
        const size_t size = (size_t)(end - text) - at;
        number++;
        if (size > MAX_LINE || ek_json_read(&o, text + at, size, MAX_LINE)) return bad_line(l, number, "no JSON");
        const ek_err err = number == 1 ? read_head(l, o) : read_line(l, o, number);
        json_decref(o);
        EK_TRY(err);
        ek_sha256(l->last.h, text + at, size);
        at += size + 1;
        l->size = (off_t)at;
    }
    return EK_OK;
}

/* --- writing; under the lock --- */

/* Cuts off the rest of a line that could not be written, because the next line would be joined to it. */
static ek_err cut(ek_receipt_log *l)
{
    l->torn = ftruncate(l->fd, l->size) != 0;
    return l->torn ? ek_fail(EK_EIO, "%s: half a line is left: %s", l->path, strerror(errno)) : EK_OK;
}

/* Appends a whole line, or nothing. */
static ek_err append(ek_receipt_log *l, const ek_buf *line)
{
    l->failed = true;
    if (l->torn) EK_TRY(cut(l));
    if (ek_fd_write(l->fd, line->data, line->len)) {
        const int why = errno;
        EK_TRY(cut(l));
        return ek_fail(EK_EIO, "%s: %s", l->path, strerror(why));
    }
    ek_sha256(l->last.h, line->data, line->len - 1);
    l->size += (off_t)line->len;
    l->failed = false;
    return EK_OK;
}

static ek_err begin_file(ek_receipt_log *l, const char *origin)
{
    ek_buf line = {0};
    if (!is_word(origin))
        return ek_fail(EK_EINVAL, "the log's origin has to be a word of at most %d letters", MAX_ORIGIN);
    l->origin = ek_strdup(origin);
    ek_buf_fmt(&line, "{\"evenkeel_receipts_log\":1,\"origin\":\"%s\"}\n", origin);
    const ek_err err = append(l, &line);
    ek_buf_fini(&line);
    return err;
}

static ek_err open_file(ek_receipt_log *l, const char *origin, bool read_only)
{
    ek_map map = {0};
    l->fd = open(l->path, read_only ? O_RDONLY | O_CLOEXEC : O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (l->fd < 0) return ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", l->path, strerror(errno));
    if (!read_only && flock(l->fd, LOCK_EX | LOCK_NB))
        return ek_fail(EK_EBUSY, "%s: another process writes into it", l->path);
    EK_TRY(ek_map_open(&map, l->path));
    ek_err err = map.size > MAX_FILE ? ek_fail(EK_ETOOLARGE, "%s: longer than 64 GiB", l->path)
                                     : read_lines(l, (const char *)map.data, map.size);
    const size_t torn = map.size - (size_t)l->size;
    ek_map_close(&map);
    EK_TRY(err);
    if (read_only) return l->origin ? EK_OK : bad_line(l, 1, "this is no log of receipts");
    if (torn > 0) {
        ek_log(EK_LOG_WARN, "%s: %zu bytes of a line that was not finished are cut off", l->path, torn);
        if (ftruncate(l->fd, l->size)) return ek_file_failed(l->path);
    }
    return l->origin ? EK_OK : begin_file(l, origin);
}

ek_err ek_receipt_log_open(ek_receipt_log **out, const char *path, const char *origin, bool read_only)
{
    ek_receipt_log *l = ek_alloc(sizeof *l);
    *out = NULL;
    l->path = ek_strdup(path);
    l->fd = -1;
    pthread_mutex_init(&l->lock, NULL);
    const ek_err err = open_file(l, origin, read_only);
    if (err) ek_receipt_log_close(l);
    else *out = l;
    return err;
}

void ek_receipt_log_close(ek_receipt_log *l)
{
    if (!l) return;
    if (l->fd >= 0) close(l->fd);
    pthread_mutex_destroy(&l->lock);
    ek_tree_fini(&l->tree);
    free(l->path), free(l->origin);
    free(l);
}

const char *ek_receipt_log_origin(const ek_receipt_log *l)
{
    return l->origin;
}

size_t ek_receipt_log_size(ek_receipt_log *l)
{
    pthread_mutex_lock(&l->lock);
    const size_t n = l->tree.n;
    pthread_mutex_unlock(&l->lock);
    return n;
}

ek_hash ek_receipt_log_root(ek_receipt_log *l, size_t *size)
{
    pthread_mutex_lock(&l->lock);
    const ek_hash root = ek_tree_first(&l->tree, l->tree.n);
    *size = l->tree.n;
    pthread_mutex_unlock(&l->lock);
    return root;
}

ek_err ek_receipt_log_ready(ek_receipt_log *l)
{
    struct statvfs fs;
    if (fstatvfs(l->fd, &fs)) return ek_file_failed(l->path);
    if ((uint64_t)fs.f_bavail * fs.f_frsize < ROOM)
        return ek_fail(EK_EIO, "the log of receipts has no room on its disk; ask without a receipt, or later");
    /* The line that failed is not in the file. The next line may be. */
    pthread_mutex_lock(&l->lock);
    const bool failed = l->failed;
    l->failed = false;
    pthread_mutex_unlock(&l->lock);
    if (!failed) return EK_OK;
    return ek_fail(EK_EIO, "the last line of the log of receipts could not be written; ask again");
}

ek_err ek_receipt_log_add(ek_receipt_log *l, const ek_hash *entry, const char *rotation, size_t *index)
{
    char hex[65], prev[65];
    ek_buf line = {0};
    const ek_hash leaf = ek_tree_leaf(entry->h, EK_HASH);
    ek_hash_text(hex, entry);
    pthread_mutex_lock(&l->lock);
    ek_hash_text(prev, &l->last);
    ek_buf_fmt(&line, "{\"entry\":\"%s\",\"n\":%zu,\"prev\":\"%s\"", hex, l->tree.n, prev);
    if (rotation) ek_buf_str(&line, ",\"rotation\":"), ek_buf_str(&line, rotation);
    ek_buf_str(&line, "}\n");
    const ek_err err = append(l, &line);
    *index = l->tree.n;
    if (!err) ek_tree_grow(&l->tree, &leaf);
    pthread_mutex_unlock(&l->lock);
    ek_buf_fini(&line);
    return err;
}

ek_err ek_receipt_log_mark(ek_receipt_log *l, int64_t time, size_t *size, ek_hash *root)
{
    char hex[65], prev[65], when[EK_STATEMENT_TIME];
    ek_buf line = {0};
    ek_err err = EK_OK;
    ek_statement_time(when, time);
    pthread_mutex_lock(&l->lock);
    *size = l->tree.n;
    *root = ek_tree_first(&l->tree, l->tree.n);
    if (l->tree.n != l->marked) {
        ek_hash_text(hex, root);
        ek_hash_text(prev, &l->last);
        ek_buf_fmt(&line, "{\"n\":%zu,\"prev\":\"%s\",\"root\":\"%s\",\"time\":\"%s\"}\n", *size, prev, hex, when);
        err = append(l, &line);
        if (!err) l->marked = *size;
    }
    pthread_mutex_unlock(&l->lock);
    ek_buf_fini(&line);
    if (!err && fdatasync(l->fd)) err = ek_file_failed(l->path);
    return err;
}

/* --- proofs --- */

static void put_hashes(ek_buf *out, const char *name, const ek_hash *h, int n)
{
    char hex[65];
    ek_buf_fmt(out, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        ek_hash_text(hex, &h[i]);
        ek_buf_fmt(out, "%s\"%s\"", i ? "," : "", hex);
    }
    ek_buf_char(out, ']');
}

static void put_checkpoint(ek_buf *out, const ek_buf *checkpoint)
{
    ek_buf_str(out, ",\"checkpoint\":");
    ek_json_quote(out, ek_buf_text(checkpoint), checkpoint->len);
}

ek_err ek_receipt_log_checkpoint(ek_buf *out, ek_receipt_log *l, size_t *size, const ek_signing_key *key)
{
    ek_hash root;
    pthread_mutex_lock(&l->lock);
    const size_t all = l->tree.n;
    if (*size == 0) *size = all;
    if (*size <= all) root = ek_tree_first(&l->tree, *size);
    pthread_mutex_unlock(&l->lock);
    if (*size > all) return ek_fail(EK_EINVAL, "there are no first %zu entries: the log has %zu", *size, all);
    return ek_checkpoint_write(out, l->origin, *size, &root, key);
}

ek_err ek_receipt_log_prove(ek_buf *out, ek_receipt_log *l, size_t index, size_t size, const ek_buf *checkpoint)
{
    ek_hash path[EK_PATH_MAX], root;
    char hex[65];
    pthread_mutex_lock(&l->lock);
    const size_t all = l->tree.n;
    const bool there = size <= all && index < size;
    const int n = there ? ek_tree_path(path, &l->tree, size, index) : 0;
    if (there) root = ek_tree_first(&l->tree, size);
    pthread_mutex_unlock(&l->lock);
    if (!there) return ek_fail(EK_EINVAL, "entry %zu is not among the first %zu: the log has %zu", index, size, all);
    ek_hash_text(hex, &root);
    ek_buf_fmt(out, "\"size\":%zu,\"root\":\"%s\"", size, hex);
    put_hashes(out, "path", path, n);
    put_checkpoint(out, checkpoint);
    return EK_OK;
}

ek_err ek_receipt_log_extends(ek_buf *out, ek_receipt_log *l, size_t from, size_t to, const ek_signing_key *key)
{
    ek_hash proof[EK_PATH_MAX];
    ek_buf checkpoint = {0};
    pthread_mutex_lock(&l->lock);
    const size_t all = l->tree.n;
    if (to == 0) to = all;
    const bool there = to <= all && from <= to;
    const int n = there ? ek_tree_consistency(proof, &l->tree, to, from) : 0;
    pthread_mutex_unlock(&l->lock);
    if (!there) return ek_fail(EK_EINVAL, "from %zu to %zu: the log has %zu entries", from, to, all);
    const ek_err err = ek_receipt_log_checkpoint(&checkpoint, l, &to, key);
    ek_buf_fmt(out, "\"from\":%zu,\"to\":%zu", from, to);
    put_hashes(out, "proof", proof, n);
    put_checkpoint(out, &checkpoint);
    ek_buf_fini(&checkpoint);
    return err;
}
