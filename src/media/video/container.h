/* What kind of video a file is, by its first bytes. Inside src/media/video. */
#ifndef EK_MEDIA_VIDEO_CONTAINER_H
#define EK_MEDIA_VIDEO_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_container {
    const char *name, *reader; /* ours, ffmpeg's */
    const char *type;          /* as in data: URLs */
} ek_container;

/* NULL: none that is read. */
const ek_container *ek_container_find(const uint8_t *p, size_t n);
/* The same with a sentence, and the limit of bytes: EINVAL, ETOOLARGE. */
ek_err ek_container_check(const ek_container **out, const uint8_t *p, size_t n);

#endif
