/* Chooses the files of a repository that a model needs. */
#include "base/alloc.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hub/cache.h"
#include "hub/name.h"

enum { LISTED = 24 }; /* names in a message */

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), m = strlen(with);
    return n >= m && strcasecmp(s + n - m, with) == 0;
}

static bool at_top(const char *path)
{
    return !strchr(path, '/');
}

/* The length of the text before "-00002-of-00005EXT", and part and count; 0: the file is not a part. */
static int split_stem(const char *path, const char *ext, int *part, int *of)
{
    int digits = 0;
    size_t tail = strlen("-00001-of-00001") + strlen(ext), n = strlen(path);
    if (n <= tail || !ends(path, ext)) return 0;
    const char *p = path + n - tail;
    if (sscanf(p, "-%5d-of-%5d%n", part, of, &digits) != 2 || digits != 15) return 0;
    return *part >= 1 && *part <= *of ? (int)(p - path) : 0;
}

/* ------------------------------------------------------------------ safetensors */

static bool is_weights(const char *path)
{
    return at_top(path) && starts(path, "model") && ends(path, ".safetensors");
}

static bool is_beside(const char *path)
{
    return at_top(path) && (ends(path, ".json") || ends(path, ".jinja"));
}

/* Checks that every part of every wanted split set exists. */
static ek_err check_parts(const ek_hub_files *f, const char *ext)
{
    for (int i = 0; i < f->n; i++) {
        int part, of;
        int stem = f->v[i].wanted ? split_stem(f->v[i].path, ext, &part, &of) : 0;
        for (int p = 1; stem && p <= of; p++) {
            ek_buf name = {0};
            ek_buf_fmt(&name, "%.*s-%05d-of-%05d%s", stem, f->v[i].path, p, of, ext);
            bool there = ek_hub_files_find(f, name.data) != NULL;
            ek_err err = there ? EK_OK : ek_fail(EK_EFORMAT, "%s is missing, a part of %d", name.data, of);
            ek_buf_fini(&name);
            EK_TRY(err);
            if (part != 1) break; /* the first part asks for all parts, unless it is missing itself */
        }
    }
    return EK_OK;
}

static ek_err choose_folder(ek_hub_files *f)
{
    bool indexed = ek_hub_files_find(f, "model.safetensors.index.json") != NULL, parts = false;
    bool tokenizer = ek_hub_files_find(f, "tokenizer.json") != NULL;
    int part, of;
    for (int i = 0; i < f->n; i++)
        parts |= is_weights(f->v[i].path) && split_stem(f->v[i].path, ".safetensors", &part, &of);
    for (int i = 0; i < f->n; i++) {
        const char *path = f->v[i].path;
        bool weights = is_weights(path);
        if (weights && indexed && parts) weights = split_stem(path, ".safetensors", &part, &of) > 0;
        f->v[i].wanted = weights || is_beside(path) || (!tokenizer && !strcmp(path, "tokenizer.model"));
    }
    return check_parts(f, ".safetensors");
}

/* ------------------------------------------------------------------ GGUF */

/* Whether word stands between separators in the file's name, in any case. The underscore is not a separator, so
 * "Q4_K_M" is one word. */
static bool has_word(const char *path, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = path; *p; p++) {
        bool first = p == path || strchr("-./ ", p[-1]);
        if (first && !strncasecmp(p, word, n) && strchr("-./ ", p[n])) return true;
    }
    return false;
}

/* Projections of images and sound, and drafters, lie beside many models. A quantisation never means them. */
static bool is_side_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    return starts(base, "mmproj") || has_word(base, "mmproj") || has_word(base, "mtp") || has_word(base, "assistant") ||
           has_word(base, "imatrix");
}

/* Whether the file is a GGUF file, or the first part of a split one. */
bool ek_hub_is_gguf(const char *path)
{
    int part, of;
    return ends(path, ".gguf") && (!split_stem(path, ".gguf", &part, &of) || part == 1);
}

static void want_set(ek_hub_files *f, const char *path)
{
    int part, of, p, o;
    int stem = split_stem(path, ".gguf", &part, &of);
    for (int i = 0; i < f->n; i++) {
        const char *other = f->v[i].path;
        bool same = stem && split_stem(other, ".gguf", &p, &o) == stem && o == of &&
                    !strncmp(other, path, (size_t)stem);
        if (same || !strcmp(other, path)) f->v[i].wanted = true;
    }
}

static int64_t set_bytes(ek_hub_files *f, const char *path)
{
    int64_t bytes = 0;
    want_set(f, path);
    for (int i = 0; i < f->n; i++) {
        if (f->v[i].wanted) bytes += f->v[i].size;
        f->v[i].wanted = false;
    }
    return bytes;
}

/* A drafter is a candidate if there is nothing else. A projection never is. */
static bool is_candidate(const char *path, const char *word, bool side)
{
    if (!ek_hub_is_gguf(path) || (*word && !has_word(path, word))) return false;
    return side ? !has_word(path, "mmproj") && !has_word(path, "imatrix") : !is_side_file(path);
}

/* "a.gguf (2.1 GB), b.gguf (3.0 GB)": the sets with word in their names, or all if word is "". */
static void list_sets(ek_buf *out, ek_hub_files *f, const char *word)
{
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        const char *path = f->v[i].path;
        if (*word ? !is_candidate(path, word, false) && !is_candidate(path, word, true) : !ek_hub_is_gguf(path))
            continue;
        if (n++ < LISTED) ek_buf_fmt(out, "%s%s (%.1f GB)", n > 1 ? ", " : "", path, (double)set_bytes(f, path) / 1e9);
    }
    if (n > LISTED) ek_buf_fmt(out, " and %d more", n - LISTED);
}

static ek_err refuse(ek_err code, ek_hub_files *f, const char *repo, const char *which, const char *word)
{
    ek_buf names = {0};
    list_sets(&names, f, word);
    ek_err err;
    if (!names.len) err = ek_fail(EK_ENOTFOUND, "%s has no file %s, and no GGUF file at all", repo, which);
    else if (code == EK_ENOTFOUND)
        err = ek_fail(code, "%s has no file and no quantisation %s; there are %s", repo, which, names.data);
    else if (*which) err = ek_fail(code, "%s has several files with %s; name one: %s", repo, which, names.data);
    else
        err = ek_fail(code, "%s has several models; say which, as in %s:Q4_K_M or by file: %s", repo, repo, names.data);
    ek_buf_fini(&names);
    return err;
}

static ek_err choose_set(ek_hub_files *f, const char *repo, const char *which, const char **main)
{
    int n = 0;
    for (int side = 0; side < 2 && n == 0; side++)
        for (int i = 0; i < f->n; i++) {
            if (!is_candidate(f->v[i].path, which, side)) continue;
            *main = f->v[i].path;
            n++;
        }
    if (n > 1) return refuse(EK_EINVAL, f, repo, which, which);
    if (n == 0 && *which) return refuse(EK_ENOTFOUND, f, repo, which, "");
    if (n == 0) return ek_fail(EK_ENOTFOUND, "%s holds neither safetensors nor a GGUF model", repo);
    want_set(f, *main);
    ek_err err = check_parts(f, ".gguf");
    return err ? ek_fail_in(err, "%s", repo) : EK_OK;
}

static ek_err choose_path(ek_hub_files *f, const char *path, const char **main)
{
    int part, of;
    int stem = split_stem(path, ".gguf", &part, &of);
    want_set(f, path);
    *main = path;
    if (stem) {
        ek_buf first = {0};
        ek_buf_fmt(&first, "%.*s-00001-of-%05d.gguf", stem, path, of);
        const ek_hub_file *found = ek_hub_files_find(f, first.data);
        ek_err err = found ? EK_OK : ek_fail(EK_EFORMAT, "%s is missing, a part of %d", first.data, of);
        ek_buf_fini(&first);
        EK_TRY(err);
        *main = found->path;
    }
    return check_parts(f, ".gguf");
}

ek_err ek_hub_choose(ek_hub_files *f, const char *repo, const char *which, const char **main)
{
    bool weights = false;
    ek_err err;
    *main = NULL;
    for (int i = 0; i < f->n; i++) {
        f->v[i].wanted = false;
        weights |= is_weights(f->v[i].path);
    }
    const ek_hub_file *named = *which ? ek_hub_files_find(f, which) : NULL;
    if (named) err = choose_path(f, named->path, main);
    else if (!*which && weights) err = choose_folder(f);
    else return choose_set(f, repo, which, main);
    return err ? ek_fail_in(err, "%s", repo) : EK_OK;
}

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

/* A large file's content is in LFS, which has its SHA-256. A small file is a git object. */
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

/* Refuses a list that is short as text but large in memory ("{},{},…") before it is parsed. */
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
