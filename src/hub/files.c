#include "hub/files.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "hub/name.h"

enum { MAX_FILES = 20000, MAX_DEEP = 3 * MAX_FILES, MAX_VALUES = 30 * MAX_FILES };

void ek_hub_files_add(ek_hub_files *f, const char *path, int64_t size, const char *hash)
{
    if ((f->n & (f->n - 1)) == 0) f->v = ek_realloc(f->v, sizeof *f->v * (f->n ? 2 * (size_t)f->n : 1));
    ek_hub_file *file = &f->v[f->n++];
    *file = (ek_hub_file){.path = ek_strdup(path), .size = size};
    strncpy(file->hash, hash, sizeof file->hash - 1);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const ek_hub_file *)a)->path, ((const ek_hub_file *)b)->path);
}

void ek_hub_files_sort(ek_hub_files *f)
{
    if (f->n) qsort(f->v, (size_t)f->n, sizeof *f->v, by_path);
}

const ek_hub_file *ek_hub_files_find(const ek_hub_files *f, const char *path)
{
    ek_hub_file key = {.path = (char *)path};
    return f->n ? bsearch(&key, f->v, (size_t)f->n, sizeof key, by_path) : NULL;
}

void ek_hub_files_fini(ek_hub_files *f)
{
    for (int i = 0; i < f->n; i++) free(f->v[i].path);
    free(f->v);
    *f = (ek_hub_files){0};
}

/* A large file's content is in LFS, which knows its sha256; a small one is a git object. */
static ek_err read_file(ek_hub_files *out, const json_t *sibling)
{
    const char *path = json_string_value(json_object_get(sibling, "rfilename"));
    const json_t *lfs = json_object_get(sibling, "lfs");
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : sibling, "size");
    const char *hash = json_is_object(lfs) ? json_string_value(json_object_get(lfs, "sha256"))
                                           : json_string_value(json_object_get(sibling, "blobId"));
    if (!path) return ek_fail(EK_EFORMAT, "lists a file without a name");
    if (!ek_hub_is_path(path))
        return ek_fail(EK_EFORMAT, "lists a file %.200s, which would be put outside its folder", path);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return ek_fail(EK_EFORMAT, "gives no size for %.200s", path);
    if (!hash || strlen(hash) != (json_is_object(lfs) ? 64 : 40) || !ek_hub_is_hash(hash))
        return ek_fail(EK_EFORMAT, "gives no hash for %.200s", path);
    ek_hub_files_add(out, path, json_integer_value(size), hash);
    return EK_OK;
}

static ek_err read_reply(ek_hub_files *out, const json_t *root)
{
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *siblings = json_object_get(root, "siblings");
    if (!commit || !ek_hub_is_commit(commit)) return ek_fail(EK_EFORMAT, "has no commit (\"sha\")");
    if (!json_is_array(siblings)) return ek_fail(EK_EFORMAT, "has no list of files (\"siblings\")");
    if (json_array_size(siblings) > MAX_FILES)
        return ek_fail(EK_EFORMAT, "lists %zu files, at most %d are read", json_array_size(siblings), MAX_FILES);
    memcpy(out->commit, commit, sizeof out->commit);
    for (size_t i = 0; i < json_array_size(siblings); i++) EK_TRY(read_file(out, json_array_get(siblings, i)));
    ek_hub_files_sort(out);
    for (int i = 1; i < out->n; i++)
        if (!strcmp(out->v[i - 1].path, out->v[i].path))
            return ek_fail(EK_EFORMAT, "lists %.200s twice", out->v[i].path);
    return EK_OK;
}

/* A list of what is short in text and large in memory ("{},{},…") is refused before it is made. */
static ek_err check_values(const char *json, size_t n)
{
    int deep = 0, values = 0;
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        if (text) {
            if (json[i] == '\\') i++;
            else text = json[i] != '"';
            continue;
        }
        text = json[i] == '"';
        deep += json[i] == '{' || json[i] == '[';
        values += json[i] == ',';
    }
    if (deep > MAX_DEEP || values > MAX_VALUES)
        return ek_fail(EK_EFORMAT, "has %d objects and lists with %d values, at most %d with %d are read", deep, values,
                       MAX_DEEP, MAX_VALUES);
    return EK_OK;
}

ek_err ek_hub_files_parse(ek_hub_files *out, const char *json, size_t n)
{
    json_error_t why;
    *out = (ek_hub_files){0};
    ek_err err = check_values(json, n);
    json_t *root = err ? NULL : json_loadb(json, n, 0, &why);
    if (root) err = read_reply(out, root);
    else if (!err) err = ek_fail(EK_EFORMAT, "%s at byte %d", why.text, why.position);
    json_decref(root);
    if (!err) return EK_OK;
    ek_hub_files_fini(out);
    return ek_fail_in(err, "the Hub's reply");
}
