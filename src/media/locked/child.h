/* One run of a program that is given a stranger's file, locked up: it reads that file and the libraries it is made of,
 * and answers through pipes. Nothing else of this machine can be reached from it.
 *
 *   files       opened for reading only; where the kernel has Landlock only those below /usr and /lib, and the program
 *   network     no socket of any kind
 *   processes   threads of its own, no children; no rights that it did not begin with
 *   resources   seconds of processor time, bytes of address space, no core files, no files written
 *
 * A system call that is not on its list fails as if the system did not have it. The run is killed when its time is
 * over, when nobody wants it any more (base/clock.h), and when the thread that began it ends. Any thread, several at
 * once. */
#ifndef EK_MEDIA_LOCKED_CHILD_H
#define EK_MEDIA_LOCKED_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct ek_child_opts {
    const char *const *argv; /* argv[0]: the program's path; NULL at the end */
    int input;               /* a descriptor that it has as 0; borrowed. -1: an empty one */
    int cpu_seconds;
    double seconds; /* from its start to its end */
    size_t memory;  /* bytes of address space */
    bool fonts;     /* it draws texts: /etc/fonts and /var/cache/fontconfig may be read too */
} ek_child_opts;

typedef struct ek_child {
    pid_t pid;
    int out, err;   /* read ends */
    double until;   /* ek_now() */
    char says[512]; /* the beginning of what it wrote to standard error */
    size_t n_says;
    enum { EK_CHILD_RUNS, EK_CHILD_LATE, EK_CHILD_UNWANTED } state;
} ek_child;

/* How it ended. */
typedef struct ek_child_end {
    int status; /* of exit; -1: it was killed, */
    int signal; /* by this one; 0: unknown */
    bool late;  /* its seconds were over */
} ek_child_end;

/* A file for its input, that has no name and cannot be written any more; the caller closes it. what: "a video". ENOMEM.
 */
ek_err ek_child_file(int *out, const void *bytes, size_t n, const char *what);
/* EIO: it cannot be locked up or begun; the sentence says what failed. */
ek_err ek_child_start(ek_child *c, const ek_child_opts *o);
/* A program that locks up what it begins by itself (src/helper): without limits of time and memory, and with children;
 * else as above. Descriptors 0 to 2 of it are given, borrowed; says < 0: /dev/null. It ends when its sockets do. */
ek_err ek_child_start_helper(pid_t *pid, const char *program, int in, int out, int says);
/* Waits for bytes of its standard output: *n of them, at most max; 0 at its end. ECANCELLED where nobody wants it any
 * more, ETIMEOUT when its seconds are over; it is killed then. */
ek_err ek_child_read(ek_child *c, void *to, size_t max, size_t *n);
/* Waits for its end, reading on; kills it where kill is set or as above. c is nothing then. */
ek_child_end ek_child_finish(ek_child *c, bool kill);

#endif
