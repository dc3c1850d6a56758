/* What decoders write to standard error, read into the log by a thread: nobody has to read it for them to go on.
 * Inside src/media/locked. */
#ifndef EK_MEDIA_LOCKED_HELPER_SAYS_H
#define EK_MEDIA_LOCKED_HELPER_SAYS_H

#include <stdint.h>

/* The descriptor that helpers have as standard error; -1: there is none, and they have /dev/null. */
int ek_helper_says(void);
uint64_t ek_helper_lines(void);

#endif
