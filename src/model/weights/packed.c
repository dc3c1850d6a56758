#include "model/weights/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/hash/rng.h"
#include "base/linux.h"
#include "base/log.h"

/* The file: a head, a hash per block, padding to a whole page, the weights. LAYOUT is raised when the layout of a
 * packed form changes. */
enum { LAYOUT = 3, BLOCK = 4 << 20, PAGE = 4096, CHAINS = 8 };
typedef struct head {
    char magic[8];
    uint64_t bytes, n_blocks, hashes; /* bytes of the weights; number of blocks; hash of the hashes */
} head;
static const char magic[8] = "EKPACK1";

static size_t blocks_of(size_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK;
}

static size_t first_of(size_t bytes)
{
    return (sizeof(head) + 8 * blocks_of(bytes) + PAGE - 1) / PAGE * PAGE;
}

/* --- the name --- */

static ek_err add_file(ek_buf *key, const char *path)
{
    struct stat st;
    char *real = realpath(path, NULL);
    if (!real || stat(real, &st)) {
        free(real);
        return ek_fail(EK_EIO, "%s: %s", path, strerror(errno));
    }
    ek_buf_fmt(key, "%s %llu %llu %lld", real, (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
               (long long)st.st_size);
    ek_buf_fmt(key, " %lld.%09ld %lld.%09ld\n", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    free(real);
    return EK_OK;
}

static int has_name(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* All files of the checkpoint's folder: weights, index, configuration. An unrelated file only causes another
 * packing. */
static ek_err add_checkpoint(ek_buf *key, const char *checkpoint)
{
    ek_buf folder = {0}, path = {0};
    const char *slash = strrchr(checkpoint, '/');
    if (ek_is_dir(checkpoint)) ek_buf_str(&folder, checkpoint);
    else if (slash) ek_buf_add(&folder, checkpoint, (size_t)(slash - checkpoint));
    ek_buf_str(&folder, folder.len ? "" : slash ? "/" : ".");
    struct dirent **entry;
    int n = scandir(folder.data, &entry, has_name, ek_by_bytes);
    ek_err err = n < 0 ? ek_fail(EK_EIO, "%s: %s", folder.data, strerror(errno)) : add_file(key, checkpoint);
    for (int i = 0; i < n; i++) {
        ek_buf_clear(&path);
        ek_buf_fmt(&path, "%s/%s", folder.data, entry[i]->d_name);
        if (!err && ek_is_file(path.data)) err = add_file(key, path.data);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    ek_buf_fini(&folder), ek_buf_fini(&path);
    return err;
}

static void add_items(ek_buf *key, const ek_items *list)
{
    for (int i = 0; i < list->n; i++) {
        const ek_item *it = &list->item[i];
        const ek_linear *m = it->matrix;
        ek_buf_fmt(key, "%s %s %d %d", it->name, it->data.type->name, it->data.n, it->data.k);
        if (m) ek_buf_fmt(key, " form %d limbs %d panel %zu of %zu", (int)m->form, m->limbs, m->panel_bytes, m->bytes);
        ek_buf_char(key, '\n');
    }
}

static ek_err make_folder(const char *dir)
{
    if (mkdir(dir, 0777) == 0 || (errno == EEXIST && ek_is_dir(dir))) return EK_OK;
    return ek_fail(EK_EIO, "--packed-cache %s: %s", dir, strerror(errno));
}

ek_err ek_packed_open(ek_packed *p, const char *dir, const char *checkpoint, const ek_items *list, const ek_weights *w,
                      const ek_pack_opts *o)
{
    *p = (ek_packed){0};
    EK_TRY(make_folder(dir));
    ek_buf key = {0}, path = {0};
    ek_buf_fmt(&key, "layout %d arithmetic %d cpu %u bytes %zu\n", LAYOUT, EK_ARITHMETIC_VERSION, o->cpu,
               w->block_bytes);
    for (int j = 0; j < ek_pool_nodes(o->pool) && ek_pool_nodes(o->pool) > 1; j++)
        ek_buf_fmt(&key, "node up to %zu\n", w->node_end[j]);
    ek_err err = add_checkpoint(&key, checkpoint);
    if (!err) {
        char hex[65];
        add_items(&key, list);
        ek_sha256_hex(hex, key.data, key.len);
        ek_buf_fmt(&path, "%s/%.32s.packed", dir, hex);
        p->path = path.data;
    }
    ek_buf_fini(&key);
    return err;
}

/* --- blocks --- */

typedef struct blocks {
    const uint8_t *data;
    size_t bytes, first; /* first: their offset in the file */
    uint64_t *hash;
    int fd;
    atomic_int why; /* errno of a failed write */
} blocks;

/* Several chains side by side, because a single one would wait for its multiplications, at a quarter of the speed. */
static uint64_t hash_chains(uint64_t seed, const uint8_t *p, size_t n)
{
    uint64_t h[CHAINS], w[CHAINS];
    for (int i = 0; i < CHAINS; i++) h[i] = seed + (uint64_t)i;
    for (; n >= sizeof w; p += sizeof w, n -= sizeof w) {
        memcpy(w, p, sizeof w);
        for (int i = 0; i < CHAINS; i++) h[i] = ek_mix64(h[i] ^ w[i]);
    }
    for (int i = 0; i < CHAINS; i++) seed = ek_mix64(seed ^ h[i]);
    return ek_hash64(seed, p, n);
}

static void hash_block(void *arg, int task, int worker)
{
    const blocks *b = arg;
    size_t at = (size_t)task * BLOCK, n = b->bytes - at < BLOCK ? b->bytes - at : BLOCK;
    (void)worker;
    b->hash[task] = hash_chains((uint64_t)task, b->data + at, n);
}

static int put(int fd, const void *data, size_t n, size_t at)
{
    for (const char *from = data; n;) {
        ssize_t did = pwrite(fd, from, n, (off_t)at);
        if (did < 0 && errno == EINTR) continue;
        if (did <= 0) return did < 0 ? errno : EIO;
        from += did, at += (size_t)did, n -= (size_t)did;
    }
    return 0;
}

static void write_block(void *arg, int task, int worker)
{
    blocks *b = arg;
    size_t at = (size_t)task * BLOCK, n = b->bytes - at < BLOCK ? b->bytes - at : BLOCK;
    (void)worker;
    int why = put(b->fd, b->data + at, n, b->first + at);
    if (why) atomic_store(&b->why, why);
}

/* A thread of the block's node handles it; at the border of two nodes, of the node with the larger part. */
static void run_blocks(ek_pool *pool, const ek_weights *w, ek_task_fn *fn, blocks *b)
{
    int end[EK_MAX_NODES];
    for (int j = 0; j < ek_pool_nodes(pool); j++) end[j] = (int)((w->node_end[j] + BLOCK / 2) / BLOCK);
    end[ek_pool_nodes(pool) - 1] = (int)blocks_of(b->bytes);
    ek_pool_run_nodes(pool, fn, b, end, true);
}

/* A hash per block; the caller frees the array. */
static uint64_t *hash_all(const uint8_t *data, const ek_weights *w, ek_pool *pool)
{
    blocks b = {.data = data, .bytes = w->block_bytes};
    b.hash = ek_alloc((blocks_of(b.bytes) + 1) * sizeof *b.hash);
    run_blocks(pool, w, hash_block, &b);
    return b.hash;
}

/* --- reading --- */

/* The fault of the file; NULL: it holds these weights. */
static const char *fault(const ek_packed *p, const ek_weights *w, ek_pool *pool)
{
    const size_t bytes = w->block_bytes;
    head h;
    if (p->map.size != p->first + bytes) return "its size is another";
    memcpy(&h, p->map.data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) || h.bytes != bytes || h.n_blocks != blocks_of(bytes))
        return "its head is another file's";
    const uint8_t *hashes = p->map.data + sizeof h;
    size_t hash_bytes = blocks_of(bytes) * sizeof(uint64_t);
    if (ek_hash64(h.n_blocks, hashes, hash_bytes) != h.hashes) return "its head is damaged";
    uint64_t *found = hash_all(p->map.data + p->first, w, pool);
    bool same = !memcmp(found, hashes, hash_bytes);
    free(found);
    return same ? NULL : "its weights are damaged";
}

bool ek_packed_find(ek_packed *p, const ek_weights *w, ek_pool *pool)
{
    if (!ek_is_file(p->path)) return false;
    p->first = first_of(w->block_bytes);
    const char *why = ek_map_open(&p->map, p->path) ? ek_err_text() : fault(p, w, pool);
    if (!why) return true;
    ek_log(EK_LOG_WARN, "%s is not used: %s", p->path, why);
    ek_map_close(&p->map);
    return false;
}

/* --- writing --- */

void ek_packed_write(const ek_packed *p, const ek_weights *w, ek_pool *pool)
{
    const size_t bytes = w->block_bytes, first = first_of(bytes);
    head h = {.bytes = bytes, .n_blocks = blocks_of(bytes)};
    memcpy(h.magic, magic, sizeof magic);
    uint64_t *hashes = hash_all(w->block, w, pool);
    h.hashes = ek_hash64(h.n_blocks, hashes, h.n_blocks * sizeof *hashes);
    uint8_t *front = ek_alloc(first);
    memcpy(front, &h, sizeof h);
    memcpy(front + sizeof h, hashes, h.n_blocks * sizeof *hashes);
    ek_buf temp = {0};
    ek_buf_fmt(&temp, "%s.%d", p->path, (int)getpid());
    unlink(temp.data); /* left by a killed process; a link in its place is not followed */
    int fd = open(temp.data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int why = fd < 0 ? errno : put(fd, front, first, 0);
    blocks b = {.data = w->block, .bytes = bytes, .first = first, .fd = fd};
    if (!why) run_blocks(pool, w, write_block, &b), why = b.why;
    if (!why && fsync(fd)) why = errno;
    if (fd >= 0 && close(fd) && !why) why = errno;
    if (!why && rename(temp.data, p->path)) why = errno;
    if (why) {
        ek_log(EK_LOG_WARN, "%s is not written: %s", p->path, strerror(why));
        unlink(temp.data);
    }
    ek_buf_fini(&temp);
    free(front), free(hashes);
}

void ek_packed_close(ek_packed *p)
{
    ek_map_close(&p->map);
    free(p->path);
    *p = (ek_packed){0};
}
