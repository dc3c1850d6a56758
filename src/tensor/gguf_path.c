/* Which files are models, and which of a folder is the one. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "tensor/gguf.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Towers, and statistics for quantisers, lie beside models under these names; parts behind the first belong to it. */
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

ek_err ek_gguf_model_path(ek_buf *out, const char *path)
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
