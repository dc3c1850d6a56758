/* WAV (RIFF, RF64, BW64 and Wave64), read without a library, because it is the common case. */
#include <string.h>

#include "decode/sound_read.h"

enum { INTEGER = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE };

/* The layout of a file's chunks. Wave64 names chunks by GUIDs that begin with RIFF's names in lower case. It counts a
 * chunk's head among the chunk's bytes. */
typedef struct layout {
    size_t head, first, even; /* bytes of a chunk's head and of the file's; the unit of chunk lengths */
    bool wide;
} layout;

static const layout riff = {8, 12, 2, false}, wave64 = {24, 40, 8, true};
static const uint8_t riff_guid[] = {'r', 'i', 'f', 'f', 0x2E, 0x91, 0xCF, 0x11, 0xA5, 0xD6, 0x28, 0xDB, 4, 0xC1, 0, 0};
static const uint8_t tail_guid[] = {0xF3, 0xAC, 0xD3, 0x11, 0x8C, 0xD1, 0, 0xC0, 0x4F, 0x8E, 0xDB, 0x8A};

static bool is_wave64(ek_media_bytes f)
{
    return f.n >= 40 && memcmp(f.p, riff_guid, 16) == 0 && memcmp(f.p + 24, "wave", 4) == 0 &&
           memcmp(f.p + 28, tail_guid, 12) == 0;
}

/* Whether lengths of 64 bits are in a chunk "ds64": RF64, BW64. */
static bool is_rf64(ek_media_bytes f)
{
    return memcmp(f.p, "RF64", 4) == 0 || memcmp(f.p, "BW64", 4) == 0;
}

bool ek_is_wav(ek_media_bytes f)
{
    if (f.n < 12) return false;
    return is_wave64(f) || ((memcmp(f.p, "RIFF", 4) == 0 || is_rf64(f)) && memcmp(f.p + 8, "WAVE", 4) == 0);
}

static uint64_t le64(const uint8_t *p)
{
    return (uint64_t)ek_le32(p + 4) << 32 | ek_le32(p);
}

static bool is_named(const layout *l, const uint8_t *p, const char *name)
{
    if (!l->wide) return memcmp(p, name, 4) == 0;
    for (int i = 0; i < 4; i++)
        if (p[i] != (name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 32 : name[i])) return false;
    return memcmp(p + 4, tail_guid, sizeof tail_guid) == 0;
}

/* The length of a chunk's data, read from its head. */
static uint64_t length_of(const layout *l, const uint8_t *p)
{
    if (!l->wide) return ek_le32(p + 4);
    const uint64_t n = le64(p + 16);
    return n < l->head ? 0 : n - l->head;
}

/* Whether this is the head of a chunk after the samples, and chunks follow up to the end of the file. */
static bool is_tail(const layout *l, const uint8_t *p, size_t n)
{
    static const char *const names[] = {"LIST", "id3 ", "ID3 ", "bext", "cue ", "smpl", "JUNK", "junk", "FLLR", "PAD ",
                                        "iXML", "_PMX", "fact", "PEAK", "inst", "axml", "chna", "afsp", "DISP", "levl",
                                        "acid", "cart", "minf", "elm1", "regn", "umid", "SAUR", "MARK", "strc", "note"};
    enum { MAX = 32 };
    for (int chunks = 0; chunks < MAX && n >= l->head; chunks++) {
        bool known = false;
        uint64_t size = length_of(l, p);
        if (size > n - l->head) return false;
        for (size_t i = 0; i < sizeof names / sizeof *names && !known; i++) known = is_named(l, p, names[i]);
        if (!known) return false;
        size = (size + l->head + l->even - 1) / l->even * l->even;
        if (size >= n) return true; /* the last chunk, which may lack its padding */
        p += size, n -= (size_t)size;
    }
    return n == 0;
}

/* The bytes of samples after the head of a chunk without a length. They end at the chunks that the writer appended at
 * the end. */
static size_t find_end(const layout *l, const uint8_t *p, size_t n)
{
    for (size_t at = 0; at + l->head <= n; at++) {
        const uint8_t c = p[at];
        if (((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_') && is_tail(l, p + at, n - at)) return at;
    }
    return n;
}

typedef struct form {
    bool there;
    unsigned codec, channels, align, bits;
    uint32_t rate;
} form;

static ek_err read_form(form *o, const uint8_t *p, size_t n)
{
    if (n < 16) return ek_sound_damaged("WAV", "its format has fewer than 16 bytes");
    *o = (form){.there = true,
                .codec = ek_le16(p),
                .channels = ek_le16(p + 2),
                .rate = ek_le32(p + 4),
                .align = ek_le16(p + 12),
                .bits = ek_le16(p + 14)};
    if (o->codec == EXTENSIBLE && n >= 26) o->codec = ek_le16(p + 24); /* a GUID begins with the codec */
    return EK_OK;
}

static bool is_known(const form *o)
{
    if (o->codec == INTEGER) return o->bits == 8 || o->bits == 16 || o->bits == 24 || o->bits == 32;
    return o->codec == FLOAT && (o->bits == 32 || o->bits == 64);
}

/* A program that writes to a pipe does not know the length and cannot seek back. The field then is 0, all ones, or its
 * maximum, each with or without the bytes around the samples. */
static bool is_unknown(const layout *l, uint64_t claimed, size_t there)
{
    return claimed == 0 || (claimed > there && (claimed >= 0x7F000000 || (l->wide && claimed >= 0x7F000000 - l->head)));
}

static ek_err read_data(ek_sound_header *h, const layout *l, const form *o, ek_media_bytes f, size_t at,
                        uint64_t claimed)
{
    size_t frame = o->bits / 8 * o->channels, there = f.n - at;
    if (frame == 0 || o->align != frame)
        return ek_sound_damaged("WAV", "the size of its frames is not that of its samples");
    if (is_unknown(l, claimed, there)) claimed = find_end(l, f.p + at, there);
    if (claimed > there) return ek_sound_damaged("WAV", "it ends before its last sample");
    h->channels = o->channels;
    h->rate = o->rate;
    h->bits = (int)o->bits;
    h->floats = o->codec == FLOAT;
    h->data = at;
    h->frames = (int64_t)(claimed / frame);
    return EK_OK;
}

/* Programs that join files leave a second header, or a second chunk of samples, after the first one. Reading only one
 * part without a message would give a wrong answer. */
static ek_err check_behind(const layout *l, ek_media_bytes f, const ek_sound_header *h)
{
    uint64_t at = h->data + (uint64_t)h->frames * (uint64_t)(h->bits / 8 * h->channels);
    at = (at + l->even - 1) / l->even * l->even;
    while (at <= f.n && f.n - at >= l->head) {
        const ek_media_bytes rest = {f.p + at, f.n - (size_t)at};
        if (ek_is_wav(rest) || is_named(l, rest.p, "data"))
            return ek_sound_damaged("WAV", "a second sound stands behind the first; join them, or send one");
        const uint64_t n = length_of(l, rest.p);
        if (n > rest.n - l->head) break;
        at += (n + l->head + l->even - 1) / l->even * l->even;
    }
    return EK_OK;
}

ek_err ek_wav_header(ek_sound_header *h, ek_media_bytes f, bool *known)
{
    const layout *l = is_wave64(f) ? &wave64 : &riff;
    const bool rf64 = is_rf64(f);
    uint64_t samples = 0xFFFFFFFF; /* bytes of the samples, from ds64 */
    form o = {0};
    *known = true;
    h->format = "WAV";
    for (size_t at = l->first; f.n - at >= l->head;) {
        const size_t there = f.n - at - l->head;
        const uint8_t *p = f.p + at + l->head;
        uint64_t n = length_of(l, f.p + at);
        if (is_named(l, f.p + at, "data")) {
            if (!o.there) return ek_sound_damaged("WAV", "its samples come before their format");
            if (rf64 && n == 0xFFFFFFFF) n = samples;
            *known = is_known(&o);
            if (!*known) return EK_OK;
            EK_TRY(read_data(h, l, &o, f, at + l->head, n));
            return check_behind(l, f, h);
        }
        if (n > there) break;
        if (is_named(l, f.p + at, "fmt ")) EK_TRY(read_form(&o, p, (size_t)n));
        if (rf64 && is_named(l, f.p + at, "ds64") && n >= 16) samples = le64(p + 8);
        n = (n + l->head + l->even - 1) / l->even * l->even;
        if (n > f.n - at) break;
        at += (size_t)n;
    }
    return ek_sound_damaged("WAV", "it ends before its samples");
}

static float sample(const uint8_t *p, int bits, bool floats)
{
    if (floats && bits == 32) {
        uint32_t u = ek_le32(p);
        float v;
        memcpy(&v, &u, sizeof v);
        return v;
    }
    if (floats) {
        uint64_t u = le64(p);
        double v;
        memcpy(&v, &u, sizeof v);
        return (float)v;
    }
    if (bits == 8) return (float)(p[0] - 128) / 128.0f;
    /* The sample goes to the upper end of 32 bits, so that its sign is the word's sign. The division by 2^31 is
     * exact. */
    uint32_t u = bits == 16 ? ek_le16(p) << 16 : bits == 24 ? ek_le16(p + 1) << 16 | (uint32_t)p[0] << 8 : ek_le32(p);
    return (float)(int32_t)u / 2147483648.0f;
}

void ek_wav_mono(float *to, const ek_sound_header *h, ek_media_bytes f)
{
    const uint8_t *p = f.p + h->data;
    for (int64_t i = 0; i < h->frames; i++) {
        float sum = 0.0f;
        for (int64_t c = 0; c < h->channels; c++, p += h->bits / 8) sum += sample(p, h->bits, h->floats);
        to[i] = h->channels > 1 ? sum / (float)h->channels : sum;
    }
}
