#include "base/file.h"
#include "hub/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/linux.h"

static bool is_sha256(const ek_hub_blob *b)
{
    return strlen(b->file->hash) == 64;
}

static void start_hash(ek_hub_blob *b)
{
    b->hashed = 0;
    if (is_sha256(b)) {
        ek_sha256_init(&b->hash.sha256);
        return;
    }
    char head[40]; /* git hashes "blob SIZE", a zero byte and the content */
    int n = snprintf(head, sizeof head, "blob %lld", (long long)b->file->size);
    ek_sha1_init(&b->hash.sha1);
    ek_sha1_add(&b->hash.sha1, head, (size_t)n + 1);
}

static void add_hash(ek_hub_blob *b, const void *data, size_t n)
{
    if (is_sha256(b)) ek_sha256_add(&b->hash.sha256, data, n);
    else ek_sha1_add(&b->hash.sha1, data, n);
    b->hashed += (int64_t)n;
}

/* Whether the blob has its right size. A blob of another size is damaged, because its name promises its content. */
static bool is_complete(const ek_hub_blob *b)
{
    return ek_hub_blob_size(b->cache, b->file->hash, "") == b->file->size;
}

static ek_err open_rest(ek_hub_blob *b)
{
    struct stat st;
    ek_buf path = {0};
    ek_hub_blob_path(&path, b->cache, b->file->hash, ".incomplete");
    ek_err err = EK_OK;
    for (int again = 0; again < 2; again++) {
        b->fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (b->fd < 0 || fstat(b->fd, &st)) {
            err = ek_file_failed(path.data);
            break;
        }
        b->written = (int64_t)st.st_size;
        if (b->written <= b->file->size) break;
        close(b->fd); /* the data is longer than the file, so it is not the file's beginning */
        b->fd = -1;
        unlink(path.data);
    }
    ek_buf_fini(&path);
    return err;
}

ek_err ek_hub_blob_claim(ek_hub_blob *b, ek_hub_claim *claim, const ek_hub_cache *cache, const ek_hub_file *file)
{
    *b = (ek_hub_blob){.cache = cache, .file = file, .lock = -1, .fd = -1};
    *claim = EK_HUB_THERE;
    if (is_complete(b)) return EK_OK;
    EK_TRY(ek_hub_lock(&b->lock, cache, file->hash));
    if (b->lock == -1) {
        *claim = EK_HUB_HELD;
        return EK_OK;
    }
    if (is_complete(b)) { /* another process was faster */
        ek_hub_blob_release(b);
        return EK_OK;
    }
    *claim = EK_HUB_OURS;
    ek_err err = open_rest(b);
    if (err) ek_hub_blob_release(b);
    else start_hash(b);
    return err;
}

ek_err ek_hub_blob_hash(ek_hub_blob *b, int64_t n)
{
    enum { CHUNK = 1 << 20 };
    if (n > b->written - b->hashed) n = b->written - b->hashed;
    char *chunk = ek_alloc(CHUNK);
    ek_err err = EK_OK;
    while (!err && n > 0) {
        ssize_t got = pread(b->fd, chunk, n < CHUNK ? (size_t)n : CHUNK, b->hashed);
        if (got > 0) {
            add_hash(b, chunk, (size_t)got);
            n -= got;
        } else if (got == 0 || errno != EINTR) {
            err = ek_fail(EK_EIO, "%s: what was fetched before cannot be read: %s", b->file->path,
                          got ? strerror(errno) : "it became shorter");
        }
    }
    free(chunk);
    return err;
}

ek_err ek_hub_blob_write(ek_hub_blob *b, const void *data, size_t n)
{
    const char *p = data;
    EK_ASSERT(b->hashed == b->written);
    while (n > 0) {
        ssize_t put = pwrite(b->fd, p, n, b->written);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return ek_fail(EK_EIO, "%s: cannot be written to %s behind byte %lld: %s; what came stays there",
                           b->file->path, b->cache->repo.data, (long long)b->written,
                           put ? strerror(errno) : "disk full");
        add_hash(b, p, (size_t)put);
        b->written += put, p += put, n -= (size_t)put;
    }
    return EK_OK;
}

ek_err ek_hub_blob_finish(ek_hub_blob *b)
{
    char hash[65];
    ek_buf from = {0}, to = {0};
    ek_err err = EK_OK;
    EK_ASSERT(b->hashed == b->file->size);
    if (is_sha256(b)) ek_sha256_end(&b->hash.sha256, hash);
    else ek_sha1_end(&b->hash.sha1, hash);
    ek_hub_blob_path(&from, b->cache, b->file->hash, ".incomplete");
    ek_hub_blob_path(&to, b->cache, b->file->hash, "");
    if (strcmp(hash, b->file->hash) != 0) {
        err = ek_fail(EK_EFORMAT, "%s: the hash of what came is %.16s…, the Hub gives %.16s…", b->file->path, hash,
                      b->file->hash);
        unlink(from.data);
    } else if (fdatasync(b->fd) || rename(from.data, to.data)) {
        err = ek_file_failed(to.data);
    }
    ek_buf_fini(&from);
    ek_buf_fini(&to);
    ek_hub_blob_release(b);
    return err;
}

void ek_hub_blob_release(ek_hub_blob *b)
{
    if (b->fd >= 0) close(b->fd);
    if (b->lock >= 0) close(b->lock);
    b->fd = b->lock = -1;
}
