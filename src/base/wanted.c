#include "base/wanted.h"

#include <stddef.h>

static _Thread_local const atomic_bool *flag;

void ek_wanted_until(const atomic_bool *dropped)
{
    flag = dropped;
}

bool ek_is_wanted(void)
{
    return !flag || !atomic_load_explicit(flag, memory_order_relaxed);
}

ek_err ek_wanted_check(void)
{
    return ek_is_wanted() ? EK_OK : ek_fail(EK_ECANCELLED, "nobody waits for the reply any more");
}
