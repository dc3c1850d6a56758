#include "media/split.h"

#include <string.h>

#include "base/encoding.h"
#include "media/limits.h"

int ek_sound_pieces(int samples, ek_sound_kind kind)
{
    if (samples < 1) return 0;
    const int whole = samples / EK_SOUND_MAX_SAMPLES, rest = samples % EK_SOUND_MAX_SAMPLES;
    return whole + (kind == EK_SOUND_TOWER ? ek_mel_frames(rest) > 0 : rest > 0);
}

ek_sound ek_sound_piece(const ek_sound *s, int i)
{
    const int first = i * EK_SOUND_MAX_SAMPLES, left = s->samples - first;
    EK_ASSERT(i >= 0 && left > 0);
    return (ek_sound){left < EK_SOUND_MAX_SAMPLES ? left : EK_SOUND_MAX_SAMPLES, s->v + first};
}

ek_err ek_sound_tokens_long(int *out, int samples, ek_sound_kind kind)
{
    const int pieces = ek_sound_pieces(samples, kind);
    if (pieces == 0 || samples > EK_SOUND_MAX_SECONDS * EK_SOUND_RATE)
        return ek_fail(EK_EINVAL, "a sound of %d samples at %d per second; one token's to %d are possible", samples,
                       EK_SOUND_RATE, EK_SOUND_MAX_SECONDS * EK_SOUND_RATE);
    *out = 0;
    for (int i = 0; i < pieces; i++) {
        int n, left = samples - i * EK_SOUND_MAX_SAMPLES;
        EK_TRY(ek_sound_tokens(&n, left < EK_SOUND_MAX_SAMPLES ? left : EK_SOUND_MAX_SAMPLES, kind));
        *out += n;
    }
    return EK_OK;
}

bool ek_sound_wav(ek_buf *out, const float *v, int n)
{
    enum { HEAD = 44, FLOAT = 3 };
    const uint32_t bytes = (uint32_t)n * 4;
    uint8_t head[HEAD] = "RIFF....WAVEfmt ";
    if (!ek_buf_reserve(out, HEAD + (size_t)bytes)) return false;
    ek_put_le(head + 4, HEAD - 8 + bytes, 4);
    ek_put_le(head + 16, 16, 4), ek_put_le(head + 20, FLOAT, 2), ek_put_le(head + 22, 1, 2);
    ek_put_le(head + 24, EK_SOUND_RATE, 4), ek_put_le(head + 28, 4 * EK_SOUND_RATE, 4);
    ek_put_le(head + 32, 4, 2), ek_put_le(head + 34, 32, 2);
    memcpy(head + 36, "data", 4);
    ek_put_le(head + 40, bytes, 4);
    ek_buf_add(out, head, HEAD);
    for (int i = 0; i < n; i++) {
        uint8_t p[4];
        uint32_t u;
        memcpy(&u, &v[i], sizeof u);
        ek_put_le(p, u, 4);
        ek_buf_add(out, p, 4);
    }
    return true;
}
