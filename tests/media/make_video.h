/* Videos that tests draw and an ffmpeg encodes, without a lock: what is given to it is ours. */
#ifndef EK_TESTS_MEDIA_MAKE_VIDEO_H
#define EK_TESTS_MEDIA_MAKE_VIDEO_H

#include <stdint.h>

#include "base/buf.h"

/* "/tmp/ek-STEM-XX…", for mkstemp and mkdtemp. */
void temp_name(char *to, size_t n, const char *stem);

/* NULL: none is installed. */
const char *ffmpeg_path(void);

/* n frames of width x height; pixel (x, y) of frame i is grey, level[i], but for its upper left quarter, which is red.
 * words: ffmpeg's for the output, in one text with blanks between, "-c:v png -f mov"; rate: "25" or "30000/1001". */
void make_video(ek_buf *out, int width, int height, int n, const uint8_t *level, const char *rate, const char *words);
/* Of a file in `in`: ffmpeg's words for what is made of it, "-c copy -f matroska". */
void make_copy(ek_buf *out, const ek_buf *in, const char *words);
/* A second of silence. */
void make_sound_file(ek_buf *out, const char *words);

#endif
