#include "model/weights/digest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/rng.h"
#include "tensor/gguf.h"

enum { BLOCK = 4 << 20 }; /* bytes that one task hashes */

typedef struct job {
    ek_map map;
    uint64_t *hash; /* of each block */
} job;

static void hash_block(void *arg, int task, int worker)
{
    job *j = arg;
    size_t at = (size_t)task * BLOCK, n = j->map.size - at < BLOCK ? j->map.size - at : BLOCK;
    (void)worker;
    j->hash[task] = ek_hash64((uint64_t)task, j->map.data + at, n);
}

/* Chains one file into h: name, size, the hashes of its blocks. */
static ek_err add_file(uint64_t *h, const char *path, const char *name, ek_pool *pool)
{
    job j = {0};
    EK_TRY(ek_map_open(&j.map, path));
    size_t n_blocks = (j.map.size + BLOCK - 1) / BLOCK;
    j.hash = ek_alloc((n_blocks + 1) * sizeof *j.hash);
    ek_pool_run(pool, hash_block, &j, (int)n_blocks);
    *h = ek_hash64(*h, name, strlen(name));
    *h = ek_hash64(*h ^ j.map.size, j.hash, n_blocks * sizeof *j.hash);
    free(j.hash);
    ek_map_close(&j.map);
    return EK_OK;
}

static int counts(const struct dirent *e)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(e->d_name), m = sizeof end - 1;
    return !strcmp(e->d_name, "config.json") || (n > m && !strcmp(e->d_name + n - m, end));
}

/* Not alphasort, whose order depends on the locale. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static ek_err add_folder(uint64_t *h, const char *path, ek_pool *pool)
{
    struct dirent **entry;
    int n = scandir(path, &entry, counts, by_bytes);
    if (n < 0) return ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", path, strerror(errno));
    ek_err err = n > 0 ? EK_OK : ek_fail(EK_ENOTFOUND, "%s: neither config.json nor *.safetensors", path);
    for (int i = 0; i < n; i++) {
        ek_buf full = {0};
        ek_buf_fmt(&full, "%s/%s", path, entry[i]->d_name);
        if (!err) err = add_file(h, ek_buf_text(&full), entry[i]->d_name, pool);
        ek_buf_fini(&full);
        free(entry[i]);
    }
    free(entry);
    return err;
}

/* The parts of a split file count in order, under no name: a model keeps its identity when its files are renamed. */
static ek_err add_gguf(uint64_t *h, const char *path, ek_pool *pool)
{
    ek_gguf *g;
    EK_TRY(ek_gguf_open(&g, path));
    ek_err err = EK_OK;
    for (int i = 0; !err && i < ek_gguf_part_count(g); i++) err = add_file(h, ek_gguf_part_name(g, i), "", pool);
    ek_gguf_close(g);
    return err;
}

static bool is_gguf(const char *path)
{
    size_t n = strlen(path), m = strlen(".gguf");
    return ek_gguf_is_folder(path) || (n > m && strcmp(path + n - m, ".gguf") == 0);
}

ek_err ek_model_digest(char out[17], const char *path, ek_pool *pool)
{
    uint64_t h = 0;
    ek_err err = is_gguf(path)     ? add_gguf(&h, path, pool)
                 : ek_is_dir(path) ? add_folder(&h, path, pool)
                                   : add_file(&h, path, "", pool);
    ek_pool_leave(pool);
    EK_TRY(err);
    snprintf(out, 17, "%016llx", (unsigned long long)h);
    return EK_OK;
}
