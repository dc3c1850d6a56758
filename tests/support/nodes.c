#define _GNU_SOURCE
#include "nodes.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "files.h"

char *make_nodes(const char *const *cpus, int n)
{
    static const char *const folders[] = {"sys", "sys/devices", "sys/devices/system", "sys/devices/system/node"};
    char *root = temp_dir(), path[300];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        EK_ASSERT(mkdir(path, 0777) == 0);
    }
    put_text(path, "online", "0\n"); /* and what else lies there */
    for (int j = 0; j < n; j++) {
        snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d", root, j);
        EK_ASSERT(mkdir(path, 0777) == 0);
        put_text(path, "cpulist", cpus[j]);
    }
    return root;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void remove_nodes(char *root)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(root);
}
