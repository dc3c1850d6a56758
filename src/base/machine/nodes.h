/* The NUMA nodes of a machine: groups of CPUs that have memory of their own and reach the others' more slowly. */
#ifndef EK_BASE_NODES_H
#define EK_BASE_NODES_H

#include <stdbool.h>
#include <stdint.h>

enum { EK_MAX_NODES = 8, EK_MAX_CPUS = 1024 };

/* Nodes with CPUs on which this process may run, in the system's order. Beyond EK_MAX_NODES neighbours count as one. */
typedef struct ek_nodes {
    int n; /* 1: cpus are not looked at */
    uint64_t cpus[EK_MAX_NODES][EK_MAX_CPUS / 64];
} ek_nodes;

/* Reads root/sys/devices/system/node and this thread's affinity; root is "", or a folder for tests. One node where
 * there is no such folder. */
void ek_nodes_read(ek_nodes *out, const char *root);
int ek_nodes_cpus(const ek_nodes *s, int node); /* how many */
/* Keeps the calling thread on a node's CPUs. False where the system refuses; then it runs where it did. */
bool ek_nodes_bind(const ek_nodes *s, int node);

#endif
