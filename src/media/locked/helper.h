/* The helper program evenkeel-decode, which decodes untrusted pictures and sounds. It lies beside the program, or in
 * ../libexec/evenkeel of its folder. It is sandboxed (media/locked/lock.h): it can read libraries only and has no
 * network. A process of its own decodes each file, a copy of a helper that never saw another file. That process has the
 * memory counted for the file, a time limit, and only system calls for memory, threads and its end. One helper per
 * decoding thread stays ready; a dead helper is replaced for the next file. Any thread, several at once. */
#ifndef EK_MEDIA_LOCKED_HELPER_H
#define EK_MEDIA_LOCKED_HELPER_H

#include <stddef.h>

#include "base/err.h"
#include "media/locked/ask.h"

enum {
    EK_PICTURE_CPU_MS = 2000, /* maximum processor time of decoding one picture */
    EK_REQUEST_CPU_MS = 10000 /* of all files of a request, and of one sound */
};

/* Decodes n bytes as *ask says (sets its n), ends the decoding process, and returns its answer, whose numbers are not
 * checked yet. results: ask->room bytes, or NULL. Returns the answer's own error if there is one. ETOOLARGE: its time
 * is over. EPARSE: the decoder crashed. ECANCELLED: the request was dropped (base/clock.h). EIO: there is no helper, or
 * its sandbox failed. ENOMEM. */
ek_err ek_helper_decode(ek_decoded *out, void *results, ek_ask *ask, const void *bytes, size_t n);

/* Picture formats that helpers read: "JPEG, PNG, …". Asks a helper once. Empty without a helper. */
const char *ek_helper_formats(void);
/* Starts helpers until there are n, so that the first files do not wait. */
ek_err ek_helpers_warm(int n);

/* Sets the processor time, in microseconds, that this thread's files may take together from now on; 0: no limit. */
void ek_helper_allow(uint64_t us);
uint64_t ek_helper_spent(void); /* microseconds by this thread's files so far */

typedef struct ek_helper_stats {
    uint64_t files, crashed, late, dropped; /* all files; crashes, time limits and dropped requests among them */
    uint64_t lines;                         /* decoders' lines on standard error */
} ek_helper_stats;
void ek_helper_stats_get(ek_helper_stats *out);

#endif
