#include "base/thread.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"

typedef struct start {
    void *(*run)(void *arg);
    void *arg;
    ek_log_sink *log;
} start;

static void *begin(void *arg)
{
    const start s = *(start *)arg;
    free(arg);
    ek_log_here(s.log);
    return s.run(s.arg);
}

int ek_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    start *s = ek_alloc(sizeof *s);
    *s = (start){run, arg, ek_log_here(NULL)};
    ek_log_here(s->log);
    const int rc = pthread_create(out, NULL, begin, s);
    if (rc) free(s);
    return rc;
}
