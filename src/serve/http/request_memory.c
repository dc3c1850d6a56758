#define _GNU_SOURCE
#include "serve/http/http.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"

static const double MIB = 1048576;
enum {
    PROBED = 1 << 20, /* the system is asked once for each such number of bytes of a request */
    SPARE = 8 << 20,  /* bytes left for the rest of the program */
    RESERVE = 16 << 20
};

ek_err ek_request_memory_open(void)
{
    /* jansson drops values if it gets no memory; a prompt must not lose any */
    json_set_alloc_funcs(ek_reserve_malloc, free);
    event_set_mem_functions(ek_reserve_malloc, ek_reserve_realloc, free);
    if (ek_reserve_fill(RESERVE)) return EK_OK;
    return ek_fail(EK_ENOMEM, "the system has no %d MiB to set aside for requests", RESERVE >> 20);
}

ek_err ek_request_memory_check(void)
{
    if (!ek_reserve_is_spent() || ek_reserve_fill(RESERVE)) return EK_OK;
    return ek_fail(EK_ENOMEM, "the system is out of memory, try again later");
}

size_t ek_request_memory_default(void)
{
    double have = ek_memory_available(), min = 64 * MIB, max = 2048 * MIB, part = have / 8;
    return (size_t)(part < min ? min : part > max ? max : part);
}

/* A limit on address space shows when memory is mapped, one of a control group only when it is used. */
static bool system_has(size_t bytes)
{
    double have = ek_memory_available();
    if (have > 0 && have < (double)bytes + SPARE) return false;
    void *p = mmap(NULL, bytes + SPARE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, bytes + SPARE);
    return true;
}

ek_err ek_request_memory_take(ek_request_memory *m, size_t held, size_t bytes)
{
    double needs = (double)held + (double)bytes;
    if (needs > (double)m->total)
        return ek_fail(EK_ETOOLARGE, "the request may need %.1f MiB of memory, all requests together may take %.1f MiB",
                       needs / MIB, (double)m->total / MIB);
    size_t used = atomic_load(&m->used);
    do {
        if (used >= m->total || bytes > m->total - used)
            return ek_fail(EK_ENOMEM,
                           "the request may need %.1f MiB of memory, other requests hold %.1f of %.1f MiB, try again "
                           "later",
                           needs / MIB, (double)(used - held) / MIB, (double)m->total / MIB);
    } while (!atomic_compare_exchange_weak(&m->used, &used, used + bytes));
    bool small = held / PROBED == (held + bytes) / PROBED; /* small amounts are asked for together */
    if (small || system_has(used + bytes)) return EK_OK;   /* used may not have been touched yet */
    ek_request_memory_give(m, bytes);
    return ek_fail(EK_ENOMEM, "the request may need %.1f MiB of memory, which the system does not have now",
                   needs / MIB);
}

void ek_request_memory_give(ek_request_memory *m, size_t bytes)
{
    atomic_fetch_sub(&m->used, bytes);
}
