#include "files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"

void put_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    EK_ASSERT(f && fwrite(bytes, 1, n, f) == n);
    EK_ASSERT(fclose(f) == 0);
}

void put_text(const char *dir, const char *name, const char *text)
{
    put_file(dir, name, text, strlen(text));
}

char *temp_dir(void)
{
    static const char stem[] = "/tmp/evenkeel-test-";
    char *dir = ek_alloc(sizeof stem + 6);
    memcpy(dir, stem, sizeof stem);
    memset(dir + sizeof stem - 1, 'X', 6);
    EK_ASSERT(mkdtemp(dir));
    return dir;
}

void remove_dir(char *dir)
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

const char *path_in(const char *dir, const char *name)
{
    static char text[4][512];
    static int k;
    char *to = text[k++ % 4];
    snprintf(to, sizeof text[0], "%s/%s", dir, name);
    return to;
}
