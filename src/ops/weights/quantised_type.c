#include "ops/weights/quantised_type.h"

#include <math.h>

static void quantise(const float *w, int n, uint8_t *u, float *s)
{
    float a = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        float x = fabsf(w[i]);
        finite &= x < INFINITY;
        a = x > a ? x : a;
    }
    if (!finite) a = INFINITY; /* NaN would not count as a maximum */
    *s = a < 0x1p-100f ? 0 : a / 127.0f;
    const float r = a < 0x1p-100f || !finite ? 0 : 127.0f / a;
    /* The sum's last bits are the integer nearest to w r: |w r| is far below 2^22. */
    for (int i = 0; i < n; i++) u[i] = (uint8_t)(ek_f32_bits((finite ? w[i] * r : 0) + 0x1.8p23f) + 128);
}

static void unpack_floats(const ek_weight_data *w, int row, int first, int n, uint8_t *u, float *s, float *b)
{
    float x[EK_UNPACK_WEIGHTS];
    ek_weight_data floats = *w;
    floats.type = w->type->of ? w->type->of : ek_weight_type_float(w->type->stored);
    floats.type->load(&floats, row, first, n, x);
    (void)b;
    for (int i = 0; i < n; i += w->type->group) quantise(x + i, w->type->group, u + i, s + i / w->type->group);
}

#define ROW(T, NAME, BYTES, G)                                                                           \
    {                                                                                                    \
        .name = NAME "@q8." #G, .form = EK_W_Q8, .bits = 8, .group = (G), .zero = 128, .stored = EK_##T, \
        .scale_dtype = EK_F32, .block = (G), .block_bytes = {(BYTES) * (G)}, .unpack = unpack_floats,    \
    }

/* `of` reads the planes; a row's part of them is the bytes of its first block. */
#define OF(I, NAME, BYTES, G)                                                                              \
    {                                                                                                      \
        .name = NAME "@q8." #G, .form = EK_W_Q8, .bits = 8, .group = (G), .zero = 128, .stored = EK_U8,    \
        .scale_dtype = EK_F32, .block = (G), .block_bytes = {(BYTES) * (G) / 32}, .unpack = unpack_floats, \
        .of = &ek_minifloat_types[I],                                                                      \
    }
#define BOTH(I, NAME, BYTES) OF(I, NAME, BYTES, 64), OF(I, NAME, BYTES, 32)

const ek_weight_type *ek_weight_type_quantised(const ek_weight_type *floats, int k)
{
    static const ek_weight_type rows[] = {
        ROW(F32, "f32", 4, 64), ROW(F32, "f32", 4, 32),   ROW(F16, "f16", 2, 64),
        ROW(F16, "f16", 2, 32), ROW(BF16, "bf16", 2, 64), ROW(BF16, "bf16", 2, 32),
    };
    static const ek_weight_type mini[] = {
        BOTH(EK_MINI_MXFP8, "mxfp8", 33),        BOTH(EK_MINI_MXFP8_MLX, "mxfp8", 33),
        BOTH(EK_MINI_MXFP8_E5M2, "mxfp8e5", 33), BOTH(EK_MINIFLOATS, "fp8", 32),
        BOTH(EK_MINIFLOATS + 1, "fp8", 32),      BOTH(EK_MINIFLOATS + 2, "fp8", 32),
        BOTH(EK_MINIFLOATS + 3, "fp8e5", 32),    BOTH(EK_MINIFLOATS + 4, "fp8e5", 32),
        BOTH(EK_MINIFLOATS + 5, "fp8e5", 32),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (floats->load && rows[i].stored == floats->stored && k % rows[i].group == 0) return &rows[i];
    for (size_t i = 0; i < sizeof mini / sizeof *mini; i++)
        if (mini[i].of == floats && k % mini[i].group == 0) return &mini[i];
    return NULL;
}
