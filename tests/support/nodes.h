/* A folder that looks like a machine of several NUMA nodes. */
#ifndef EK_TESTS_SUPPORT_NODES_H
#define EK_TESTS_SUPPORT_NODES_H

/* A folder for ek_pool_open_nodes with n nodes; cpus[j]: the CPUs of node j as the kernel lists them ("0-3,8"),
 * ALL_CPUS: every CPU in every node. Free with remove_nodes. */
#define ALL_CPUS "0-1023"
char *make_nodes(const char *const *cpus, int n);
void remove_nodes(char *root);

#endif
