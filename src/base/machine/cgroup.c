#include "base/machine/cgroup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 4096 };

double ek_cgroup_number(const char *dir, const char *file, const char *name, int index)
{
    char path[PATH + 64], line[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    double v = NAN;
    size_t n = name ? strlen(name) : 0;
    while (f && fgets(line, sizeof line, f)) {
        if (n && (strncmp(line, name, n) || (line[n] != ' ' && line[n] != ':'))) continue;
        const char *at = line + n + (n > 0);
        for (int i = 0, word = 0; i < index; i++, word = 0) {
            sscanf(at, "%*s%n", &word);
            at += word;
        }
        if (sscanf(at, "%lf", &v) == 1 || !n) break;
    }
    if (f) fclose(f);
    return v;
}

/* The least of the group at mount/path and those above it. */
static double least_of(const char *mount, const char *path, bool v2, ek_cgroup_fn *fn)
{
    char dir[PATH];
    double least = INFINITY;
    size_t n_mount = strlen(mount), n_path = strlen(path);
    if (n_mount + n_path >= sizeof dir) return INFINITY;
    memcpy(dir, mount, n_mount);
    memcpy(dir + n_mount, path, n_path + 1);
    for (;;) {
        size_t n = strlen(dir);
        while (n > n_mount && dir[n - 1] == '/') dir[--n] = '\0';
        double one = fn(dir, v2);
        if (one < least) least = one;
        if (n <= n_mount) return least;
        *strrchr(dir, '/') = '\0';
    }
}

double ek_cgroup_least(const char *root, const char *controller, ek_cgroup_fn *fn)
{
    char line[PATH], mount[PATH];
    double least = INFINITY;
    snprintf(mount, sizeof mount, "%s/proc/self/cgroup", root);
    FILE *f = fopen(mount, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *kinds = strchr(line, ':'), *path = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!path) continue;
        *kinds++ = *path++ = '\0';
        bool v2 = !strcmp(line, "0") && *kinds == '\0', mine = false;
        for (char *word = strtok(kinds, ","); word; word = strtok(NULL, ",")) mine |= !strcmp(word, controller);
        if (!v2 && !mine) continue;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/", v2 ? "" : controller);
        double one = least_of(mount, path, v2, fn);
        if (one < least) least = one;
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root); /* v2 beside v1 */
        if (v2 && (one = least_of(mount, path, v2, fn)) < least) least = one;
    }
    if (f) fclose(f);
    return least;
}
