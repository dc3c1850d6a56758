/* MPEG audio: frames, each with its own length. */
#include <string.h>

#include "decode/sound_read.h"

typedef struct frame {
    int version, layer; /* version: 1: MPEG 1, 2: 2, 3: 2.5 */
    int rate;
    bool mono;
    size_t n; /* bytes */
} frame;

/* Kilobits per second, in eighths. */
static int rate_of_bits(const frame *f, int index)
{
    static const uint8_t table[5][16] = {
        {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 0}, /* MPEG 1, layer I */
        {0, 4, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 0},   /* II */
        {0, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 0},    /* III */
        {0, 4, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 0},   /* MPEG 2, layer I */
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 0}};      /* II and III */
    return table[f->version == 1 ? f->layer - 1 : f->layer == 1 ? 3 : 4][index];
}

static bool read_frame(frame *f, const uint8_t *p, size_t n)
{
    static const int rates[] = {44100, 48000, 32000};
    if (n < 4 || p[0] != 0xFF || (p[1] & 0xE0) != 0xE0) return false;
    const int version = p[1] >> 3 & 3, layer = 4 - (p[1] >> 1 & 3), rate = p[2] >> 2 & 3;
    if (version == 1 || layer == 4 || rate == 3) return false;
    *f = (frame){.version = version == 3 ? 1 : version == 2 ? 2 : 3, .layer = layer, .mono = p[3] >> 6 == 3};
    f->rate = rates[rate] >> (f->version - 1);
    const size_t bits = (size_t)rate_of_bits(f, p[2] >> 4) * 8000, padding = p[2] >> 1 & 1;
    if (bits == 0) return false; /* also refuses free rates, whose frames do not give their length */
    f->n = layer == 1                      ? (12 * bits / (size_t)f->rate + padding) * 4
           : layer == 3 && f->version != 1 ? 72 * bits / (size_t)f->rate + padding
                                           : 144 * bits / (size_t)f->rate + padding;
    return true;
}

static bool is_same(const frame *a, const frame *b)
{
    return a->version == b->version && a->layer == b->layer && a->rate == b->rate && a->mono == b->mono;
}

/* A whole frame. After it comes another frame like it, a tag, or nothing. */
static bool begins(frame *f, const uint8_t *p, size_t n)
{
    frame next;
    if (!read_frame(f, p, n) || f->n > n) return false;
    const uint8_t *q = p + f->n;
    const size_t left = n - f->n;
    if (read_frame(&next, q, left)) return is_same(f, &next);
    return left < 4 || memcmp(q, "TAG", 3) == 0 || memcmp(q, "ID3", 3) == 0 || memcmp(q, "APET", 4) == 0;
}

/* Frames may follow other bytes, for example if a recording began in the middle of a stream. */
bool ek_is_mpeg(ek_media_bytes file)
{
    enum { MAX_BEFORE = 8192, FRAMES = 3 };
    for (size_t at = 0; at < file.n && at < MAX_BEFORE; at++) {
        size_t to = at;
        int n = 0;
        for (frame f; n < FRAMES && begins(&f, file.p + to, file.n - to); n++) to += f.n;
        if (n == FRAMES || (at == 0 && n > 0 && to == file.n)) return true;
    }
    return false;
}

/* The offset of the word "Xing" or "Info" with a frame count; 0: none. */
static size_t find_info(const frame *f, const uint8_t *p)
{
    const size_t side = f->version == 1 ? (f->mono ? 17 : 32) : f->mono ? 9 : 17;
    for (size_t at = 4 + side; at <= 6 + side && f->layer == 3 && at + 12 <= f->n; at += 2)
        if (memcmp(p + at, "Xing", 4) == 0 || memcmp(p + at, "Info", 4) == 0) return at;
    return 0;
}

/* Writes a frame with the number of the following frames. It has no sound, and decoders leave it out. */
static void write_info(ek_stream *out, const uint8_t *first, uint32_t frames)
{
    frame f;
    uint8_t *p = out->head;
    memcpy(p, first, 4);
    p[1] |= 1;                                           /* without a checksum */
    p[2] = (p[2] & 0x0C) | 9 << 4;                       /* 128 or 80 kilobits per second, without padding */
    if (!read_frame(&f, p, 4) || f.n > EK_STREAM_HEAD) { /* 180 to 576 bytes */
        p[2] = (p[2] & 0x0C) | 5 << 4;
        read_frame(&f, p, 4);
    }
    const size_t at = 4 + (f.version == 1 ? (f.mono ? 17u : 32u) : f.mono ? 9u : 17u);
    memcpy(p + at, "Info\0\0\0\1", 8);
    for (int i = 0; i < 4; i++) p[at + 8 + (size_t)i] = (uint8_t)(frames >> (24 - 8 * i));
    out->n_head = f.n;
}

/* The first frame from `left` on, after tags and other bytes. */
static bool find_first(frame *f, ek_media_bytes *left)
{
    for (; left->n >= 4; left->p++, left->n--) {
        if (left->p[0] == 'I') *left = ek_streams_untagged(*left);
        if (begins(f, left->p, left->n)) return true;
        if (left->n == 0) return false;
    }
    return false;
}

bool ek_stream_next_mpeg(ek_stream *out, ek_media_bytes *left)
{
    frame first, f;
    *out = (ek_stream){0};
    if (!find_first(&first, left)) return false;
    const uint8_t *p = left->p;
    size_t info = find_info(&first, p), at = 0;
    uint32_t max = info && p[info + 7] & 1 ? ek_be32(p + info + 8) : 0, n = 0;
    if (info && max == 0) { /* it says nothing */
        p += first.n, left->p += first.n, left->n -= first.n;
        info = 0;
    }
    if (info) at = first.n;
    while ((!info || n < max) && read_frame(&f, p + at, left->n - at) && is_same(&f, &first) && f.n <= left->n - at) {
        if (!info && n > 0 && find_info(&f, p + at)) break; /* another stream */
        at += f.n;
        n++;
    }
    out->part = (ek_media_bytes){p, at};
    left->p += at, left->n -= at;
    if (!info && n == 0) return left->n > 0 && ek_stream_next_mpeg(out, left);
    if (!info && first.layer == 3) write_info(out, p, n);
    return true;
}
