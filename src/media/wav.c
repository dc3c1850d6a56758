/* RIFF/WAVE, read by ourselves: the common case depends on no library. */
#include <string.h>

#include "media/sound_read.h"

enum { INTEGER = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE };

bool ek_is_wav(ek_media_bytes f)
{
    return f.n >= 12 && memcmp(f.p, "RIFF", 4) == 0 && memcmp(f.p + 8, "WAVE", 4) == 0;
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
    if (o->codec == EXTENSIBLE && n >= 26) o->codec = ek_le16(p + 24); /* the first bytes of a GUID name the codec */
    return EK_OK;
}

static bool is_known(const form *o)
{
    if (o->codec == INTEGER) return o->bits == 8 || o->bits == 16 || o->bits == 24 || o->bits == 32;
    return o->codec == FLOAT && (o->bits == 32 || o->bits == 64);
}

/* A writer that streams does not know the length: 0 or all ones mean the rest of the file. */
static ek_err read_data(ek_sound_header *h, const form *o, size_t at, size_t claimed, size_t there)
{
    size_t frame = o->bits / 8 * o->channels;
    if (frame == 0 || o->align != frame)
        return ek_sound_damaged("WAV", "the size of its frames is not that of its samples");
    bool streamed = claimed == 0xFFFFFFFF || (claimed == 0 && there > 0);
    if (!streamed && claimed > there) return ek_sound_damaged("WAV", "it ends before its last sample");
    h->channels = o->channels;
    h->rate = o->rate;
    h->bits = (int)o->bits;
    h->floats = o->codec == FLOAT;
    h->data = at;
    h->frames = (int64_t)((streamed ? there : claimed) / frame);
    return EK_OK;
}

ek_err ek_wav_header(ek_sound_header *h, ek_media_bytes f, bool *known)
{
    form o = {0};
    *known = true;
    h->format = "WAV";
    for (size_t at = 12; f.n - at >= 8;) {
        size_t n = ek_le32(f.p + at + 4), there = f.n - at - 8;
        const uint8_t *p = f.p + at + 8;
        if (memcmp(f.p + at, "data", 4) == 0) {
            if (!o.there) return ek_sound_damaged("WAV", "its samples come before their format");
            *known = is_known(&o);
            return *known ? read_data(h, &o, at + 8, n, there) : EK_OK;
        }
        if (n > there) break;
        if (memcmp(f.p + at, "fmt ", 4) == 0) EK_TRY(read_form(&o, p, n));
        n += n & 1;
        if (n > there) break;
        at += 8 + n;
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
        uint64_t u = (uint64_t)ek_le32(p + 4) << 32 | ek_le32(p);
        double v;
        memcpy(&v, &u, sizeof v);
        return (float)v;
    }
    if (bits == 8) return (float)(p[0] - 128) / 128.0f;
    /* To the upper end of 32 bits, so that the sign is where it has to be; the division by 2^31 is exact. */
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
