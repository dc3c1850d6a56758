/* The decoding libraries. Each is loaded when a process begins to decode. A format whose library is missing is refused
 * with the library's name; the others work. Inside src/decode. */
#ifndef EK_DECODE_LIBRARIES_H
#define EK_DECODE_LIBRARIES_H

#include <stdbool.h>

#include "base/err.h"

typedef enum ek_library {
    EK_LIBRARY_JPEG,
    EK_LIBRARY_PNG,
    EK_LIBRARY_WEBP,
    EK_LIBRARY_GIF,
    EK_LIBRARY_HEIF,
    EK_LIBRARY_SNDFILE,
    EK_LIBRARY_SOXR,
    EK_LIBRARIES
} ek_library;

void ek_libraries_open(void); /* loads all; once is enough; any thread */
bool ek_library_there(ek_library l);
/* EINVAL, with the reason, if the library is missing. what: the formats that it reads, "JPEG pictures". */
ek_err ek_library_need(ek_library l, const char *what);

#endif
