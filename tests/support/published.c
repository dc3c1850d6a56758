#include "published.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/machine/cpu.h"

ek_model *open_published(const char *name, int bits)
{
    ek_config *c = calloc(1, sizeof *c);
    ek_model *m;
    const ek_model_opts o = {.cpu = ek_cpu_detect(), .k_format = EK_KV_F16, .v_format = EK_KV_F16, .deferred = true};
    assert_int_equal(ek_config_published(c, name, 0), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, c, bits, 1, &o), EK_OK);
    free(c);
    return m;
}
