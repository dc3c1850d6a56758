/* Sounds as libsndfile writes them, into memory. */
#ifndef EK_TESTS_MEDIA_CODED_H
#define EK_TESTS_MEDIA_CODED_H

#include <sndfile.h>
#include <stdbool.h>

#include "base/buf.h"

/* Appends n samples of one channel; false: a format that this libsndfile does not write. */
bool put_coded(ek_buf *to, int format, int rate, const float *v, int n);

#endif
