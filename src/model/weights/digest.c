#include "model/weights/digest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "base/linux.h"
#include "base/log.h"
#include "tensor/gguf.h"

enum { BLOCK = 4 << 20, HASH = 32, KEPT_LIMIT = 1 << 20 }; /* bytes per task; of the kept hashes */

/* --- a file --- */

typedef struct job {
    ek_map map;
    uint8_t *hash; /* of each block */
} job;

static void hash_block(void *arg, int task, int worker)
{
    job *j = arg;
    const size_t at = (size_t)task * BLOCK, n = j->map.size - at < BLOCK ? j->map.size - at : BLOCK;
    (void)worker;
    ek_sha256(j->hash + (size_t)task * HASH, j->map.data + at, n);
}

/* The SHA-256 of the file's size and of its blocks' SHA-256. */
static ek_err hash_file(uint8_t out[HASH], const char *path, ek_pool *pool)
{
    job j = {0};
    char size[32];
    EK_TRY(ek_map_open(&j.map, path));
    const size_t n = (j.map.size + BLOCK - 1) / BLOCK;
    ek_buf all = {0};
    j.hash = ek_alloc((n + 1) * HASH);
    ek_pool_run(pool, hash_block, &j, (int)n);
    snprintf(size, sizeof size, "%zu\n", j.map.size);
    ek_buf_str(&all, size);
    ek_buf_add(&all, j.hash, n * HASH);
    ek_sha256(out, all.data, all.len);
    ek_buf_fini(&all);
    free(j.hash);
    ek_map_close(&j.map);
    return EK_OK;
}

/* --- kept hashes --- */

/* The file's text: lines "DEV INODE SIZE MTIME CTIME HASH", and at the end the SHA-256 of the lines before. */
typedef struct kept {
    char *path;        /* NULL: nothing is kept */
    ek_buf text, next; /* as read, without the last line; as it will be written */
    bool changed;
} kept;

static const char title[] = "evenkeel: digests of files, by device, inode, size and times\n";

static void open_kept(kept *k, const char *model, const char *folder)
{
    enum { SUM = 65 }; /* the last line */
    char hex[65];
    ek_buf path = {0};
    *k = (kept){0};
    char *real = folder && folder[0] ? realpath(model, NULL) : NULL;
    if (!real) return;
    ek_sha256_hex(hex, real, strlen(real));
    ek_buf_fmt(&path, "%s/digest-%.16s", folder, hex);
    k->path = path.data;
    free(real);
    const ek_err err = ek_file_read(&k->text, k->path, KEPT_LIMIT);
    bool good = !err && k->text.len >= SUM + sizeof title - 1 && !memchr(k->text.data, 0, k->text.len) &&
                strncmp(k->text.data, title, sizeof title - 1) == 0;
    if (good) {
        const size_t n = k->text.len - SUM;
        ek_sha256_hex(hex, k->text.data, n);
        good = memcmp(hex, k->text.data + n, 64) == 0;
        k->text.data[n] = 0, k->text.len = n;
    }
    if (!good && err != EK_ENOTFOUND) ek_log(EK_LOG_DEBUG, "%s is not used: the model is hashed anew", k->path);
    if (!good) ek_buf_clear(&k->text);
    ek_buf_str(&k->next, title);
}

static bool key_of(ek_buf *out, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return false;
    ek_buf_fmt(out, "\n%llu %llu %lld %lld.%09ld %lld.%09ld ", (unsigned long long)st.st_dev,
               (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    return true;
}

static bool read_hash(uint8_t out[HASH], const char *hex)
{
    for (int i = 0; i < HASH; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return false;
        out[i] = (uint8_t)byte;
    }
    return true;
}

/* Takes the kept hash if the file is unchanged. If the file changes while it is read, its hash is not kept. */
static ek_err hash_kept(uint8_t out[HASH], const char *path, kept *k, ek_pool *pool)
{
    ek_buf key = {0}, after = {0};
    const bool known = k->path && key_of(&key, path);
    const char *at = known && k->text.len ? strstr(k->text.data, key.data) : NULL;
    ek_err err = EK_OK;
    if (!at || !read_hash(out, at + key.len)) {
        err = hash_file(out, path, pool);
        k->changed = true;
    }
    if (!err && known && key_of(&after, path) && strcmp(key.data, after.data) == 0) {
        ek_buf_add(&k->next, key.data + 1, key.len - 1);
        for (int i = 0; i < HASH; i++) ek_buf_fmt(&k->next, "%02x", out[i]);
        ek_buf_char(&k->next, '\n');
    }
    ek_buf_fini(&key), ek_buf_fini(&after);
    return err;
}

static void close_kept(kept *k, bool good)
{
    char hex[65];
    if (good && k->path && k->changed) {
        ek_sha256_hex(hex, k->next.data, k->next.len);
        ek_buf_fmt(&k->next, "%s\n", hex);
        ek_file_make_folders(k->path);
        if (ek_file_replace(k->path, k->next.data, k->next.len, 0600))
            ek_log(EK_LOG_DEBUG, "the model's digest is not kept: %s", ek_err_text());
    }
    ek_buf_fini(&k->text), ek_buf_fini(&k->next);
    free(k->path);
}

/* --- a checkpoint --- */

typedef struct sum {
    ek_sha256_state s;
    kept kept;
    ek_pool *pool;
} sum;

/* Adds name and content, each after its length. */
static ek_err add_file(sum *s, const char *path, const char *name)
{
    uint8_t hash[HASH];
    EK_TRY(hash_kept(hash, path, &s->kept, s->pool));
    ek_sha256_add(&s->s, name, strlen(name) + 1);
    ek_sha256_add(&s->s, hash, sizeof hash);
    return EK_OK;
}

static int counts(const struct dirent *e)
{
    static const char *const whole[] = {"config.json", "generation_config.json", "preprocessor_config.json",
                                        "processor_config.json", "tokenizer.json"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!strcmp(e->d_name, whole[i])) return 1;
    return ek_ends_with(e->d_name, ".safetensors") && strcmp(e->d_name, ".safetensors") != 0;
}

static ek_err add_folder(sum *s, const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, counts, ek_by_bytes);
    if (n < 0) return ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", path, strerror(errno));
    ek_err err = n > 0 ? EK_OK : ek_fail(EK_ENOTFOUND, "%s: neither config.json nor *.safetensors", path);
    for (int i = 0; i < n; i++) {
        ek_buf full = {0};
        ek_buf_fmt(&full, "%s/%s", path, entry[i]->d_name);
        if (!err) err = add_file(s, ek_buf_text(&full), entry[i]->d_name);
        ek_buf_fini(&full);
        free(entry[i]);
    }
    free(entry);
    return err;
}

/* The files of a split model count in order, without names, so that a model keeps its identity when its files are
 * renamed. */
static ek_err add_gguf(sum *s, const char *path)
{
    ek_gguf *g;
    EK_TRY(ek_gguf_open(&g, path));
    ek_err err = EK_OK;
    for (int i = 0; !err && i < ek_gguf_file_count(g); i++) err = add_file(s, ek_gguf_file_name(g, i), "");
    ek_gguf_close(g);
    return err;
}

static bool is_gguf(const char *path)
{
    return ek_gguf_is_folder(path) || ek_ends_with(path, ".gguf");
}

ek_err ek_model_digest_kept(char out[EK_MODEL_DIGEST], const char *path, const char *folder, ek_pool *pool)
{
    sum s = {.pool = pool};
    open_kept(&s.kept, path, folder);
    ek_sha256_init(&s.s);
    ek_err err = is_gguf(path) ? add_gguf(&s, path) : ek_is_dir(path) ? add_folder(&s, path) : add_file(&s, path, "");
    ek_pool_leave(pool);
    close_kept(&s.kept, !err);
    if (!err) ek_sha256_end(&s.s, out);
    return err;
}

ek_err ek_model_digest(char out[EK_MODEL_DIGEST], const char *path, ek_pool *pool)
{
    return ek_model_digest_kept(out, path, NULL, pool);
}

/* --- the SHA-256 of files as sha256sum computes it --- */

enum { MAX_FILES = 4096 };

typedef struct file {
    char *path, *name;
    char hex[65];
    ek_err err;
    char why[256];
} file;

typedef struct files {
    file *at;
    int n;
} files;

static void add(files *f, const char *path, const char *name)
{
    f->at = ek_realloc(f->at, (size_t)(f->n + 1) * sizeof *f->at);
    f->at[f->n++] = (file){.path = ek_strdup(path), .name = ek_strdup(name)};
}

static void fini(files *f)
{
    for (int i = 0; i < f->n; i++) free(f->at[i].path), free(f->at[i].name);
    free(f->at);
}

static void hash_task(void *arg, int task, int worker)
{
    file *f = &((files *)arg)->at[task];
    ek_map map;
    (void)worker;
    f->err = ek_map_open(&map, f->path);
    if (f->err) snprintf(f->why, sizeof f->why, "%s", ek_err_text());
    if (f->err) return;
    ek_sha256_hex(f->hex, map.data, map.size);
    ek_map_close(&map);
}

static int by_line(const void *a, const void *b)
{
    const file *x = a, *y = b;
    const int order = strcmp(x->hex, y->hex);
    return order ? order : strcmp(x->name, y->name);
}

/* The hash of a single file; of several files, that of the lines that sha256sum prints. */
static void sum_lines(char out[EK_MODEL_DIGEST], const files *f)
{
    ek_buf lines = {0};
    for (int i = 0; i < f->n; i++) ek_buf_fmt(&lines, "%s  %s\n", f->at[i].hex, f->at[i].name);
    ek_sha256_hex(out, ek_buf_text(&lines), lines.len);
    ek_buf_fini(&lines);
}

static ek_err hash_all(files *f, ek_pool *pool)
{
    ek_pool_run(pool, hash_task, f, f->n);
    ek_pool_leave(pool);
    for (int i = 0; i < f->n; i++)
        if (f->at[i].err) return ek_fail(f->at[i].err, "%s", f->at[i].why);
    return EK_OK;
}

/* A shell's * leaves out names that begin with a dot. */
static bool is_weight(const char *name)
{
    return !strcmp(name, "config.json") || (*name != '.' && ek_ends_with(name, ".safetensors"));
}

static bool is_tokenizer(const char *name)
{
    static const char *const all[] = {"chat_template.jinja",   "generation_config.json", "preprocessor_config.json",
                                      "processor_config.json", "tokenizer.json",         "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i])) return true;
    return false;
}

static ek_err list_folder(files *weights, files *tokenizer, const char *path)
{
    DIR *d = opendir(path);
    if (!d) return ek_fail(errno == ENOENT ? EK_ENOTFOUND : EK_EIO, "%s: %s", path, strerror(errno));
    bool many = false;
    for (struct dirent *e; !many && (e = readdir(d)) != NULL;) {
        files *to = is_weight(e->d_name) ? weights : is_tokenizer(e->d_name) ? tokenizer : NULL;
        many = to && to->n == MAX_FILES;
        if (!to || many) continue;
        ek_buf full = {0};
        ek_buf_fmt(&full, "%s/%s", path, e->d_name);
        add(to, ek_buf_text(&full), e->d_name);
        ek_buf_fini(&full);
    }
    closedir(d);
    if (many) return ek_fail(EK_ETOOLARGE, "%s: more than %d files of weights", path, MAX_FILES);
    if (weights->n > 0 && tokenizer->n > 0) return EK_OK;
    return ek_fail(EK_ENOTFOUND, "%s: no %s in it", path, weights->n ? "tokenizer.json" : "config.json");
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static ek_err list_gguf(files *weights, const char *path)
{
    ek_gguf *g;
    EK_TRY(ek_gguf_open(&g, path));
    for (int i = 0; i < ek_gguf_file_count(g); i++)
        add(weights, ek_gguf_file_name(g, i), name_of(ek_gguf_file_name(g, i)));
    ek_gguf_close(g);
    return EK_OK;
}

ek_err ek_model_sha256(char weights[EK_MODEL_DIGEST], char tokenizer[EK_MODEL_DIGEST], const char *path,
                       const char *more, ek_pool *pool)
{
    files w = {0}, t = {0};
    ek_err err;
    const bool folder = ek_is_dir(path) && !ek_gguf_is_folder(path);
    if (folder) err = list_folder(&w, &t, path);
    else if (ek_is_dir(path) || ek_ends_with(path, ".gguf")) err = list_gguf(&w, path);
    else add(&w, path, name_of(path)), err = EK_OK;
    if (!err && more) add(&w, more, name_of(more));
    if (!err) err = hash_all(&w, pool);
    if (!err) err = hash_all(&t, pool);
    if (!err) {
        if (folder) qsort(w.at, (size_t)w.n, sizeof *w.at, by_line);
        if (folder) qsort(t.at, (size_t)t.n, sizeof *t.at, by_line);
        if (!folder && w.n == 1) memcpy(weights, w.at[0].hex, EK_MODEL_DIGEST);
        else sum_lines(weights, &w);
        if (folder) sum_lines(tokenizer, &t);
        else memcpy(tokenizer, weights, EK_MODEL_DIGEST);
    }
    fini(&w), fini(&t);
    return err;
}
