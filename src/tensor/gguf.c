/* GGUF files on disk: one file, or the files of a split model. */
#include "tensor/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "tensor/gguf_state.h"

enum { MAX_PARTS = 9999, TAIL = sizeof "-00001-of-00002.gguf" - 1 };

static ek_err add_file(ek_gguf *g, const char *path)
{
    ek_gguf_file *p = &g->file[g->n_files++];
    p->name = ek_strdup(path);
    EK_TRY(ek_map_open(&p->map, path));
    return ek_gguf_file_parse(g, p, p->map.data ? p->map.data : (const uint8_t *)"", p->map.size);
}

static ek_gguf *new_gguf(int n_files)
{
    ek_gguf *g = ek_alloc(sizeof *g);
    g->file = ek_alloc(sizeof *g->file * (size_t)n_files);
    return g;
}

void ek_gguf_close(ek_gguf *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_tensors; i++) free((char *)g->tensor[i].name);
    for (int i = 0; i < g->n_files; i++) {
        ek_map_close(&g->file[i].map);
        free(g->file[i].name);
        free(g->file[i].value);
    }
    free(g->tensor);
    free(g->file);
    free(g->by_key);
    free(g->by_name);
    free(g);
}

void ek_gguf_drop_pages(const ek_gguf *g)
{
    for (int i = 0; i < g->n_files; i++) ek_map_drop_pages(&g->file[i].map);
}

static ek_err finish(ek_gguf **out, ek_gguf *g, ek_err err)
{
    if (!err) err = ek_gguf_index(g);
    if (err) ek_gguf_close(g);
    else *out = g;
    return err;
}

int ek_gguf_file_count(const ek_gguf *g)
{
    return g->n_files;
}

const char *ek_gguf_file_name(const ek_gguf *g, int i)
{
    EK_ASSERT(i >= 0 && i < g->n_files);
    return g->file[i].name;
}

/* ------------------------------------------------------------------ split files */

/* A whole number in a part. The key may be absent. */
static ek_err split_number(const ek_gguf_file *p, const char *key, int64_t absent, int64_t max, int64_t *out)
{
    const ek_gguf_value *v = ek_gguf_file_find(p, key);
    *out = absent;
    if (!v) return EK_OK;
    if (v->is_array || !ek_gguf_int(v, 0, out) || *out < 0 || *out > max)
        return ek_fail(EK_EFORMAT, "%s: %s must be a number from 0 to %lld", p->name, key, (long long)max);
    return EK_OK;
}

/* The name without "-00001-of-0000N.gguf"; false if it does not end so, or not with n parts. */
static bool file_stem(const char *path, int n, size_t *stem)
{
    size_t len = strlen(path);
    int no, of, used = 0;
    if (len <= TAIL) return false;
    *stem = len - TAIL;
    return sscanf(path + *stem, "-%5d-of-%5d.gguf%n", &no, &of, &used) == 2 && used == TAIL && of == n;
}

static void file_path(ek_buf *out, const char *path, size_t stem, int no, int n)
{
    ek_buf_clear(out);
    ek_buf_add(out, path, stem);
    ek_buf_fmt(out, "-%05d-of-%05d.gguf", no + 1, n);
}

static ek_err check_present(const char *path, size_t stem, int n)
{
    enum { NAMED = 4 };
    ek_buf name = {0}, missing = {0};
    int n_missing = 0;
    for (int i = 0; i < n; i++) {
        file_path(&name, path, stem, i, n);
        if (ek_is_file(name.data)) continue;
        if (n_missing++ < NAMED) ek_buf_fmt(&missing, "%s%s", missing.len ? ", " : "", name.data);
    }
    ek_err err = EK_OK;
    if (n_missing)
        err = ek_fail(EK_ENOTFOUND, "%s: %d of its %d parts are missing: %s%s", path, n_missing, n, missing.data,
                      n_missing > NAMED ? ", …" : "");
    ek_buf_fini(&name);
    ek_buf_fini(&missing);
    return err;
}

static ek_err check_file(const ek_gguf_file *p, int no, int n)
{
    int64_t has_no, has_n;
    EK_TRY(split_number(p, "split.no", -1, MAX_PARTS, &has_no));
    EK_TRY(split_number(p, "split.count", 0, MAX_PARTS, &has_n));
    if (has_no == no && has_n == n) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: its metadata says part %lld of %lld, its name part %d of %d", p->name,
                   (long long)has_no + 1, (long long)has_n, no + 1, n);
}

static ek_err open_files(ek_gguf *g, const char *path, size_t stem, int n)
{
    int64_t total;
    ek_buf name = {0};
    ek_err err = check_present(path, stem, n);
    for (int i = 0; i < n && !err; i++) {
        file_path(&name, path, stem, i, n);
        err = add_file(g, name.data);
        if (!err) err = check_file(&g->file[i], i, n);
    }
    ek_buf_fini(&name);
    EK_TRY(err);
    EK_TRY(split_number(&g->file[0], "split.tensors.count", g->n_tensors, INT32_MAX, &total));
    if (total == g->n_tensors) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: states %lld tensors in %d parts, they have %d", path, (long long)total, n,
                   g->n_tensors);
}

static ek_err open_path(ek_gguf **out, const char *path)
{
    int64_t n;
    size_t stem;
    ek_gguf *g = new_gguf(1);
    ek_err err = add_file(g, path);
    if (!err) err = split_number(&g->file[0], "split.count", 0, MAX_PARTS, &n);
    if (err || n <= 1) return finish(out, g, err);
    ek_gguf_close(g);
    if (!file_stem(path, (int)n, &stem))
        return ek_fail(EK_EFORMAT,
                       "%s: is one of %lld parts, but its name does not end in -0000N-of-%05lld.gguf, so that the "
                       "others cannot be found",
                       path, (long long)n, (long long)n);
    g = new_gguf((int)n);
    return finish(out, g, open_files(g, path, stem, (int)n));
}

/* Finds the files that are models, and the file of a folder that is opened. */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Towers, and statistics for quantisers, lie beside models under these names. Parts after the first belong to the
 * first. */
static int may_be_model(const struct dirent *e)
{
    int no;
    size_t n = strlen(e->d_name), tail = sizeof "-00001-of-00002.gguf" - 1;
    if (!ends_with(e->d_name, ".gguf") || strstr(e->d_name, "mmproj") || strstr(e->d_name, "imatrix")) return 0;
    return !(n > tail && sscanf(e->d_name + n - tail, "-%5d-of-", &no) == 1 && no != 1);
}

static int is_safetensors(const struct dirent *e)
{
    return ends_with(e->d_name, ".safetensors");
}

/* Not alphasort, whose order depends on the locale. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int list(const char *dir, int (*wanted)(const struct dirent *), struct dirent ***entry)
{
    int n = scandir(dir, entry, wanted, by_bytes);
    if (n < 0) *entry = NULL;
    return n < 0 ? 0 : n;
}

static void free_list(struct dirent **entry, int n)
{
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
}

bool ek_gguf_is_file(const char *path)
{
    ek_map m;
    size_t n = strlen(path);
    if (ek_map_open(&m, path)) return false;
    bool is = (m.size >= 4 && memcmp(m.data, "GGUF", 4) == 0) || (n > 5 && strcasecmp(path + n - 5, ".gguf") == 0);
    ek_map_close(&m);
    return is;
}

bool ek_gguf_is_folder(const char *path)
{
    struct dirent **entry;
    if (!ek_is_dir(path)) return false;
    int others = list(path, is_safetensors, &entry);
    free_list(entry, others);
    int n = list(path, may_be_model, &entry);
    free_list(entry, n);
    return n > 0 && others == 0;
}

/* Appends the path of a model's GGUF file: path itself, or the file in that folder. ENOTFOUND without one; EINVAL lists
 * several. */
static ek_err model_path(ek_buf *out, const char *path)
{
    enum { NAMED = 8 };
    struct dirent **entry;
    ek_err err = EK_OK;
    if (!ek_is_dir(path)) {
        ek_buf_str(out, path);
        return EK_OK;
    }
    int n = list(path, may_be_model, &entry);
    if (n == 0) err = ek_fail(EK_ENOTFOUND, "%s: holds no GGUF file", path);
    if (n == 1) ek_buf_fmt(out, "%s/%s", path, entry[0]->d_name);
    if (n > 1) {
        ek_buf names = {0};
        for (int i = 0; i < n && i < NAMED; i++) ek_buf_fmt(&names, "%s%s", i ? ", " : "", entry[i]->d_name);
        err = ek_fail(EK_EINVAL, "%s: holds %d models, name one of them: %s%s", path, n, names.data,
                      n > NAMED ? ", …" : "");
        ek_buf_fini(&names);
    }
    free_list(entry, n);
    return err;
}

ek_err ek_gguf_open(ek_gguf **out, const char *path)
{
    ek_buf file = {0};
    *out = NULL;
    ek_err err = model_path(&file, path);
    if (!err) err = open_path(out, file.data);
    ek_buf_fini(&file);
    return err;
}
