/* How a prompt carries pictures and sounds: each is decoded once, counted, and stands behind a run of soft tokens.
 *
 *     <|image|> in the chat's text      one token per picture, in the order of the conversation
 *     chat/media.h                      makes of it begin, as many soft tokens as the picture has, end
 *     ek_parts_place                    says of ids from elsewhere at which position each run begins
 *     ek_request_opts.part              goes to the engine, which encodes what no cache has
 */
#ifndef EK_MEDIA_PART_H
#define EK_MEDIA_PART_H

#include <stdatomic.h>

#include "media/mel.h"
#include "media/picture.h"

typedef enum ek_part_kind {
    EK_PART_IMAGE,
    EK_PART_FRAME, /* of a video; as an image, with soft tokens of its own id */
    EK_PART_SOUND,
    EK_PART_KINDS
} ek_part_kind;

const char *ek_part_name(ek_part_kind kind); /* "image", "video frame" or "sound" */

/* A picture or a sound as a tower takes it. Immutable once made, and counted: every holder has one reference (a
 * request with several choices, the engine while it may still have to encode it). Any thread. */
typedef struct ek_media {
    ek_part_kind kind;
    int tokens;         /* soft tokens, 1 and up */
    uint8_t digest[32]; /* SHA-256 of what features are made of: size and resized pixels, or samples */
    ek_picture picture; /* of images and frames */
    ek_sound sound;
    atomic_int refs;
} ek_media;

/* *out has one reference. kind: an image, or a frame of a video. Errors of ek_picture_read and ek_picture_make. */
ek_err ek_media_read_picture(ek_media **out, ek_part_kind kind, const void *bytes, size_t n, const ek_picture_opts *o);
ek_err ek_media_make_picture(ek_media **out, ek_part_kind kind, const ek_image *image, const ek_picture_opts *o);
/* Errors of ek_sound_read and ek_sound_tokens. */
ek_err ek_media_read_sound(ek_media **out, const void *bytes, size_t n, ek_sound_kind kind);
/* n samples of 16 kHz, copied. */
ek_err ek_media_make_sound(ek_media **out, const float *samples, int n, ek_sound_kind kind);
ek_media *ek_media_retain(ek_media *m);
void ek_media_release(ek_media *m); /* NULL is allowed */
/* The digest's first 64 bits, never 0: half of the content that keys of pages have for it, and what others are told. */
uint64_t ek_media_name(const ek_media *m);
size_t ek_media_memory(const ek_media *m); /* bytes, while anybody holds it */

/* The ids of a model's vocabulary; 0: it has none. Behind each kind's own id stand those around a run of it. */
typedef struct ek_media_ids {
    int32_t soft[EK_PART_KINDS], begin[EK_PART_KINDS], end[EK_PART_KINDS];
} ek_media_ids;

/* The kind that a token is a soft token of, or EK_PART_KINDS: it is text. */
ek_part_kind ek_part_kind_of(const ek_media_ids *ids, int32_t token);

/* A picture or sound in a prompt: positions [first, first + media->tokens) are its soft tokens. */
typedef struct ek_part {
    ek_media *media; /* borrowed by whoever gets the array; one who keeps it takes a reference */
    int first;
} ek_part;

/* Of a prompt whose runs have their length already: sets first of each part, of each kind in the order given, and
 * sorts parts by it. EINVAL in a sentence: a soft token without a picture or sound, a part without a place, a run that
 * is longer or shorter than what stands behind it. */
ek_err ek_parts_place(ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids);

/* What the engine refuses: parts ascend, are apart, lie within n tokens, and stand behind soft tokens of their kind;
 * no other position has a soft token. Linear in n + n_parts. */
ek_err ek_parts_check(const ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids);

#endif
