#include "media/video/container.h"

#include <stdio.h>
#include <string.h>

#include "media/limits.h"
#include "media/video/video.h"

static const ek_container mov = {"MP4", "mov", "video/mp4"}, webm = {"WebM", "matroska", "video/webm"},
                          avi = {"AVI", "avi", "video/x-msvideo"}, ogg = {"Ogg", "ogg", "video/ogg"},
                          flv = {"FLV", "flv", "video/x-flv"}, mpeg = {"MPEG", "mpeg", "video/mpeg"},
                          mpegts = {"MPEG-TS", "mpegts", "video/mp2t"}, asf = {"ASF", "asf", "video/x-ms-wmv"},
                          gif = {"GIF", "gif", "video/gif"};

static const char formats[] = "MP4 (MOV), WebM (Matroska), AVI, Ogg, FLV, MPEG, MPEG-TS, ASF (WMV) and GIF";

static bool begins(const uint8_t *p, size_t n, size_t at, const char *with, size_t n_with)
{
    return n >= at + n_with && memcmp(p + at, with, n_with) == 0;
}

static bool is_mov(const uint8_t *p, size_t n)
{
    static const char *const boxes[] = {"ftyp", "moov", "mdat", "wide", "free", "skip"};
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        if (begins(p, n, 4, boxes[i], 4)) return true;
    return false;
}

static bool is_ts(const uint8_t *p, size_t n)
{
    enum { PACKET = 188 };
    return n > 2 * PACKET && p[0] == 0x47 && p[PACKET] == 0x47 && p[2 * PACKET] == 0x47;
}

/* NULL: no readable kind. */
static const ek_container *container_find(const uint8_t *p, size_t n)
{
    static const struct {
        const char *begin;
        size_t n;
        const ek_container *is;
    } known[] = {{"\x1A\x45\xDF\xA3", 4, &webm},
                 {"OggS", 4, &ogg},
                 {"FLV\x01", 4, &flv},
                 {"\0\0\x01\xBA", 4, &mpeg},
                 {"\0\0\x01\xB3", 4, &mpeg},
                 {"\x30\x26\xB2\x75", 4, &asf},
                 {"GIF87a", 6, &gif},
                 {"GIF89a", 6, &gif}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(p, n, 0, known[i].begin, known[i].n)) return known[i].is;
    if (begins(p, n, 0, "RIFF", 4) && begins(p, n, 8, "AVI ", 4)) return &avi;
    return is_mov(p, n) ? &mov : is_ts(p, n) ? &mpegts : NULL;
}

const char *ek_video_type(const void *bytes, size_t n)
{
    const ek_container *k = container_find(bytes, n);
    return k ? k->type : NULL;
}

ek_err ek_container_check(const ek_container **out, const uint8_t *p, size_t n)
{
    if (n > EK_MEDIA_MAX_BYTES) return ek_fail(EK_ETOOLARGE, "video of %zu bytes, at most %d", n, EK_MEDIA_MAX_BYTES);
    *out = container_find(p, n);
    if (*out) return EK_OK;
    char begin[3 * 4 + 1] = "";
    for (size_t i = 0; i < 4 && i < n; i++) snprintf(begin + 3 * i, 4, "%02x ", p[i]);
    if (n == 0) return ek_fail(EK_EINVAL, "empty video: it has 0 bytes");
    begin[3 * (n < 4 ? n : 4) - 1] = '\0';
    return ek_fail(EK_EINVAL, "not a video of a known kind: it begins with the bytes %s; known are %s", begin, formats);
}
