#define _GNU_SOURCE
#include "base/machine/cpu.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/linux.h"

enum { PATH = 4096, WORDS = EK_MAX_CPUS / 64 };

static int count(const uint64_t *cpus)
{
    int n = 0;
    for (int i = 0; i < WORDS; i++) n += __builtin_popcountll(cpus[i]);
    return n;
}

/* "0-3,8,10-11" */
static void read_list(uint64_t *cpus, const char *path)
{
    FILE *f = fopen(path, "re");
    unsigned first, last;
    while (f && fscanf(f, "%u", &first) == 1) {
        last = first;
        if (fscanf(f, "-%u", &last) != 1) last = first;
        for (unsigned i = first; i <= last && i < EK_MAX_CPUS; i++) cpus[i / 64] |= (uint64_t)1 << i % 64;
        if (fgetc(f) != ',') break;
    }
    if (f) fclose(f);
}

static bool may_run(uint64_t *cpus)
{
    cpu_set_t set;
    memset(cpus, 0, sizeof *cpus * WORDS);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return false;
    for (int i = 0; i < EK_MAX_CPUS && i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set)) cpus[i / 64] |= (uint64_t)1 << i % 64;
    return true;
}

/* The numbers of the nodes' folders, as bits. */
static void list_nodes(uint64_t *nodes, const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        unsigned n;
        char rest;
        if (sscanf(e->d_name, "node%u%c", &n, &rest) == 1 && n < EK_MAX_CPUS) nodes[n / 64] |= (uint64_t)1 << n % 64;
    }
    if (d) closedir(d);
}

void ek_nodes_read(ek_nodes *out, const char *root)
{
    static const char where[] = "sys/devices/system/node";
    uint64_t mine[WORDS], node[WORDS] = {0}, cpus[EK_MAX_CPUS / 8][WORDS];
    char path[PATH];
    int n = 0;
    *out = (ek_nodes){.n = 1};
    snprintf(path, sizeof path, "%s/%s", root, where);
    list_nodes(node, path);
    if (!may_run(mine)) return;
    for (int i = 0; i < EK_MAX_CPUS && n < EK_MAX_CPUS / 8; i++) {
        if (!(node[i / 64] >> i % 64 & 1)) continue;
        memset(cpus[n], 0, sizeof cpus[n]);
        snprintf(path, sizeof path, "%s/%s/node%d/cpulist", root, where, i);
        read_list(cpus[n], path);
        for (int k = 0; k < WORDS; k++) cpus[n][k] &= mine[k];
        n += count(cpus[n]) > 0; /* memory without CPUs has no workers */
    }
    if (n < 2) return;
    out->n = n < EK_MAX_NODES ? n : EK_MAX_NODES;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < WORDS; k++) out->cpus[i * out->n / n][k] |= cpus[i][k];
}

int ek_nodes_cpus(const ek_nodes *s, int node)
{
    return count(s->cpus[node]);
}

bool ek_nodes_bind(const ek_nodes *s, int node)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < EK_MAX_CPUS && i < CPU_SETSIZE; i++)
        if (s->cpus[node][i / 64] >> i % 64 & 1) CPU_SET((size_t)i, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}
