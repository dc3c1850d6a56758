/* Pictures and sounds in a prompt. Each is decoded once and represented by a run of soft tokens.
 *
 *     <|image|> in the chat's text      one token per picture, in the order of the conversation
 *     chat/media.h                      replaces it by begin, the picture's number of soft tokens, end
 *     ek_parts_place                    finds the position of each run in given ids
 *     ek_request_opts.part              passes the parts to the engine, which encodes those that no cache has */
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

/* A tower's input for a picture or sound. Immutable and counted: every holder, such as a request with several choices
 * or the engine, has one reference. Any thread. */
typedef struct ek_media {
    ek_part_kind kind;
    int tokens;         /* soft tokens, 1 and up */
    uint8_t digest[32]; /* SHA-256 of the features' source: size and resized pixels, or samples */
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
/* The digest's first 64 bits, never 0: half of its part in keys of pages, and its public name. */
uint64_t ek_media_name(const ek_media *m);
size_t ek_media_memory(const ek_media *m); /* bytes */

/* Ids in a model's vocabulary (0: none): each kind's soft token, and the tokens around a run. */
typedef struct ek_media_ids {
    int32_t soft[EK_PART_KINDS], begin[EK_PART_KINDS], end[EK_PART_KINDS];
} ek_media_ids;

/* The kind of a soft token, or EK_PART_KINDS for text. */
ek_part_kind ek_part_kind_of(const ek_media_ids *ids, int32_t token);

/* A picture or sound in a prompt: positions [first, first + media->tokens) are its soft tokens. */
typedef struct ek_part {
    ek_media *media; /* borrowed; who keeps it takes a reference */
    int first;
} ek_part;

/* Sets `first` of each part by the prompt's runs, per kind in the given order, and sorts parts by it. EINVAL with a
 * sentence: a soft token without a picture or sound, a part without a run, or a run of the wrong length. */
ek_err ek_parts_place(ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids);

/* Checks that parts ascend without overlap, lie within n tokens, and match soft tokens of their kind, and that no other
 * position has a soft token. EINVAL. Linear in n + n_parts. */
ek_err ek_parts_check(const ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids);

#endif
