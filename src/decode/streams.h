/* The streams that a coded sound consists of. Recorders and programs that join files leave what libraries read in part
 * or not at all: MP3 without a frame that says how many follow, FLAC that says nothing of its length, Ogg without an
 * end, and several of them one behind the other. Here they are found and made whole, without a byte being decoded.
 * Inside src/decode. */
#ifndef EK_DECODE_STREAMS_H
#define EK_DECODE_STREAMS_H

#include "decode/image_read.h"

enum {
    EK_STREAMS_MAX = 64, /* of a file */
    EK_STREAM_HEAD = 512 /* bytes */
};

/* A stream: a part of the file, with some of its bytes replaced and others before it. */
typedef struct ek_stream {
    ek_media_bytes part;
    uint8_t head[EK_STREAM_HEAD]; /* what stands before the part */
    size_t n_head;
    uint8_t patch[5]; /* what replaces the part's bytes from patch_at on, */
    size_t n_patch, patch_at;
    uint8_t crc[4]; /* and from crc_at on, where that is not 0 */
    size_t crc_at;
} ek_stream;

/* Bytes without the ID3v2 tags in front. */
ek_media_bytes ek_streams_untagged(ek_media_bytes file);
/* The next stream of what is left, which shrinks; false: there is none. Linear in the bytes of the stream. */
typedef bool ek_stream_next(ek_stream *out, ek_media_bytes *left);
ek_stream_next ek_stream_next_mpeg, ek_stream_next_ogg, ek_stream_next_flac;
/* Does a frame of MPEG audio begin here, with others behind it? */
bool ek_is_mpeg(ek_media_bytes file);

#endif
