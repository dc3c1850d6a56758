/* Maximum sizes of pictures and sounds. Each is checked from the header, before memory is taken. */
#ifndef EK_MEDIA_LIMITS_H
#define EK_MEDIA_LIMITS_H

enum {
    EK_MEDIA_MAX_BYTES = 32 << 20,  /* of a file as received */
    EK_MEDIA_MAX_IMAGES = 128,      /* per request without another limit */
    EK_MEDIA_MAX_SOUNDS = 4,        /* per request */
    EK_MEDIA_MAX_PDFS = 32,         /* per request */
    EK_MEDIA_MAX_DRAWN = 8,         /* per request that takes their pages as pictures */
    EK_MEDIA_MAX_FRAMES = 32,       /* of all videos per request */
    EK_IMAGE_MAX_SIDE = 32768,      /* pixels */
    EK_IMAGE_MAX_PIXELS = 64000000, /* width x height */
    EK_IMAGE_MAX_SCANS = 64,        /* of a progressive JPEG; encoders write at most about 20 */
    EK_SOUND_RATE = 16000,          /* samples per second in models' inputs */
    EK_SOUND_SECONDS = 30,          /* of a sound that a model takes at once */
    EK_SOUND_MAX_SAMPLES = EK_SOUND_SECONDS * EK_SOUND_RATE,
    EK_SOUND_MAX_SECONDS = 600, /* of a sound that is divided into pieces of 30 s (media/mel.h) */
    EK_SOUND_MIN_RATE = 8000,   /* of a file, frames per second */
    EK_SOUND_MAX_RATE = 192000,
    EK_SOUND_MAX_CHANNELS = 8
};

#endif
