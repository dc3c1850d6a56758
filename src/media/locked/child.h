/* Runs a program on an untrusted file in a sandbox. The program can read that file and its libraries, and answers
 * through pipes. It cannot reach anything else on this machine.
 *
 *   files       opened for reading only; where the kernel has Landlock only those below /usr and /lib, and the program
 *   network     no socket of any kind
 *   processes   its own threads, no children; no new rights
 *   resources   seconds of processor time, bytes of address space, no core files, no files written
 *
 * Other system calls fail as if the system did not have them. The run is killed when its time is over, when its request
 * is dropped (base/clock.h), and when the starting thread ends. Any thread, several at once. */
#ifndef EK_MEDIA_LOCKED_CHILD_H
#define EK_MEDIA_LOCKED_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct ek_child_opts {
    const char *const *argv; /* argv[0]: the program's path; NULL at the end */
    int input;               /* its descriptor 0; borrowed. -1: empty input */
    int cpu_seconds;
    double seconds; /* from its start to its end */
    size_t memory;  /* bytes of address space */
    bool fonts;     /* also allows reading /etc/fonts and /var/cache/fontconfig, for drawing text */
} ek_child_opts;

typedef struct ek_child {
    pid_t pid;
    int out, err;   /* read ends */
    double until;   /* ek_now() */
    char says[512]; /* the beginning of its standard error */
    size_t n_says;
    enum { EK_CHILD_RUNS, EK_CHILD_LATE, EK_CHILD_UNWANTED } state;
} ek_child;

/* The end of a run. */
typedef struct ek_child_end {
    int status; /* exit status; -1: it was killed */
    int signal; /* the killing signal; 0: unknown */
    bool late;  /* its time was over */
} ek_child_end;

/* Finds the program `name`. *out: its real path, to be freed. path: given by the operator; NULL: /usr/bin or
 * /usr/local/bin. package: what an operator installs who has none. ENOTFOUND, EIO. */
ek_err ek_child_find(char **out, const char *name, const char *package, const char *path);

/* Makes a nameless, read-only input file of these bytes; the caller closes it. what: "a video". ENOMEM. */
ek_err ek_child_file(int *out, const void *bytes, size_t n, const char *what);
/* EIO: the sandbox or the program failed to start; the sentence has the reason. */
ek_err ek_child_start(ek_child *c, const ek_child_opts *o);
/* Starts a program that sandboxes its own children (src/helper): without limits of time and memory, otherwise as above.
 * in, out and says become descriptors 0 to 2 and are borrowed; says < 0: /dev/null. It ends when its sockets are
 * closed.
 */
ek_err ek_child_start_helper(pid_t *pid, const char *program, int in, int out, int says);
/* Waits for bytes of its standard output: *n of them, at most max; 0 at the end. ECANCELLED if the request was dropped,
 * ETIMEOUT when its time is over; in both cases the run is killed. */
ek_err ek_child_read(ek_child *c, void *to, size_t max, size_t *n);
/* Waits for its end and reads the rest of its output; kills it if kill is set, or as above. c is invalid afterwards. */
ek_child_end ek_child_finish(ek_child *c, bool kill);

/* The first line of a program's words, which quote an untrusted file: bounded and printable. Returns out. */
enum { EK_CHILD_WORDS = 120 };
const char *ek_child_words(char out[EK_CHILD_WORDS], const char *says);

#endif
