#include "media/part/part.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "media/limits.h"

/* --- pictures and sounds that several holders share --- */

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
    ek_err err = ek_sound_read(&m->sound, bytes, n, EK_SOUND_SECONDS);
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

/* --- their positions in a prompt --- */

const char *ek_part_name(ek_part_kind kind)
{
    static const char *const name[] = {"image", "video frame", "sound"};
    return name[kind];
}

ek_part_kind ek_part_kind_of(const ek_media_ids *ids, int32_t token)
{
    int k = 0;
    while (k < EK_PART_KINDS && (token <= 0 || ids->soft[k] != token)) k++;
    return (ek_part_kind)k;
}

static ek_err no_media(int pos, ek_part_kind kind)
{
    return ek_fail(EK_EINVAL, "position %d is a place for a%s %s, and none is attached for it", pos,
                   kind == EK_PART_IMAGE ? "n" : "", ek_part_name(kind));
}

/* The index of the next part of a kind, from index i on; n: none. */
static int next_of(const ek_part *part, int n, int i, ek_part_kind kind)
{
    while (i < n && part[i].media->kind != kind) i++;
    return i;
}

/* The number of the part among those of its kind, from 1. */
static int ordinal(const ek_part *part, int i)
{
    int n = 0;
    for (int k = 0; k <= i; k++) n += part[k].media->kind == part[i].media->kind;
    return n;
}

/* Part i was not taken, because parts of its kind are taken in order. */
static ek_err no_place(const ek_part *part, int n, int i)
{
    int places = ordinal(part, i) - 1, all = places;
    ek_part_kind kind = part[i].media->kind;
    for (int k = i; k < n; k++) all += part[k].media->kind == kind;
    return ek_fail(EK_EINVAL, "%d %s%s attached, the prompt has %d place%s for them", all, ek_part_name(kind),
                   all == 1 ? " is" : "s are", places, places == 1 ? "" : "s");
}

static void sort(ek_part *part, int n)
{
    for (int i = 1; i < n; i++) {
        ek_part p = part[i];
        int k = i;
        for (; k > 0 && part[k - 1].first > p.first; k--) part[k] = part[k - 1];
        part[k] = p;
    }
}

/* The positions from which parts of each kind are searched next. */
typedef struct cursor {
    int at[EK_PART_KINDS];
} cursor;

static ek_err finish(ek_part *part, int n_parts, const cursor *c)
{
    for (int k = 0; k < EK_PART_KINDS; k++) {
        int left = next_of(part, n_parts, c->at[k], (ek_part_kind)k);
        if (left < n_parts) return no_place(part, n_parts, left);
    }
    sort(part, n_parts);
    return EK_OK;
}

static ek_err wrong_length(const ek_part *part, int i, int first, int run)
{
    return ek_fail(EK_EINVAL, "%s %d has %d soft tokens, the prompt has a place of %d for it (from position %d)",
                   ek_part_name(part[i].media->kind), ordinal(part, i), part[i].media->tokens, run, first);
}

ek_err ek_parts_place(ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids)
{
    cursor c = {{0}};
    for (int i = 0, run; i < n; i += run) {
        ek_part_kind kind = ek_part_kind_of(ids, token[i]);
        for (run = 1; kind < EK_PART_KINDS && i + run < n && token[i + run] == token[i];) run++;
        if (kind == EK_PART_KINDS) continue;
        int which = next_of(part, n_parts, c.at[kind], kind);
        if (which == n_parts) return no_media(i, kind);
        if (part[which].media->tokens != run) return wrong_length(part, which, i, run);
        part[which].first = i;
        c.at[kind] = which + 1;
    }
    return finish(part, n_parts, &c);
}

ek_err ek_parts_check(const ek_part *part, int n_parts, const int32_t *token, int n, const ek_media_ids *ids)
{
    int end = 0;
    for (int i = 0; i <= n_parts; i++) {
        int first = i < n_parts ? part[i].first : n;
        int64_t last = i < n_parts ? (int64_t)first + part[i].media->tokens : n;
        if (first < end || last > n)
            return ek_fail(EK_EINVAL, "%s at positions %d to %lld; parts ascend within [%d, %d)",
                           ek_part_name(part[i].media->kind), first, (long long)last - 1, end, n);
        for (int pos = end; pos < first; pos++) {
            ek_part_kind kind = ek_part_kind_of(ids, token[pos]);
            if (kind < EK_PART_KINDS) return no_media(pos, kind);
        }
        for (int pos = first; pos < last; pos++)
            if (ek_part_kind_of(ids, token[pos]) != part[i].media->kind)
                return ek_fail(EK_EINVAL, "position %d lies in a%s %s and is token %d, which is not its soft token",
                               pos, part[i].media->kind == EK_PART_IMAGE ? "n" : "", ek_part_name(part[i].media->kind),
                               token[pos]);
        end = (int)last;
    }
    return EK_OK;
}
