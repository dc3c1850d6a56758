/* The parts of a helper: its process, its shared memory, and its standard error. Inside src/media/locked. */
#ifndef EK_MEDIA_LOCKED_HELPER_PARTS_H
#define EK_MEDIA_LOCKED_HELPER_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "media/locked/ask.h"

/* The memory of ek_desk. A new one costs more than everything else of a helper's work, because the system makes its
 * pages one by one. A desk of usual size therefore stays with its helper and is zeroed between two files. */
enum { EK_DESK_KEPT = 8 << 20 /* bytes: a photograph, and its 1,120 tokens */ };

typedef struct ek_shared_desk {
    int fd; /* -1: there is none */
    uint8_t *p;
    size_t n; /* bytes */
} ek_shared_desk;

size_t ek_desk_bytes(const ek_ask *ask);
/* Writes *ask and its file. ENOMEM. */
ek_err ek_desk_lay(ek_shared_desk *d, const ek_ask *ask, const void *bytes);
/* After the decoding process has ended: zeroes file, results and *ask. Drops a desk larger than EK_DESK_KEPT. */
void ek_desk_clear(ek_shared_desk *d, const ek_ask *ask);
void ek_desk_drop(ek_shared_desk *d);

typedef struct ek_helper {
    struct ek_helper *next;
    pid_t pid;
    int ask, control; /* our ends */
    ek_hello hello;
    ek_shared_desk desk;
} ek_helper;

/* Finds the program, starts it and checks its version. says: its standard error; borrowed. EIO. */
ek_err ek_helper_start(ek_helper **out, int says);
void ek_helper_end(ek_helper *h); /* at once, with the current file */

/* The descriptor for helpers' standard error. A thread reads it into the log, so that no decoder waits for a reader.
 * -1: there is none; use /dev/null. */
int ek_helper_says(void);
uint64_t ek_helper_lines(void);

#endif
