/* Open GGUF files, one or the files of a split model: look-ups, the values of metadata, opening. */
#include "tensor/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/gguf_state.h"

enum { MAX_PARTS = 9999, TAIL = sizeof "-00001-of-00002.gguf" - 1 };

/* Source: ggml.h, ggml-common.h. Types with a row of the same name in ops/weights/weight_type.c can be run. */
static const ek_gguf_type types[] = {
    [0] = {"f32", 1, 4},         [1] = {"f16", 1, 2},         [2] = {"q4_0", 32, 18},      [3] = {"q4_1", 32, 20},
    [6] = {"q5_0", 32, 22},      [7] = {"q5_1", 32, 24},      [8] = {"q8_0", 32, 34},      [9] = {"q8_1", 32, 36},
    [10] = {"q2_k", 256, 84},    [11] = {"q3_k", 256, 110},   [12] = {"q4_k", 256, 144},   [13] = {"q5_k", 256, 176},
    [14] = {"q6_k", 256, 210},   [15] = {"q8_k", 256, 292},   [16] = {"iq2_xxs", 256, 66}, [17] = {"iq2_xs", 256, 74},
    [18] = {"iq3_xxs", 256, 98}, [19] = {"iq1_s", 256, 50},   [20] = {"iq4_nl", 32, 18},   [21] = {"iq3_s", 256, 110},
    [22] = {"iq2_s", 256, 82},   [23] = {"iq4_xs", 256, 136}, [24] = {"i8", 1, 1},         [25] = {"i16", 1, 2},
    [26] = {"i32", 1, 4},        [27] = {"i64", 1, 8},        [28] = {"f64", 1, 8},        [29] = {"iq1_m", 256, 56},
    [30] = {"bf16", 1, 2},       [34] = {"tq1_0", 256, 54},   [35] = {"tq2_0", 256, 66},   [39] = {"mxfp4", 32, 17},
    [40] = {"nvfp4", 64, 36},    [41] = {"q1_0", 128, 18},    [42] = {"q2_0", 64, 18},
};

const ek_gguf_type *ek_gguf_type_of(uint32_t number)
{
    if (number >= sizeof types / sizeof *types) return NULL;
    return types[number].name ? &types[number] : NULL;
}

/* ------------------------------------------------------------------ look-up */

static int compare_keys(const char *a, size_t n, const char *b, size_t m)
{
    int c = memcmp(a, b, n < m ? n : m);
    return c ? c : n < m ? -1 : n > m;
}

static int by_key(const void *a, const void *b)
{
    const ek_gguf_value *x = *(const ek_gguf_value *const *)a, *y = *(const ek_gguf_value *const *)b;
    return compare_keys(x->key, x->n_key, y->key, y->n_key);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const ek_gguf_tensor *const *)a)->name, (*(const ek_gguf_tensor *const *)b)->name);
}

ek_err ek_gguf_index(ek_gguf *g)
{
    const ek_gguf_file *p = &g->file[0];
    g->by_key = ek_alloc(sizeof *g->by_key * ((size_t)p->n_values + 1));
    for (int i = 0; i < p->n_values; i++) g->by_key[i] = &p->value[i];
    if (p->n_values) qsort(g->by_key, (size_t)p->n_values, sizeof *g->by_key, by_key);
    for (int i = 1; i < p->n_values; i++)
        if (by_key(&g->by_key[i - 1], &g->by_key[i]) == 0)
            return ek_fail(EK_EFORMAT, "%s: metadata %.*s is there twice", p->name,
                           g->by_key[i]->n_key < 100 ? (int)g->by_key[i]->n_key : 100, g->by_key[i]->key);
    g->by_name = ek_alloc(sizeof *g->by_name * ((size_t)g->n_tensors + 1));
    for (int i = 0; i < g->n_tensors; i++) g->by_name[i] = &g->tensor[i];
    if (g->n_tensors) qsort(g->by_name, (size_t)g->n_tensors, sizeof *g->by_name, by_name);
    for (int i = 1; i < g->n_tensors; i++)
        if (by_name(&g->by_name[i - 1], &g->by_name[i]) == 0)
            return ek_fail(EK_EFORMAT, "tensor %s is in %s and again in %s", g->by_name[i]->name,
                           g->by_name[i - 1]->file, g->by_name[i]->file);
    return EK_OK;
}

const ek_gguf_value *ek_gguf_find(const ek_gguf *g, const char *key)
{
    ek_gguf_value v = {.key = key, .n_key = strlen(key)};
    const ek_gguf_value *wanted = &v;
    int n = g->file[0].n_values;
    if (!n) return NULL;
    const ek_gguf_value **found = bsearch(&wanted, g->by_key, (size_t)n, sizeof *g->by_key, by_key);
    return found ? *found : NULL;
}

int ek_gguf_tensor_count(const ek_gguf *g)
{
    return g->n_tensors;
}

const ek_gguf_tensor *ek_gguf_tensor_at(const ek_gguf *g, int i)
{
    EK_ASSERT(i >= 0 && i < g->n_tensors);
    return &g->tensor[i];
}

const ek_gguf_tensor *ek_gguf_tensor_find(const ek_gguf *g, const char *name)
{
    ek_gguf_tensor t = {.name = name};
    const ek_gguf_tensor *wanted = &t;
    if (!g->n_tensors) return NULL;
    const ek_gguf_tensor **found = bsearch(&wanted, g->by_name, (size_t)g->n_tensors, sizeof *g->by_name, by_name);
    return found ? *found : NULL;
}

/* ------------------------------------------------------------------ values */

#define LOAD(T, from, i)                                                      \
    ({                                                                        \
        T load_v;                                                             \
        memcpy(&load_v, (from) + sizeof load_v * (size_t)(i), sizeof load_v); \
        load_v;                                                               \
    })

bool ek_gguf_int(const ek_gguf_value *v, uint64_t i, int64_t *out)
{
    if (i >= v->count) return false;
    switch (v->kind) {
    case EK_GGUF_BOOL: *out = v->data[i] != 0; return true;
    case EK_GGUF_U8: *out = v->data[i]; return true;
    case EK_GGUF_I8: *out = LOAD(int8_t, v->data, i); return true;
    case EK_GGUF_U16: *out = LOAD(uint16_t, v->data, i); return true;
    case EK_GGUF_I16: *out = LOAD(int16_t, v->data, i); return true;
    case EK_GGUF_U32: *out = LOAD(uint32_t, v->data, i); return true;
    case EK_GGUF_I32: *out = LOAD(int32_t, v->data, i); return true;
    case EK_GGUF_I64: *out = LOAD(int64_t, v->data, i); return true;
    case EK_GGUF_U64: {
        uint64_t u = LOAD(uint64_t, v->data, i);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    }
    default: return false;
    }
}

bool ek_gguf_float(const ek_gguf_value *v, uint64_t i, double *out)
{
    int64_t whole;
    if (i >= v->count) return false;
    if (v->kind == EK_GGUF_F32) *out = (double)LOAD(float, v->data, i);
    else if (v->kind == EK_GGUF_F64) *out = LOAD(double, v->data, i);
    else if (v->kind != EK_GGUF_BOOL && ek_gguf_int(v, i, &whole)) *out = (double)whole;
    else return false;
    return true;
}

bool ek_gguf_next_text(const ek_gguf_value *v, const uint8_t **at, const char **s, size_t *n)
{
    if (v->kind != EK_GGUF_STRING || *at == v->data + v->bytes) return false;
    *n = (size_t)LOAD(uint64_t, *at, 0);
    *s = (const char *)*at + sizeof(uint64_t);
    *at += sizeof(uint64_t) + *n;
    return true;
}

bool ek_gguf_text(const ek_gguf_value *v, const char **s, size_t *n)
{
    const uint8_t *at = v->data;
    return !v->is_array && ek_gguf_next_text(v, &at, s, n);
}

bool ek_gguf_text_is(const ek_gguf_value *v, const char *s)
{
    const char *has;
    size_t n;
    return v && ek_gguf_text(v, &has, &n) && n == strlen(s) && memcmp(has, s, n) == 0;
}

/* ------------------------------------------------------------------ files */

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

/* Towers, and statistics for quantisers, lie beside models under these names. Parts after the first belong to the
 * first. */
static int may_be_model(const struct dirent *e)
{
    int no;
    size_t n = strlen(e->d_name), tail = sizeof "-00001-of-00002.gguf" - 1;
    if (!ek_ends_with(e->d_name, ".gguf") || strstr(e->d_name, "mmproj") || strstr(e->d_name, "imatrix")) return 0;
    return !(n > tail && sscanf(e->d_name + n - tail, "-%5d-of-", &no) == 1 && no != 1);
}

static int is_safetensors(const struct dirent *e)
{
    return ek_ends_with(e->d_name, ".safetensors");
}

static int list(const char *dir, int (*wanted)(const struct dirent *), struct dirent ***entry)
{
    int n = scandir(dir, entry, wanted, ek_by_bytes);
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
