/* The kind of a video file, by its first bytes. Inside src/media/video. */
#ifndef EK_MEDIA_VIDEO_CONTAINER_H
#define EK_MEDIA_VIDEO_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_container {
    const char *name, *reader; /* our name; ffmpeg's name of its reader */
    const char *type;          /* as in data: URLs */
} ek_container;

/* The same with an error: EINVAL; ETOOLARGE beyond the limit of bytes. */
ek_err ek_container_check(const ek_container **out, const uint8_t *p, size_t n);

#endif
