/* Small audio towers on disk with hashed weights. */
#ifndef EK_TESTS_MODEL_AUDIO_SCENE_H
#define EK_TESTS_MODEL_AUDIO_SCENE_H

#include <stdbool.h>

#include "base/buf.h"
#include "model/tower/tower.h"
#include "../support/gguf.h"
#include "../support/safetensors.h"

typedef struct audio_spec {
    int hidden, layers, heads, channels0, channels1, taps, chunk, left, right, output, text;
    double cap, residual, limit, eps;
    bool clips, mlx; /* mlx: convolutions as mlx-vlm stores them, names without "model." */
    bool codes; /* matrices have values that codes of 8 bits in groups of 32 stand for; with mlx they are stored so */
    bool f32;   /* otherwise BF16 */
    uint32_t gguf_type; /* of matrices in GGUF files, where its blocks divide them; 0: BF16 */
    const char *skip;   /* a tensor that is left out, by its name without "model." */
    const char *replace;
    float with; /* the scalar that stands there instead */
} audio_spec;

audio_spec audio_a1(void);

/* Element i of a tensor as it is stored, by its name without "model.". */
float audio_stored(const audio_spec *s, const char *name, int64_t i);

/* Writes config.json and model.safetensors into dir. */
void audio_write(const char *dir, const audio_spec *s);

/* Appends the same tower to a GGUF file, as llama.cpp writes an mmproj file, or as Ollama writes it into the model. */
void audio_put_gguf(gguf_file *f, const audio_spec *s, bool ollama);

/* Opens what lies in dir; the test fails if that fails. */
ek_towers *audio_open(const char *dir, unsigned cpu, ek_pool *pool);
/* All rows of a clip, in slices of max_macs; free them. */
float *audio_rows(ek_towers *t, const ek_sound *s, double max_macs, int *n);
/* Noise and tones, a function of seed and length. */
ek_sound audio_clip(int samples, uint64_t seed);

#endif
