/* The streams in a file of coded sound. Recorders, and programs that join files, write files that libraries read only
 * in part or not at all: MP3 without a frame that gives the number of frames, FLAC without its length, Ogg without an
 * end, and several streams one after the other. This code finds and completes the streams without decoding a byte.
 * Inside src/decode. */
#ifndef EK_DECODE_STREAMS_H
#define EK_DECODE_STREAMS_H

#include "decode/image_read.h"

enum {
    EK_STREAMS_MAX = 64, /* per file */
    EK_STREAM_HEAD = 512 /* bytes */
};

/* A stream: a part of the file, with bytes before it and some of its bytes replaced. */
typedef struct ek_stream {
    ek_media_bytes part;
    uint8_t head[EK_STREAM_HEAD]; /* bytes before the part */
    size_t n_head;
    uint8_t patch[5]; /* replaces the part's bytes from patch_at on, */
    size_t n_patch, patch_at;
    uint8_t crc[4]; /* and from crc_at on, unless it is 0 */
    size_t crc_at;
} ek_stream;

/* The bytes after leading ID3v2 tags. */
ek_media_bytes ek_streams_untagged(ek_media_bytes file);
/* Takes the next stream from *left; false: there is none. Linear in the stream's bytes. */
typedef bool ek_stream_next(ek_stream *out, ek_media_bytes *left);
ek_stream_next ek_stream_next_mpeg, ek_stream_next_ogg, ek_stream_next_flac;
/* Whether a frame of MPEG audio begins here, followed by others. */
bool ek_is_mpeg(ek_media_bytes file);

#endif
