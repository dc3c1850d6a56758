/* What a helper consists of: its process, the memory that it shares with what decodes a file, and its standard error.
 * Inside src/media/locked. */
#ifndef EK_MEDIA_LOCKED_HELPER_PARTS_H
#define EK_MEDIA_LOCKED_HELPER_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "media/locked/ask.h"

/* The memory of ek_desk. A new one costs more than all else that a helper adds to a picture, because the system makes
 * its pages one by one. So a desk of usual size stays with its helper, and is all zeros between two files. */
enum { EK_DESK_KEPT = 8 << 20 /* bytes: a photograph, and 1,120 tokens of it */ };

typedef struct ek_shared_desk {
    int fd; /* -1: there is none */
    uint8_t *p;
    size_t n; /* bytes, at least those of the file that is on it */
} ek_shared_desk;

size_t ek_desk_bytes(const ek_ask *ask);
/* Puts *ask and its file there. ENOMEM. */
ek_err ek_desk_lay(ek_shared_desk *d, const ek_ask *ask, const void *bytes);
/* Once the process that had it is gone: zeros where the file, its results and *ask were. A larger one is dropped. */
void ek_desk_clear(ek_shared_desk *d, const ek_ask *ask);
void ek_desk_drop(ek_shared_desk *d);

typedef struct ek_helper {
    struct ek_helper *next;
    pid_t pid;
    int ask, control; /* our ends */
    ek_hello hello;
    ek_shared_desk desk;
} ek_helper;

/* Found, started, asked for its version. says: what its standard error becomes; borrowed. EIO. */
ek_err ek_helper_start(ek_helper **out, int says);
void ek_helper_end(ek_helper *h); /* at once, with what it decodes */

/* The descriptor that helpers have as standard error: a thread reads it into the log, so that no decoder waits for a
 * reader. -1: there is none, and they have /dev/null. */
int ek_helper_says(void);
uint64_t ek_helper_lines(void);

#endif
