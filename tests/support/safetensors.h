/* Writes safetensors files and other small files into a folder of the test's own. */
#ifndef EK_TESTS_SUPPORT_SAFETENSORS_H
#define EK_TESTS_SUPPORT_SAFETENSORS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct st_file {
    ek_buf head, data; /* head: the entries, each followed by a comma */
} st_file;

static inline void st_add(st_file *f, const char *name, const char *dtype, int n_dims, const int64_t *dim,
                          const void *data, size_t bytes)
{
    ek_buf_fmt(&f->head, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, dtype);
    for (int d = 0; d < n_dims; d++) ek_buf_fmt(&f->head, "%s%lld", d ? "," : "", (long long)dim[d]);
    ek_buf_fmt(&f->head, "],\"data_offsets\":[%zu,%zu]},", f->data.len, f->data.len + bytes);
    ek_buf_add(&f->data, data, bytes);
}

/* The bytes of a file with this header and this data. */
static inline void st_bytes(ek_buf *out, const char *header, const void *data, size_t bytes)
{
    uint64_t n = strlen(header);
    ek_buf_add(out, &n, 8);
    ek_buf_add(out, header, (size_t)n);
    ek_buf_add(out, data, bytes);
}

static inline void put_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    EK_ASSERT(f && fwrite(bytes, 1, n, f) == n);
    EK_ASSERT(fclose(f) == 0);
}

static inline void put_text(const char *dir, const char *name, const char *text)
{
    put_file(dir, name, text, strlen(text));
}

/* Writes and empties f. */
static inline void st_save(st_file *f, const char *dir, const char *name)
{
    ek_buf head = {0}, all = {0};
    ek_buf_fmt(&head, "{%s\"__metadata__\":{\"format\":\"pt\"}}", ek_buf_text(&f->head));
    st_bytes(&all, head.data, ek_buf_text(&f->data), f->data.len);
    put_file(dir, name, all.data, all.len);
    ek_buf_fini(&head);
    ek_buf_fini(&all);
    ek_buf_fini(&f->head);
    ek_buf_fini(&f->data);
}

/* A fresh folder; remove_dir frees the name. */
static inline char *temp_dir(void)
{
    static const char stem[] = "/tmp/evenkeel-test-";
    char *dir = ek_alloc(sizeof stem + 6);
    memcpy(dir, stem, sizeof stem);
    memset(dir + sizeof stem - 1, 'X', 6);
    EK_ASSERT(mkdtemp(dir));
    return dir;
}

static inline void remove_dir(char *dir)
{
    char path[512];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(dir);
    free(dir);
}

#endif
