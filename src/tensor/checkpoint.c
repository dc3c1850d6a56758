/* A checkpoint of one or several safetensors files. */
#include "tensor/checkpoint.h"

#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "tensor/gguf.h"

enum { INDEX_LIMIT = 100 * 1000 * 1000 };
static const char index_name[] = "model.safetensors.index.json";

struct shard {
    char *name; /* the name in errors: the path that was opened */
    ek_map map;
};

struct ek_checkpoint {
    struct shard *shard;
    int n_shards;
    ek_tensor *tensor; /* by name */
    int n_tensors, cap;
};

static void add_tensor(void *arg, const ek_tensor *t)
{
    ek_checkpoint *c = arg;
    if (c->n_tensors == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 256;
        c->tensor = ek_realloc(c->tensor, sizeof *c->tensor * (size_t)c->cap);
    }
    c->tensor[c->n_tensors] = *t;
    c->tensor[c->n_tensors++].name = ek_strdup(t->name);
}

static ek_err open_shard(ek_checkpoint *c, const char *path)
{
    c->shard = ek_realloc(c->shard, sizeof *c->shard * (size_t)(c->n_shards + 1));
    struct shard *s = &c->shard[c->n_shards++];
    *s = (struct shard){.name = ek_strdup(path)};
    EK_TRY(ek_map_open(&s->map, path));
    return ek_safetensors_parse(s->map.data, s->map.size, s->name, add_tensor, c);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ek_tensor *)a)->name, ((const ek_tensor *)b)->name);
}

static ek_err sort_by_name(ek_checkpoint *c)
{
    if (c->n_tensors) qsort(c->tensor, (size_t)c->n_tensors, sizeof *c->tensor, by_name);
    for (int i = 1; i < c->n_tensors; i++)
        if (strcmp(c->tensor[i - 1].name, c->tensor[i].name) == 0)
            return ek_fail(EK_EFORMAT, "tensor %.200s is in %s and again in %s", c->tensor[i].name,
                           c->tensor[i - 1].file, c->tensor[i].file);
    return EK_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **name;
    size_t n, cap;
};

static void add_name(struct names *list, const char *name)
{
    if (list->n && strcmp(list->name[list->n - 1], name) == 0) return; /* an index lists files in runs */
    if (list->n == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 16;
        list->name = ek_realloc(list->name, sizeof *list->name * list->cap);
    }
    list->name[list->n++] = ek_strdup(name);
}

/* Sorts the names and removes repeated ones. Sorting is fast enough for an index with as many files as tensors. */
static void sort_names(struct names *list)
{
    size_t kept = 0;
    if (list->n) qsort(list->name, list->n, sizeof *list->name, by_text);
    for (size_t i = 0; i < list->n; i++)
        if (kept && strcmp(list->name[kept - 1], list->name[i]) == 0) free(list->name[i]);
        else list->name[kept++] = list->name[i];
    list->n = kept;
}

static void free_names(struct names *list)
{
    for (size_t i = 0; i < list->n; i++) free(list->name[i]);
    free(list->name);
}

static ek_err list_folder(struct names *list, const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return ek_fail(EK_EIO, "%s: cannot be listed", dir);
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "model", 5) == 0 && ek_ends_with(e->d_name, ".safetensors")) add_name(list, e->d_name);
    closedir(d);
    if (list->n == 0) return ek_fail(EK_ENOTFOUND, "%s: holds no model*.safetensors", dir);
    return EK_OK;
}

static ek_err open_files(ek_checkpoint *c, const char *dir, struct names *list)
{
    sort_names(list);
    for (size_t i = 0; i < list->n; i++) {
        ek_buf path = {0};
        ek_buf_fmt(&path, "%s/%s", dir, list->name[i]);
        ek_err err = open_shard(c, path.data);
        ek_buf_fini(&path);
        EK_TRY(err);
    }
    return EK_OK;
}

/* Refuses a name in the index that leads out of the folder, because it would read other files. */
static bool plain_file_name(const char *s)
{
    return s && *s && *s != '.' && !strchr(s, '/');
}

static ek_err list_index(struct names *list, const json_t *map, const char *path)
{
    const char *tensor;
    json_t *file;
    if (!json_is_object(map) || json_object_size(map) == 0) return ek_fail(EK_EFORMAT, "%s: has no weight_map", path);
    json_object_foreach((json_t *)map, tensor, file)
    {
        if (!plain_file_name(json_string_value(file)))
            return ek_fail(EK_EFORMAT, "%s: the file named for tensor %.200s is not a file of this folder", path,
                           tensor);
        add_name(list, json_string_value(file));
    }
    return EK_OK;
}

static ek_err check_index(const ek_checkpoint *c, const json_t *map, const char *path)
{
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)map, tensor, file)
    {
        const ek_tensor *t = ek_checkpoint_find(c, tensor);
        if (!t) return ek_fail(EK_EFORMAT, "%s: lists tensor %.200s, which no file holds", path, tensor);
        const char *slash = strrchr(t->file, '/');
        if (strcmp(slash ? slash + 1 : t->file, json_string_value(file)) != 0)
            return ek_fail(EK_EFORMAT, "%s: says that tensor %.200s is in %s, it is in %s", path, tensor,
                           json_string_value(file), t->file);
    }
    return EK_OK;
}

static ek_err open_indexed(ek_checkpoint *c, const char *dir, const char *path)
{
    ek_buf text = {0};
    struct names list = {0};
    json_error_t why;
    json_t *index = NULL;
    ek_err err = ek_file_read(&text, path, INDEX_LIMIT);
    if (!err && !(index = json_loadb(ek_buf_text(&text), text.len, JSON_REJECT_DUPLICATES, &why)))
        err = ek_fail(EK_EFORMAT, "%s: %s at byte %d", path, why.text, why.position);
    const json_t *map = json_object_get(index, "weight_map");
    if (!err) err = list_index(&list, map, path);
    if (!err) err = open_files(c, dir, &list);
    if (!err) err = sort_by_name(c);
    if (!err) err = check_index(c, map, path);
    free_names(&list);
    json_decref(index);
    ek_buf_fini(&text);
    return err;
}

static ek_err open_folder(ek_checkpoint *c, const char *dir)
{
    ek_buf path = {0};
    ek_buf_fmt(&path, "%s/%s", dir, index_name);
    ek_err err;
    if (ek_is_file(path.data)) {
        err = open_indexed(c, dir, path.data);
    } else {
        struct names list = {0};
        err = list_folder(&list, dir);
        if (!err) err = open_files(c, dir, &list);
        if (!err) err = sort_by_name(c);
        free_names(&list);
    }
    ek_buf_fini(&path);
    return err;
}

ek_err ek_checkpoint_open(ek_checkpoint **out, const char *path)
{
    ek_checkpoint *c = ek_alloc(sizeof *c);
    ek_err err;
    if (ek_is_dir(path)) {
        err = open_folder(c, path);
    } else {
        err = open_shard(c, path);
        if (!err) err = sort_by_name(c);
    }
    if (err) {
        ek_checkpoint_close(c);
        return err;
    }
    *out = c;
    return EK_OK;
}

void ek_checkpoint_drop_pages(const ek_checkpoint *c)
{
    for (int i = 0; i < c->n_shards; i++) ek_map_drop_pages(&c->shard[i].map);
}

void ek_checkpoint_close(ek_checkpoint *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_tensors; i++) free((char *)c->tensor[i].name);
    for (int i = 0; i < c->n_shards; i++) {
        ek_map_close(&c->shard[i].map);
        free(c->shard[i].name);
    }
    free(c->tensor);
    free(c->shard);
    free(c);
}

int ek_checkpoint_count(const ek_checkpoint *c)
{
    return c->n_tensors;
}

const ek_tensor *ek_checkpoint_at(const ek_checkpoint *c, int i)
{
    EK_ASSERT(i >= 0 && i < c->n_tensors);
    return &c->tensor[i];
}

const ek_tensor *ek_checkpoint_find(const ek_checkpoint *c, const char *name)
{
    ek_tensor key = {.name = name};
    if (c->n_tensors == 0) return NULL;
    return bsearch(&key, c->tensor, (size_t)c->n_tensors, sizeof key, by_name);
}

struct ek_listing {
    ek_listed *one;
    char (*number)[20]; /* names of types without a name */
    int n;
    ek_checkpoint *files; /* files or gguf is set */
    ek_gguf *gguf;
};

static void list_files(ek_listing *l)
{
    for (int i = 0; i < l->n; i++) {
        const ek_tensor *t = ek_checkpoint_at(l->files, i);
        l->one[i] = (ek_listed){.name = t->name, .n_dims = t->n_dims, .bytes = (double)t->bytes};
        for (int d = 0; d < t->n_dims; d++) l->one[i].dim[d] = t->dim[d];
        l->one[i].type = ek_dtype_name(t->dtype);
    }
}

static void list_gguf(ek_listing *l)
{
    for (int i = 0; i < l->n; i++) {
        const ek_gguf_tensor *t = ek_gguf_tensor_at(l->gguf, i);
        const ek_gguf_type *type = ek_gguf_type_of(t->type);
        if (!type) snprintf(l->number[i], sizeof l->number[i], "type %u", t->type);
        l->one[i] = (ek_listed){.name = t->name, .n_dims = t->n_dims, .bytes = (double)t->bytes};
        for (int d = 0; d < t->n_dims; d++) l->one[i].dim[d] = t->dim[t->n_dims - 1 - d];
        l->one[i].type = type ? type->name : l->number[i];
    }
}

ek_err ek_listing_open(ek_listing **out, const char *path)
{
    ek_listing *l = ek_alloc(sizeof *l);
    bool gguf = ek_gguf_is_file(path) || ek_gguf_is_folder(path);
    *out = NULL;
    ek_err err = gguf ? ek_gguf_open(&l->gguf, path) : ek_checkpoint_open(&l->files, path);
    if (err) {
        free(l);
        return err;
    }
    l->n = gguf ? ek_gguf_tensor_count(l->gguf) : ek_checkpoint_count(l->files);
    l->one = ek_alloc(sizeof *l->one * ((size_t)l->n + 1));
    l->number = ek_alloc(sizeof *l->number * ((size_t)l->n + 1));
    if (gguf) list_gguf(l);
    else list_files(l);
    *out = l;
    return EK_OK;
}

void ek_listing_close(ek_listing *l)
{
    if (!l) return;
    ek_checkpoint_close(l->files);
    ek_gguf_close(l->gguf);
    free(l->one);
    free(l->number);
    free(l);
}

int ek_listing_count(const ek_listing *l)
{
    return l->n;
}

const ek_listed *ek_listing_at(const ek_listing *l, int i)
{
    EK_ASSERT(i >= 0 && i < l->n);
    return &l->one[i];
}
