/* The limits of control groups, read from folders that look like theirs. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../support/files.h"
#include "base/machine/cpu.h"

static char *root; /* a folder that stands for / */

static void put(const char *path, const char *text)
{
    char command[512];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s/%s')\" && printf '%%b' '%s' > '%s/%s'", root, path,
             text, root, path);
    assert_int_equal(system(command), 0);
}

static void clear(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    assert_int_equal(system(command), 0);
}

static void version_2(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/a/b\\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\\n");
    put("sys/fs/cgroup/a/b/memory.current", "5000\\n");
    assert_true(isinf(ek_memory_cgroups(root)));
    put("sys/fs/cgroup/a/memory.max", "100000\\n"); /* a group above limits, too */
    put("sys/fs/cgroup/a/memory.current", "70000\\n");
    assert_true(ek_memory_cgroups(root) == 30000);
    put("sys/fs/cgroup/a/memory.stat", "anon 1\\ninactive_file 20000\\nactive_file 7\\n");
    assert_true(ek_memory_cgroups(root) == 50000);
    put("sys/fs/cgroup/a/b/memory.max", "6000\\n");
    assert_true(ek_memory_cgroups(root) == 1000);
    put("sys/fs/cgroup/a/b/memory.max", "4000\\n"); /* over its limit: as good as nothing, but known */
    assert_true(ek_memory_cgroups(root) == 1);
    put("proc/self/cgroup", "0::/\\n"); /* a container that sees itself as the root */
    put("sys/fs/cgroup/memory.max", "9000\\n");
    put("sys/fs/cgroup/memory.current", "1000\\n");
    assert_true(ek_memory_cgroups(root) == 8000);
    clear();
}

static void version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "12:cpu,cpuacct:/x\\n4:memory:/docker/1\\n1:name=systemd:/y\\n0::/z\\n");
    put("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\\n");
    put("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "1000\\n");
    assert_true(isinf(ek_memory_cgroups(root)));
    put("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "3000\\n");
    put("sys/fs/cgroup/memory/docker/1/memory.stat", "inactive_file 1\\ntotal_inactive_file 500\\n");
    assert_true(ek_memory_cgroups(root) == 2500);
    clear();
    assert_true(isinf(ek_memory_cgroups(root))); /* no groups at all */
}

static void quota_of_cores(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/a/b\\n");
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\\n");
    assert_true(isinf(ek_cpu_quota(root)));
    put("sys/fs/cgroup/a/cpu.max", "250000 100000\\n"); /* a group above limits, too */
    assert_true(ek_cpu_quota(root) == 2.5);
    put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\\n");
    assert_true(ek_cpu_quota(root) == 0.5);
    put("sys/fs/cgroup/a/b/cpu.max", "50000\\n"); /* no period: no quota */
    assert_true(ek_cpu_quota(root) == 2.5);
    clear();
    put("proc/self/cgroup", "3:cpu,cpuacct:/x\\n0::/z\\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\\n");
    assert_true(isinf(ek_cpu_quota(root)));
    put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\\n");
    assert_true(ek_cpu_quota(root) == 4);
    clear();
    assert_true(isinf(ek_cpu_quota(root)));
    assert_true(ek_cpu_count() >= 1);
}

/* Threads are as many as the CPUs that the process may use (taskset, cpuset groups). */
static void affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET((size_t)i, &before)) CPU_SET((size_t)i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(ek_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_in_range(ek_cpu_count(), 1, CPU_COUNT(&before));
}

static void limits_of_the_process(void **state)
{
    (void)state;
    double have = ek_memory_available();
    assert_true(have > 0);
#ifndef EK_SANITIZED
    struct rlimit old, lim;
    getrlimit(RLIMIT_AS, &old);
    lim = old;
    lim.rlim_cur = 256 << 20;
    if (have < (256 << 20) || setrlimit(RLIMIT_AS, &lim)) skip();
    double less = ek_memory_available();
    setrlimit(RLIMIT_AS, &old);
    assert_true(less > 1 && less < 256 << 20);
#endif
}

int main(void)
{
    root = temp_dir();
    const struct CMUnitTest tests[] = {cmocka_unit_test(version_2), cmocka_unit_test(version_1),
                                       cmocka_unit_test(quota_of_cores), cmocka_unit_test(affinity),
                                       cmocka_unit_test(limits_of_the_process)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clear();
    remove_dir(root);
    return failed;
}
