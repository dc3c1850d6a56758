/* The SHA-256 of a model's files, as sha256sum computes it. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "model/weights/digest.h"
#include "tensor/gguf.h"

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
static void sum(char out[EK_MODEL_DIGEST], const files *f)
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
        else sum(weights, &w);
        if (folder) sum(tokenizer, &t);
        else memcpy(tokenizer, weights, EK_MODEL_DIGEST);
    }
    fini(&w), fini(&t);
    return err;
}
