#include "emulated.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

static const ek_cuda_module modules[] = {{.name = "all", .fatbin = "all", .bytes = 4}, {0}};

/* The library lies beside the programs: BUILD/tests/gpu/test_…, BUILD/tests/emulate/libcuda.so.1. */
ek_gpu_driver emulated(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    assert_true(n > 0);
    path[n] = 0;
    for (int up = 0; up < 2; up++) *strrchr(path, '/') = 0;
    strcat(path, "/emulate/libcuda.so.1");
    ek_gpu_driver d = {.modules = modules, .built_with = 13000};
    assert_int_equal(ek_cuda_load(&d.api, path), EK_OK);
    return d;
}
