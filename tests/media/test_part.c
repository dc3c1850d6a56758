/* Which positions of a prompt belong to which picture or sound, and who holds them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "media/part/part.h"

enum { IMAGE = 90, FRAME, SOUND, BEGIN, END, BEGIN_SOUND, END_SOUND };

static const ek_media_ids ids = {
    .soft = {IMAGE, FRAME, SOUND}, .begin = {BEGIN, BEGIN, BEGIN_SOUND}, .end = {END, END, END_SOUND}};

static ek_media *picture(ek_part_kind kind, int width, int height)
{
    ek_image in = draw(width, height);
    ek_media *m;
    const ek_picture_opts o = {.budget = 70};
    assert_int_equal(ek_media_make_picture(&m, kind, &in, &o), EK_OK);
    ek_image_free(&in);
    return m;
}

static ek_media *sound(int n, float value)
{
    float *v = malloc(sizeof *v * (size_t)n);
    ek_media *m;
    for (int i = 0; i < n; i++) v[i] = value;
    assert_int_equal(ek_media_make_sound(&m, v, n, EK_SOUND_TOWER), EK_OK);
    free(v);
    return m;
}

static int add_run(int32_t *to, const ek_media *m)
{
    to[0] = ids.begin[m->kind];
    for (int k = 1; k <= m->tokens; k++) to[k] = ids.soft[m->kind];
    to[m->tokens + 1] = ids.end[m->kind];
    return m->tokens + 2;
}

/* The places of two images, a frame and a sound, in whatever order they are given. */
static void runs_find_their_places(void **state)
{
    (void)state;
    ek_media *m[] = {sound(641, 0.5f), picture(EK_PART_IMAGE, 100, 75), picture(EK_PART_FRAME, 900, 3),
                     picture(EK_PART_IMAGE, 64, 64)};
    int32_t out[300] = {2};
    ek_part part[4];
    int n = 1;
    for (int i = 0; i < 4; i++) {
        static const int which[] = {1, 2, 0, 3};
        part[i] = (ek_part){m[which[i]], n + 1};
        n += add_run(out + n, part[i].media);
        out[n++] = 5;
    }
    assert_int_equal(ek_parts_check(part, 4, out, n, &ids), EK_OK);
    ek_part again[4] = {{m[3], 0}, {m[2], 0}, {m[1], 0}, {m[0], 0}};
    assert_int_equal(ek_parts_place(again, 4, out, n, &ids), EK_EINVAL); /* images of 64 and 63 are exchanged */
    assert_string_equal(ek_err_text(),
                        "image 1 has 64 soft tokens, the prompt has a place of 63 for it (from position 2)");
    again[0].media = m[1], again[2].media = m[3];
    assert_int_equal(ek_parts_place(again, 4, out, n, &ids), EK_OK);
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(again[i].media, part[i].media);
        assert_int_equal(again[i].first, part[i].first);
    }
    for (int i = 0; i < 4; i++) ek_media_release(m[i]);
}

static void counts_must_agree(void **state)
{
    (void)state;
    ek_media *a = picture(EK_PART_IMAGE, 64, 64), *s = sound(641, 0);
    const int32_t one[] = {2, IMAGE, 3}, none[] = {2, 3}, heard[] = {SOUND};
    ek_part part[] = {{a, 0}, {a, 0}, {s, 0}};
    int32_t run[300];
    const int n_run = add_run(run, a);
    assert_int_equal(ek_parts_place(part, 0, one, 3, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "position 1 is a place for an image, and none is attached for it");
    assert_int_equal(ek_parts_place(part, 2, run, n_run, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "2 images are attached, the prompt has 1 place for them");
    assert_int_equal(ek_parts_place(part, 1, none, 2, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "1 image is attached, the prompt has 0 places for them");
    assert_int_equal(ek_parts_place(part, 1, heard, 1, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "position 0 is a place for a sound, and none is attached for it");
    assert_int_equal(ek_parts_place(part, 1, one, 3, &ids), EK_EINVAL); /* a run of 1 */
    assert_int_equal(ek_parts_place(part + 2, 1, heard, 1, &ids), EK_OK);
    /* Where a model has no sounds the id is text: 0 stands for none and is no placeholder either. */
    ek_media_ids few = ids;
    few.soft[EK_PART_SOUND] = 0;
    const int32_t zero[] = {0, SOUND};
    assert_int_equal(ek_parts_place(part, 0, zero, 2, &few), EK_OK);
    ek_media_release(a);
    ek_media_release(s);
}

static void what_the_engine_refuses(void **state)
{
    (void)state;
    ek_media *a = sound(1280, 0); /* 2 tokens */
    const int32_t token[] = {2, SOUND, SOUND, 3, SOUND, SOUND};
    const ek_part good[] = {{a, 1}, {a, 4}}, close[] = {{a, 1}, {a, 2}}, late[] = {{a, 1}, {a, 5}}, off[] = {{a, 2}};
    assert_int_equal(ek_parts_check(good, 2, token, 6, &ids), EK_OK);
    assert_int_equal(ek_parts_check(good, 1, token, 6, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "position 4 is a place for a sound, and none is attached for it");
    assert_int_equal(ek_parts_check(close, 2, token, 6, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "sound at positions 2 to 3; parts ascend within [3, 6)");
    assert_int_equal(ek_parts_check(late, 2, token, 6, &ids), EK_EINVAL);
    assert_int_equal(ek_parts_check(off, 1, token, 4, &ids), EK_EINVAL);
    const ek_part wrong[] = {{a, 2}};
    const int32_t text[] = {2, 4, SOUND, 3};
    assert_int_equal(ek_parts_check(wrong, 1, text, 4, &ids), EK_EINVAL);
    assert_string_equal(ek_err_text(), "position 3 lies in a sound and is token 3, which is not its soft token");
    ek_media_release(a);
}

/* The digest tells contents apart, also those of one size; the budget is part of it by the size it leads to. */
static void digests_are_of_the_content(void **state)
{
    (void)state;
    ek_media *a = picture(EK_PART_IMAGE, 64, 64), *b = picture(EK_PART_IMAGE, 64, 64), *c = sound(800, 0),
             *d = sound(800, 0.25f);
    assert_memory_equal(a->digest, b->digest, 32);
    ek_image in = draw(64, 64);
    in.rgb[5] ^= 1;
    ek_media *other;
    const ek_picture_opts o = {.budget = 70};
    assert_int_equal(ek_media_make_picture(&other, EK_PART_IMAGE, &in, &o), EK_OK);
    assert_int_equal(other->tokens, a->tokens);
    assert_memory_not_equal(a->digest, other->digest, 32);
    assert_memory_not_equal(c->digest, d->digest, 32);
    assert_true(ek_media_memory(a) > ek_image_bytes(&a->picture.image));
    ek_image_free(&in);
    assert_ptr_equal(ek_media_retain(a), a);
    ek_media_release(a);
    assert_int_equal(a->picture.fit.tokens, 64); /* still held once */
    ek_media *all[] = {a, b, c, d, other, NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ek_media_release(all[i]);
    assert_int_equal(ek_media_make_sound(&other, (float[1]){0}, 1, EK_SOUND_TOWER), EK_EINVAL);
    assert_null(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_find_their_places), cmocka_unit_test(counts_must_agree),
                                       cmocka_unit_test(what_the_engine_refuses),
                                       cmocka_unit_test(digests_are_of_the_content)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
