/* Pictures and sounds that several holders share. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "media/limits.h"
#include "media/part/part.h"

static ek_media *make(ek_part_kind kind)
{
    ek_media *m = ek_alloc(sizeof *m);
    m->kind = kind;
    atomic_init(&m->refs, 1);
    return m;
}

static ek_err give(ek_media **out, ek_media *m, ek_err err)
{
    if (err) {
        ek_media_release(m);
        m = NULL;
    }
    *out = m;
    return err;
}

static ek_err done_picture(ek_media **out, ek_media *m, ek_err err)
{
    m->tokens = m->picture.fit.tokens;
    memcpy(m->digest, m->picture.digest, sizeof m->digest);
    return give(out, m, err);
}

ek_err ek_media_read_picture(ek_media **out, ek_part_kind kind, const void *bytes, size_t n, const ek_picture_opts *o)
{
    ek_media *m = make(kind);
    EK_ASSERT(kind == EK_PART_IMAGE || kind == EK_PART_FRAME);
    return done_picture(out, m, ek_picture_read(&m->picture, bytes, n, o));
}

ek_err ek_media_make_picture(ek_media **out, ek_part_kind kind, const ek_image *image, const ek_picture_opts *o)
{
    ek_media *m = make(kind);
    EK_ASSERT(kind == EK_PART_IMAGE || kind == EK_PART_FRAME);
    return done_picture(out, m, ek_picture_make(&m->picture, image, o));
}

/* Features depend only on the values of the samples, so the name is a hash of the samples' bits. */
static ek_err done_sound(ek_media **out, ek_media *m, ek_sound_kind kind)
{
    ek_err err = ek_sound_tokens(&m->tokens, m->sound.samples, kind);
    if (!err) ek_sha256(m->digest, m->sound.v, sizeof *m->sound.v * (size_t)m->sound.samples);
    return give(out, m, err);
}

ek_err ek_media_read_sound(ek_media **out, const void *bytes, size_t n, ek_sound_kind kind)
{
    ek_media *m = make(EK_PART_SOUND);
    ek_err err = ek_sound_read(&m->sound, bytes, n);
    return err ? give(out, m, err) : done_sound(out, m, kind);
}

ek_err ek_media_make_sound(ek_media **out, const float *samples, int n, ek_sound_kind kind)
{
    ek_media *m = make(EK_PART_SOUND);
    int tokens;
    ek_err err = ek_sound_tokens(&tokens, n, kind);
    if (err) return give(out, m, err);
    m->sound.samples = n;
    m->sound.v = ek_alloc(sizeof *samples * (size_t)n);
    memcpy(m->sound.v, samples, sizeof *samples * (size_t)n);
    return done_sound(out, m, kind);
}

ek_media *ek_media_retain(ek_media *m)
{
    atomic_fetch_add(&m->refs, 1);
    return m;
}

void ek_media_release(ek_media *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) > 1) return;
    ek_picture_free(&m->picture);
    ek_sound_free(&m->sound);
    free(m);
}

uint64_t ek_media_name(const ek_media *m)
{
    uint64_t name = 0;
    for (int i = 0; i < 8; i++) name = name << 8 | m->digest[i];
    return name ? name : 1;
}

size_t ek_media_memory(const ek_media *m)
{
    return sizeof *m + (m->kind == EK_PART_SOUND ? sizeof *m->sound.v * (size_t)m->sound.samples
                                                 : ek_image_bytes(&m->picture.image));
}
