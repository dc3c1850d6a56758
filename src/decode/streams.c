/* Ogg and FLAC, and tags before either of them. */
#define _GNU_SOURCE /* memmem */
#include "decode/sound_read.h"

#include "base/encoding.h"

#include <string.h>

ek_media_bytes ek_streams_untagged(ek_media_bytes f)
{
    while (f.n >= 10 && memcmp(f.p, "ID3", 3) == 0) {
        size_t n = 10 + ((size_t)(f.p[6] & 127) << 21 | (size_t)(f.p[7] & 127) << 14 | (size_t)(f.p[8] & 127) << 7 |
                         (f.p[9] & 127));
        if (f.p[5] & 0x10) n += 10; /* a foot has the size of the head */
        if (n > f.n) n = f.n;
        f.p += n, f.n -= n;
    }
    return f;
}

/* --- Ogg: pages --- */

enum { FLAGS = 5, GRANULE = 6, SERIAL = 14, CRC = 22, SEGMENTS = 26, BEGIN = 2, END = 4 };

/* The bytes of the page that begins here; 0: no whole page begins here. */
static size_t page_bytes(const uint8_t *p, size_t n)
{
    if (n < 27 || memcmp(p, "OggS", 4) != 0 || n < 27u + p[SEGMENTS]) return 0;
    size_t bytes = 27u + p[SEGMENTS];
    for (int i = 0; i < p[SEGMENTS]; i++) bytes += p[27 + i];
    return bytes <= n ? bytes : 0;
}

static bool is_sound(const uint8_t *page, size_t n)
{
    static const char *const codecs[] = {"OpusHead", "\1vorbis", "\177FLAC", "Speex   "};
    const size_t at = 27u + page[SEGMENTS];
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (n - at >= strlen(codecs[i]) && memcmp(page + at, codecs[i], strlen(codecs[i])) == 0) return true;
    return false;
}

static uint32_t page_crc(const uint8_t *p, size_t n, uint8_t flags)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint32_t)(i == FLAGS ? flags : i >= CRC && i < CRC + 4 ? 0 : p[i]) << 24;
        for (int k = 0; k < 8; k++) crc = crc << 1 ^ (crc >> 31 ? 0x04C11DB7 : 0);
    }
    return crc;
}

/* Makes the page at `at` the last page of the stream. */
static void end_with(ek_stream *out, size_t at, size_t n)
{
    const uint8_t *p = out->part.p + at;
    const uint8_t flags = p[FLAGS] | END;
    const uint32_t crc = page_crc(p, n, flags);
    out->patch[0] = flags;
    out->patch_at = at + FLAGS;
    out->n_patch = 1;
    out->crc_at = at + CRC;
    ek_put_le(out->crc, crc, 4);
    out->part.n = at + n;
}

/* A stream is the pages that begin it, and all pages up to the next ones that begin a stream. */
bool ek_stream_next_ogg(ek_stream *out, ek_media_bytes *left)
{
    size_t at = 0, end = 0, last = 0, last_n = 0;
    uint32_t serial = 0;
    bool body = false, known = false, sound = false;
    *out = (ek_stream){.part = *left};
    while (at < left->n) {
        const uint8_t *p = left->p + at;
        const size_t n = page_bytes(p, left->n - at);
        if (n == 0) { /* after a damaged or cut part, the search continues at the next page */
            const uint8_t *next = left->n - at > 4 ? memmem(p + 1, left->n - at - 1, "OggS", 4) : NULL;
            if (!next) break;
            at = (size_t)(next - left->p);
            continue;
        }
        const bool first = p[FLAGS] & BEGIN;
        if (first && body) break;
        body |= !first;
        if (first && !sound && (!known || is_sound(p, n))) {
            serial = ek_le32(p + SERIAL);
            sound = is_sound(p, n);
            known = true;
        }
        const bool none = ek_le32(p + GRANULE) == 0xFFFFFFFF && ek_le32(p + GRANULE + 4) == 0xFFFFFFFF;
        if (known && !none && ek_le32(p + SERIAL) == serial) last = at, last_n = n;
        at += n;
        end = at;
    }
    if (end == 0) return false;
    out->part.n = end;
    if (last_n && !(left->p[last + FLAGS] & END)) end_with(out, last, last_n);
    if (at == end) left->p += end, left->n -= end;
    else *left = (ek_media_bytes){left->p + left->n, 0}; /* no page follows */
    return true;
}

/* --- FLAC: a head with the number of samples, and frames with their positions --- */

enum { INFO = 8, FIRST = 42 }; /* of the stream */

static bool is_flac(const uint8_t *p, size_t n)
{
    return n >= FIRST && memcmp(p, "fLaC", 4) == 0 && (p[4] & 0x7F) == 0 && p[5] == 0 && p[6] == 0 && p[7] == 34;
}

/* Reads the number at p, coded like UTF-8 but with up to 36 bits. Returns its bytes; 0: there is no number. */
static int read_number(uint64_t *out, const uint8_t *p, size_t n)
{
    int more = 0;
    while (more < 7 && p[0] << more & 0x80) more++;
    if (more == 1 || n < 7) return 0;
    *out = more ? p[0] & (0x7F >> more) : p[0];
    for (int i = 1; i < more; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        *out = *out << 6 | (p[i] & 0x3F);
    }
    return more ? more : 1;
}

static uint8_t crc8(const uint8_t *p, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = (crc << 1 ^ (crc & 0x80 ? 7 : 0)) & 0xFF;
    }
    return (uint8_t)crc;
}

static bool is_whole(const uint8_t *p, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)p[i] << 8;
        for (int k = 0; k < 8; k++) crc = (crc << 1 ^ (crc & 0x8000 ? 0x8005 : 0)) & 0xFFFF;
    }
    return crc == 0;
}

/* Reads a frame's head: its first sample and its number of samples. block: the samples per frame, in a stream where all
 * frames have the same number. */
static bool read_head(uint64_t *from, uint64_t *samples, const uint8_t *p, size_t n, unsigned block)
{
    if (n < 16 || p[0] != 0xFF || (p[1] & 0xFE) != 0xF8 || p[3] & 1 || p[3] >> 4 > 10) return false;
    const unsigned size = p[2] >> 4, rate = p[2] & 15;
    const int digits = read_number(from, p + 4, n - 4);
    if (size == 0 || rate == 15 || digits == 0) return false;
    size_t at = 4 + (size_t)digits;
    *samples = size == 1   ? 192
               : size < 6  ? 576u << (size - 2)
               : size == 6 ? p[at] + 1u
               : size == 7 ? ek_be16(p + at) + 1u
                           : 256u << (size - 8);
    at += size == 6 ? 1 : size == 7 ? 2 : 0;
    at += rate == 12 ? 1 : rate > 12 ? 2 : 0;
    if (!(p[1] & 1)) *from *= block;
    return at < n && crc8(p, at) == p[at];
}

/* Counts by the number of the last frame. A frame that is cut does not count. */
static uint64_t count_samples(ek_media_bytes f)
{
    enum { MAX_TRIED = 8, MAX_FRAME = 1 << 20 };
    const unsigned block = ek_be16(f.p + INFO + 2);
    uint64_t from, samples, without = 0;
    if (f.n >= FIRST + 128 && memcmp(f.p + f.n - 128, "TAG", 3) == 0) f.n -= 128;
    int tried = 0;
    for (size_t at = f.n; at-- > FIRST && tried < MAX_TRIED && f.n - at < MAX_FRAME;) {
        if (f.p[at] != 0xFF || !read_head(&from, &samples, f.p + at, f.n - at, block)) continue;
        if (is_whole(f.p + at, f.n - at)) return from + samples;
        if (tried++ == 0) without = from;
    }
    return without;
}

bool ek_stream_next_flac(ek_stream *out, ek_media_bytes *left)
{
    if (!is_flac(left->p, left->n)) return false;
    const uint8_t *end = left->p + left->n, *next = left->p + FIRST;
    while ((next = memmem(next, (size_t)(end - next), "fLaC", 4)) && !is_flac(next, (size_t)(end - next))) next += 4;
    if (!next) next = end;
    *out = (ek_stream){.part = {left->p, (size_t)(next - left->p)}};
    *left = (ek_media_bytes){next, (size_t)(end - next)};
    const uint8_t *said = out->part.p + INFO + 13; /* 36 bits of samples, after bits of other numbers */
    if ((said[0] & 15) != 0 || ek_be32(said + 1) != 0) return true;
    const uint64_t n = count_samples(out->part);
    out->patch_at = INFO + 13;
    out->n_patch = 5;
    out->patch[0] = (uint8_t)((said[0] & 0xF0) | (n >> 32 & 15));
    for (int i = 0; i < 4; i++) out->patch[1 + i] = (uint8_t)(n >> (24 - 8 * i));
    return true;
}
