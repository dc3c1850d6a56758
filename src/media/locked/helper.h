/* The helper program evenkeel-decode, which decodes untrusted pictures and sounds. It lies beside the program, or in
 * ../libexec/evenkeel of its folder. It is sandboxed (media/locked/lock.h): it can read libraries only and has no
 * network. Each file is decoded in a process of its own, a copy of a helper that never saw another file. That process
 * has the memory counted for the file, a time limit, and system calls for memory, threads and its end only. Helpers
 * stay ready, one per thread that decodes at the same time; a dead helper is replaced for the next file. Any thread,
 * several at once.
 */
#ifndef EK_MEDIA_LOCKED_HELPER_H
#define EK_MEDIA_LOCKED_HELPER_H

#include <stddef.h>

#include "base/err.h"
#include "media/locked/ask.h"

enum {
    EK_PICTURE_CPU_MS = 2000, /* of processor time that decoding one picture may take */
    EK_REQUEST_CPU_MS = 10000 /* all of a request, and one sound */
};

/* Decodes n bytes as *ask says (its n is set here), ends the process that did it, and gives its answer: numbers within
 * no limits yet. results: ask->room bytes, or NULL. The answer's own error is returned as it is. ETOOLARGE: its time
 * is over. EPARSE: the decoder crashed on it. ECANCELLED: nobody wants it any more (base/clock.h), and it has ended.
 * EIO: there is no helper, or it cannot be locked up. ENOMEM. */
ek_err ek_helper_decode(ek_decoded *out, void *results, ek_ask *ask, const void *bytes, size_t n);

/* The formats of pictures that helpers read: "JPEG, PNG, …". Asks one, once. Empty where there is none. */
const char *ek_helper_formats(void);
/* Starts so many, where there are fewer: the first files need not wait for it. */
ek_err ek_helpers_warm(int n);

/* Of this thread, from now on: microseconds of processor time that its files may still take together; 0: no end. */
void ek_helper_allow(uint64_t us);
uint64_t ek_helper_spent(void); /* by the files of this thread so far, microseconds */

typedef struct ek_helper_stats {
    uint64_t files, crashed, late, dropped; /* decoded or refused; of them: crashes, beyond their time, not wanted */
    uint64_t lines;                         /* that decoders wrote to standard error */
} ek_helper_stats;
void ek_helper_stats_get(ek_helper_stats *out);

#endif
