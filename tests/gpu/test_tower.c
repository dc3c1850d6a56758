/* The encoders of a device with its real kernels, which run on the CPU (tests/emulate), or with the argument `device`
 * on a real one (77: there is none): rows of pictures and sounds with the bits of the host's towers, whatever the
 * slices, and whatever the weights are. */
/* tier: all */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/audio_scene.h"
#include "../model/tower_gguf_case.h"
#include "../support/files.h"
#include "../support/gguf_model.h"
#include "../support/hashed.h"
#include "emulated.h"
#include "gpu/tower/towers.h"

static ek_gpu_driver real; /* no modules: the emulated one */

static ek_gpu_driver driver(void)
{
    return real.modules ? real : emulated();
}

static ek_gpu *open_device(void)
{
    const ek_gpu_driver d = driver();
    ek_gpu *g;
    assert_int_equal(ek_gpu_open_device(&g, &d, 0), EK_OK);
    return g;
}

/* ------------------------------------------------------------------ rows of both */

static float *rows_of_host(ek_towers *t, const ek_media *m)
{
    ek_tower_work *w;
    bool done;
    int n;
    if (m->kind == EK_PART_SOUND ? ek_tower_begin_sound(&w, t, &m->sound) : ek_tower_begin_image(&w, t, &m->picture))
        fail_msg("%s", ek_err_text());
    ek_tower_advance(w, 1e18, &done);
    assert_true(done);
    const float *rows = ek_tower_rows(w, &n);
    assert_int_equal(n, m->tokens);
    const size_t bytes = sizeof *rows * (size_t)n * (size_t)ek_towers_get(t)->hidden;
    float *copy = malloc(bytes);
    memcpy(copy, rows, bytes);
    ek_tower_free(w);
    return copy;
}

/* steps: slices of the smallest that there are. */
static void same_as_host(ek_gpu *g, ek_towers *t, const ek_media *m, int steps, const char *name)
{
    float *want = rows_of_host(t, m);
    const size_t n = (size_t)m->tokens * (size_t)ek_towers_get(t)->hidden;
    float *got = malloc(n * sizeof *got);
    ek_gpu_tower *v;
    const ek_tower_part *p = m->kind == EK_PART_SOUND ? ek_towers_sound_part(t) : ek_towers_image_part(t);
    if (ek_gpu_tower_open(&v, g, p)) fail_msg("%s: %s", name, ek_err_text());
    for (int whole = 0; whole < 2; whole++) {
        int slices = 0;
        memset(got, 0xff, n * sizeof *got);
        if (ek_gpu_tower_begin(v, m, got)) fail_msg("%s: %s", name, ek_err_text());
        for (bool done = false; !done; slices++)
            if (ek_gpu_tower_advance(v, whole ? 1e18 : 1, &done)) fail_msg("%s: %s", name, ek_err_text());
        assert_int_equal(slices, whole ? 1 : steps);
        for (size_t k = 0; k < n; k++)
            if (memcmp(&want[k], &got[k], sizeof *got) != 0)
                fail_msg("%s: number %zu is %a, on the device %a", name, k, (double)want[k], (double)got[k]);
    }
    assert_int_equal(ek_gpu_tower_begin(v, m, got), EK_OK);
    ek_gpu_tower_drop(v); /* and the next one is begun anew */
    assert_int_equal(ek_gpu_tower_begin(v, m, got), EK_OK);
    ek_gpu_tower_close(v);
    free(got), free(want);
}

/* ------------------------------------------------------------------ pictures */

static const struct picture_case {
    tower_case c;
    tower_layout l;
    bool quantise;
    int width, height;
} pictures[] = {
    {{"E", 32, 2, 2, 2, 16, 48, 16, 3, 1024, 48, true, false, false, false, 0, NULL, 0},
     {.dtype = "BF16"},
     false,
     100,
     75},
    {{"E, bounds infinite: q, k and v are one product", 32, 1, 2, 2, 16, 48, 16, 3, 1024, 48, true, true, false, false,
      0, NULL, 0},
     {.dtype = "F32"},
     false,
     9,
     90},
    {{"L", 36, 2, 2, 2, 12, 37, 16, 3, 1024, 48, false, false, true, false, 4e4, NULL, 0},
     {.dtype = "F16"},
     false,
     640,
     480},
    {{"L, one KV head", 36, 2, 2, 1, 12, 37, 4, 2, 1024, 48, false, false, true, false, 4e4, NULL, 0},
     {.dtype = "BF16"},
     false,
     64,
     64},
    {{"heads of 72", 72, 1, 3, 1, 72, 64, 4, 3, 256, 20, true, false, true, false, 10, NULL, 0},
     {.dtype = "BF16"},
     false,
     90,
     61},
    {{"heads of 4", 64, 1, 4, 2, 4, 64, 4, 3, 256, 33, true, false, false, false, 0, NULL, 0},
     {.dtype = "BF16"},
     false,
     50,
     61},
    {{"12B", 40, 0, 0, 0, 0, 0, 16, 3, 1120, 48, false, false, false, true, 0, NULL, 0},
     {.dtype = "BF16"},
     false,
     100,
     75},
    {{"12B, patches of 12", 128, 0, 0, 0, 0, 0, 4, 3, 64, 129, false, false, false, true, 0, NULL, 0},
     {.dtype = "F32"},
     false,
     31,
     50},
    {{"E, 8 bits when loaded", 64, 1, 2, 2, 32, 96, 4, 3, 256, 48, true, false, false, false, 0, NULL, 0},
     {.dtype = "BF16"},
     true,
     50,
     31},
    {{"L, 8 bits when loaded, an inner size of its own", 128, 1, 2, 2, 64, 37, 4, 3, 256, 40, false, false, true, false,
      9, NULL, 0},
     {.dtype = "F32"},
     true,
     40,
     31},
    {{"E, MLX's 8 bits", 64, 1, 4, 2, 16, 96, 4, 3, 256, 48, true, false, false, false, 0, NULL, 0},
     {.dtype = "BF16", .quantise_bits = 8},
     false,
     50,
     31},
    {{"L, MLX's 4 bits in groups of 64", 128, 1, 4, 4, 32, 192, 4, 3, 256, 64, false, false, true, false, 9, NULL, 0},
     {.dtype = "BF16",
      .quantise_bits = 4,
      .quantise_group = 64,
      .change = "\"bits\":8,\"group_size\":32",
      .to = "\"bits\":4,\"group_size\":64"},
     false,
     50,
     31},
    {{"12B, MLX's 8 bits", 64, 0, 0, 0, 0, 0, 16, 3, 1120, 48, false, false, false, true, 0, NULL, 0},
     {.dtype = "BF16", .quantise_bits = 8},
     false,
     30,
     30},
};

static int steps_of(const tower_case *c)
{
    return c->unified ? 1 : c->layers;
}

static void make_picture(ek_media *m, const tower_case *c, int width, int height)
{
    *m = (ek_media){.kind = EK_PART_IMAGE};
    tower_picture(&m->picture, c, width, height, 70);
    m->tokens = m->picture.fit.tokens;
}

static void pictures_have_the_bits_of_the_host(void **state)
{
    (void)state;
    ek_gpu *g = open_device();
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        tower_case c = pictures[i].c;
        tower_layout layout = pictures[i].l;
        char *dir = temp_dir();
        ek_media m;
        ek_towers *t;
        layout.prefix = "model.";
        tower_make(&c);
        tower_write(dir, &c, &layout);
        make_picture(&m, &c, pictures[i].width, pictures[i].height);
        for (int integers = 0; integers < 2; integers++) { /* of attention */
            const ek_towers_opts opts = {.quantise = pictures[i].quantise, .integers_from = integers};
            if (integers && c.dim != 72 && c.kv_heads != 1) continue; /* two will do */
            if (ek_towers_open(&t, dir, &opts)) fail_msg("%s: %s", c.name, ek_err_text());
            same_as_host(g, t, &m, steps_of(&c), c.name);
            ek_towers_close(t);
        }
        ek_picture_free(&m.picture), tower_free(&c);
        remove_dir(dir);
    }
    ek_gpu_close(g);
}

/* ------------------------------------------------------------------ sounds */

static ek_media clip(int samples, ek_sound_kind kind)
{
    ek_media m = {.kind = EK_PART_SOUND, .sound = audio_clip(samples, (uint64_t)samples)};
    assert_int_equal(ek_sound_tokens(&m.tokens, samples, kind), EK_OK);
    return m;
}

static void hears(ek_gpu *g, const char *dir, const ek_towers_opts *o, const audio_spec *s, int samples,
                  const char *name)
{
    ek_media m = clip(samples, EK_SOUND_TOWER);
    ek_towers *t;
    if (ek_towers_open(&t, dir, o)) fail_msg("%s: %s", name, ek_err_text());
    same_as_host(g, t, &m, s->layers + 2, name);
    ek_towers_close(t);
    ek_sound_free(&m.sound);
}

static void sounds_have_the_bits_of_the_host(void **state)
{
    (void)state;
    enum { PLAIN, PUBLISHED, OTHER, UNCLIPPED, LOADED, CODES, N };
    static const char *const name[] = {"A1",        "heads of 128",       "short taps, a limit and a cap that bite",
                                       "no bounds", "8 bits when loaded", "MLX's 8 bits"};
    static const int samples[] = {5760, 4100, 161, 21500, 3000, 3000};
    audio_spec s[N];
    ek_gpu *g = open_device();
    for (int i = 0; i < N; i++) s[i] = audio_a1();
    s[PUBLISHED].hidden = 256, s[PUBLISHED].heads = 2, s[PUBLISHED].layers = 1, s[PUBLISHED].channels1 = 32;
    s[OTHER].chunk = 4, s[OTHER].left = 5, s[OTHER].taps = 3, s[OTHER].cap = 2, s[OTHER].residual = 0.25;
    s[OTHER].limit = 0.5, s[OTHER].f32 = true, s[OTHER].eps = 1e-3;
    s[UNCLIPPED].clips = false, s[UNCLIPPED].layers = 1, s[UNCLIPPED].heads = 2; /* 34 rows: more than a block's */
    s[LOADED].hidden = 64, s[LOADED].output = 64, s[CODES].hidden = 64, s[CODES].codes = s[CODES].mlx = true;
    for (int i = 0; i < N; i++) {
        const ek_towers_opts o = {.quantise = i == LOADED};
        char *dir = temp_dir();
        audio_write(dir, &s[i]);
        hears(g, dir, &o, &s[i], samples[i], name[i]);
        remove_dir(dir);
    }
    ek_gpu_close(g);
}

enum { RUN_TEXT = 40 };

static void runs_of_samples_have_the_bits_of_the_host(void **state)
{
    (void)state;
    static float w[RUN_TEXT * EK_SOUND_RUN];
    static const int samples[] = {1, 641, 12800};
    st_file f = {{0}, {0}};
    char *dir = temp_dir();
    ek_gpu *g = open_device();
    for (int i = 0; i < RUN_TEXT * EK_SOUND_RUN; i++) w[i] = hashed_weight("runs", (uint64_t)i);
    st_add(&f, "model.embed_audio.embedding_projection.weight", "F32", 2, (int64_t[]){RUN_TEXT, EK_SOUND_RUN}, w,
           sizeof w);
    st_save(&f, dir, "model.safetensors");
    put_text(dir, "config.json",
             "{\"text_config\":{\"hidden_size\":40,\"vocab_size\":512},"
             "\"audio_config\":{\"model_type\":\"gemma4_unified_audio\",\"audio_embed_dim\":640}}");
    for (int quantise = 0; quantise < 2; quantise++)
        for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
            ek_media m = clip(samples[i], EK_SOUND_UNIFIED);
            ek_towers *t;
            assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){.quantise = quantise}), EK_OK);
            same_as_host(g, t, &m, 1, "runs");
            ek_towers_close(t);
            ek_sound_free(&m.sound);
        }
    ek_gpu_close(g);
    remove_dir(dir);
}

/* ------------------------------------------------------------------ GGUF's own types */

static void mmproj_of_codes_has_the_bits_of_the_host(void **state)
{
    (void)state;
    static const uint32_t types[] = {GGUF_Q8_0, GGUF_Q4_0};
    static ek_config config;
    ek_gpu *g = open_device();
    assert_int_equal(ek_config_tiny(&config, "T1"), EK_OK);
    for (int i = 0; i < 2; i++) {
        tower_case c = {"E in a mmproj file", 64, 1, 4, 2, 16, 96, 4, 3, 256, 0, true, false, false, false, 0, NULL, 0};
        audio_spec s = audio_a1();
        gguf_file f = {{0}, {0}, {0}, 0, 0};
        char *dir = temp_dir(), model[512];
        ek_media m;
        ek_towers *t;
        c.hidden = s.text = config.hidden_size, s.hidden = 64, s.layers = 1;
        s.gguf_type = types[i];
        tower_make(&c);
        gguf_text(&f, "general.architecture", "clip");
        tower_put_gguf_as(&f, &c, TOWER_LLAMA, NULL, types[i]);
        audio_put_gguf(&f, &s, false);
        gguf_save(&f, dir, "mmproj.gguf");
        write_gguf(dir, "model.gguf", &config, &(gguf_opts){.type = GGUF_F32}, NULL);
        snprintf(model, sizeof model, "%s/model.gguf", dir);
        if (ek_towers_open(&t, model, &(ek_towers_opts){0})) fail_msg("%s", ek_err_text());
        make_picture(&m, &c, 50, 31);
        same_as_host(g, t, &m, 1, c.name);
        ek_picture_free(&m.picture);
        m = clip(3000, EK_SOUND_TOWER);
        same_as_host(g, t, &m, 3, "sounds in a mmproj file");
        ek_sound_free(&m.sound);
        ek_towers_close(t);
        tower_free(&c);
        remove_dir(dir);
    }
    ek_gpu_close(g);
}

/* ------------------------------------------------------------------ what fails */

static __typeof__(((ek_cuda_api *)0)->cuMemcpyHtoDAsync) copy_of_driver;
static int copies_left; /* then one fails */

static CUresult copy_or_fail(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    enum { INVALID_VALUE = 1 };
    return copies_left-- ? copy_of_driver(to, from, bytes, stream) : INVALID_VALUE;
}

/* Whatever is copied before the first kernel: rows of what was never copied are no rows. */
static void a_copy_that_fails_ends_a_content(void **state)
{
    (void)state;
    ek_gpu_driver d = driver();
    ek_gpu *g;
    copy_of_driver = d.api.cuMemcpyHtoDAsync, d.api.cuMemcpyHtoDAsync = copy_or_fail;
    copies_left = -1;
    assert_int_equal(ek_gpu_open_device(&g, &d, 0), EK_OK);
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        const struct picture_case *p = &pictures[i];
        if (strcmp(p->c.name, "E") && strcmp(p->c.name, "12B")) continue;
        char *dir = temp_dir();
        tower_case c = p->c;
        const tower_layout layout = {.dtype = "BF16", .prefix = "model."};
        ek_media m;
        ek_towers *t;
        ek_gpu_tower *v;
        tower_make(&c);
        tower_write(dir, &c, &layout);
        assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){0}), EK_OK);
        make_picture(&m, &c, p->width, p->height);
        float *want = rows_of_host(t, &m);
        const size_t n = (size_t)m.tokens * (size_t)ek_towers_get(t)->hidden;
        float *got = malloc(n * sizeof *got);
        assert_int_equal(ek_gpu_tower_open(&v, g, ek_towers_image_part(t)), EK_OK);
        for (int fails = 0; fails < 2; fails++) { /* pixels, then tables */
            copies_left = fails;
            assert_int_equal(ek_gpu_tower_begin(v, &m, got), EK_EINTERNAL);
            assert_non_null(strstr(ek_err_text(), "copying to the device"));
        }
        bool done;
        copies_left = 2;
        assert_int_equal(ek_gpu_tower_begin(v, &m, got), EK_OK);
        copies_left = -1;
        assert_int_equal(ek_gpu_tower_advance(v, 1e18, &done), EK_OK);
        assert_memory_equal(want, got, n * sizeof *got);
        ek_gpu_tower_close(v);
        free(want), free(got);
        ek_towers_close(t);
        ek_picture_free(&m.picture);
        tower_free(&c);
        remove_dir(dir);
    }
    ek_gpu_close(g);
}

/* ------------------------------------------------------------------ what the engine calls */

/* What an executor's encoder makes of m, in slices, behind one that is dropped. */
static void encode(ek_executor *on, ek_towers *t, const ek_media *m, const ek_media *dropped)
{
    const size_t hidden = (size_t)ek_towers_get(t)->hidden, n = (size_t)m->tokens * hidden;
    float *want = rows_of_host(t, m), *got = calloc(n, sizeof *got);
    float *unused = malloc((size_t)dropped->tokens * hidden * sizeof *unused);
    bool done = false;
    assert_int_equal(on->encoder.begin(on->encoder.arg, dropped, unused), EK_OK);
    assert_int_equal(on->encoder.advance(on->encoder.arg, 1, &done), EK_OK);
    assert_false(done);
    on->encoder.drop(on->encoder.arg);
    assert_int_equal(on->encoder.begin(on->encoder.arg, m, got), EK_OK);
    while (!done) assert_int_equal(on->encoder.advance(on->encoder.arg, 1e6, &done), EK_OK);
    assert_memory_equal(want, got, n * sizeof *got);
    free(want), free(got), free(unused);
}

static ek_model *open_model(ek_config *config, ek_gpu **g)
{
    const ek_model_opts mo = {0};
    const ek_gpu_driver d = driver();
    ek_model *m;
    assert_int_equal(ek_config_tiny(config, "Q1"), EK_OK);
    assert_int_equal(ek_model_synthetic(&m, config, 0, 5, &mo), EK_OK);
    assert_int_equal(ek_gpu_open(g, &d, m, 0), EK_OK);
    return m;
}

/* By the device, or where its kernels lack something by the host: heads of 264. */
static void the_executor_encodes_pictures(void **state)
{
    (void)state;
    static ek_config config;
    ek_gpu *g;
    ek_model *m = open_model(&config, &g);
    for (int lacks = 0; lacks < 2; lacks++) {
        tower_case c = pictures[0].c;
        const tower_layout layout = {.dtype = "BF16", .prefix = "model."};
        char *dir = temp_dir();
        ek_media media, other;
        ek_towers *t;
        c.hidden = config.hidden_size;
        if (lacks) c.dim = 264;
        tower_make(&c);
        tower_write(dir, &c, &layout);
        assert_int_equal(ek_towers_open(&t, dir, &(ek_towers_opts){0}), EK_OK);
        make_picture(&media, &c, 100, 75), make_picture(&other, &c, 50, 75);
        other.kind = EK_PART_FRAME;
        ek_executor on = ek_gpu_executor(g);
        const double room = on.room;
        on.close(on.arg);
        ek_gpu_encoder_reserve(g, t);
        on = ek_gpu_executor(g);
        assert_true(on.room < room && on.room >= 1);
        assert_int_equal(ek_gpu_encoder_open(&on, g, t), EK_OK);
        assert_int_equal(ek_encoder_load(&on.encoder), EK_OK);
        encode(&on, t, &media, &other);
        ek_gpu_tower *v;
        assert_int_equal(ek_gpu_tower_open(&v, g, ek_towers_image_part(t)), lacks ? EK_EUNSUPPORTED : EK_OK);
        if (lacks) assert_non_null(strstr(ek_err_text(), "head_dim of 264"));
        else ek_gpu_tower_close(v);
        on.encoder.close(on.encoder.arg);
        on.close(on.arg);
        ek_towers_close(t);
        ek_picture_free(&media.picture), ek_picture_free(&other.picture);
        tower_free(&c);
        remove_dir(dir);
    }
    ek_gpu_close(g);
    ek_model_close(m);
}

static void the_executor_encodes_sounds(void **state)
{
    (void)state;
    static ek_config config;
    ek_gpu *g;
    ek_model *m = open_model(&config, &g);
    audio_spec s = audio_a1();
    char *dir = temp_dir();
    ek_media media = clip(3000, EK_SOUND_TOWER), other = clip(1000, EK_SOUND_TOWER);
    s.text = config.hidden_size, s.layers = 1;
    audio_write(dir, &s);
    ek_towers *t = audio_open(dir, 0, NULL);
    assert_null(ek_towers_sound_part(t)); /* nothing is packed yet */
    ek_executor on = ek_gpu_executor(g);
    assert_int_equal(ek_gpu_encoder_open(&on, g, t), EK_OK);
    assert_int_equal(ek_encoder_load(&on.encoder), EK_OK);
    encode(&on, t, &media, &other);
    on.encoder.close(on.encoder.arg);
    on.close(on.arg);
    ek_towers_close(t);
    ek_sound_free(&media.sound), ek_sound_free(&other.sound);
    remove_dir(dir);
    ek_gpu_close(g);
    ek_model_close(m);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "device") == 0 && ek_gpu_driver_load(&real)) {
        printf("%s\n", ek_err_text());
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(pictures_have_the_bits_of_the_host),
                                       cmocka_unit_test(sounds_have_the_bits_of_the_host),
                                       cmocka_unit_test(runs_of_samples_have_the_bits_of_the_host),
                                       cmocka_unit_test(mmproj_of_codes_has_the_bits_of_the_host),
                                       cmocka_unit_test(a_copy_that_fails_ends_a_content),
                                       cmocka_unit_test(the_executor_encodes_pictures),
                                       cmocka_unit_test(the_executor_encodes_sounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
