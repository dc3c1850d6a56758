#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "capi/state.h"

ek_status capi_status(ek_err err)
{
    switch (err) {
    case EK_OK: return EK_DONE;
    case EK_EINVAL:
    case EK_EPARSE: return EK_BAD_ARGUMENT;
    case EK_ETOOLONG:
    case EK_ETOOLARGE: return EK_TOO_LONG;
    case EK_ENOTFOUND: return EK_NOT_FOUND;
    case EK_EBUSY: return EK_BUSY;
    case EK_ENOMEM: return EK_NO_MEMORY;
    case EK_EFORMAT: return EK_BAD_FILE;
    case EK_EUNSUPPORTED: return EK_NOT_SUPPORTED;
    case EK_ESHUTDOWN:
    case EK_ECANCELLED: return EK_CLOSING;
    default: return EK_FAILED;
    }
}

ek_err capi_take_struct(void *to, size_t room, const void *from, size_t n, const char *name)
{
    memset(to, 0, room);
    if (!from || n < sizeof n) return ek_fail(EK_EINVAL, "%s: size is 0, it must be sizeof(%s)", name, name);
    memcpy(to, from, n < room ? n : room);
    for (size_t i = room; i < n; i++)
        if (((const char *)from)[i])
            return ek_fail(EK_EUNSUPPORTED, "%s: byte %zu of %zu is set, this version of the library knows %zu", name,
                           i, n, room);
    return EK_OK;
}

ek_err capi_check_process(const evenkeel *e)
{
    if (e->process == getpid()) return EK_OK;
    return ek_fail(EK_EINVAL, "the engine was opened by process %d; its child %d has no threads of it", (int)e->process,
                   (int)getpid());
}

evenkeel_event capi_error(ek_err err, const char *text)
{
    return (evenkeel_event){.kind = EVENKEEL_END,
                            .token = -1,
                            .text = text,
                            .n = strlen(text),
                            .finish = EVENKEEL_ERROR,
                            .status = capi_status(err)};
}

void capi_signals_off(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                              SIGTRAP, SIGSYS, SIGABRT}; /* the signals that go to the thread that caused them */
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void capi_signals_back(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
