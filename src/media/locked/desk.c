#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/linux.h"
#include "media/locked/helper_parts.h"

enum { STEP = 1 << 20 /* bytes by which a kept desk grows */ };

size_t ek_desk_bytes(const ek_ask *ask)
{
    return (size_t)ek_desk_file(ask) + ask->n;
}

static ek_err make(ek_shared_desk *d, size_t n)
{
    *d = (ek_shared_desk){.fd = memfd_create("desk", MFD_CLOEXEC), .n = n};
    bool good = d->fd >= 0 && ftruncate(d->fd, (off_t)n) == 0;
    d->p = good ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, d->fd, 0) : MAP_FAILED;
    if (d->p != MAP_FAILED) return EK_OK;
    d->p = NULL;
    ek_err err = ek_fail(EK_ENOMEM, "the system has no memory for decoding a file now: %zu bytes: %s", n,
                         strerror(errno));
    ek_desk_drop(d);
    return err;
}

void ek_desk_drop(ek_shared_desk *d)
{
    if (d->p) munmap(d->p, d->n);
    if (d->fd >= 0) close(d->fd);
    *d = (ek_shared_desk){.fd = -1};
}

ek_err ek_desk_lay(ek_shared_desk *d, const ek_ask *ask, const void *bytes)
{
    const size_t n = ek_desk_bytes(ask);
    if (n > d->n) {
        ek_desk_drop(d);
        EK_TRY(make(d, n <= EK_DESK_KEPT ? (n + STEP - 1) / STEP * STEP : n));
    }
    memcpy(d->p, ask, sizeof *ask);
    memcpy(d->p + ek_desk_file(ask), bytes, ask->n);
    return EK_OK;
}

void ek_desk_clear(ek_shared_desk *d, const ek_ask *ask)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE); /* a decoder's desk has whole pages: up to 64 KiB on Arm */
    if (d->n > EK_DESK_KEPT) ek_desk_drop(d);
    else if (d->p) memset(d->p, 0, (ek_desk_bytes(ask) + page - 1) / page * page);
}
