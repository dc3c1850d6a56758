#include "minifloat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "hashed.h"
#include "tensor/dtype.h"
#include "twice.h"

static double e2m1(unsigned c)
{
    static const double value[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return c & 8 ? -value[c & 7] : value[c & 7];
}

static double e4m3(unsigned c)
{
    int e = c >> 3 & 15, m = c & 7;
    double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
    return c & 128 ? -v : v;
}

static double e5m2(unsigned c)
{
    int e = c >> 2 & 31, m = c & 3;
    double v = e ? ldexp(1 + m / 4.0, e - 15) : ldexp(m, -16);
    return c & 128 ? -v : v;
}

static float bf16(double x)
{
    return ek_bf16_f32(ek_f32_bf16((float)x));
}

/* Bits of code i of a name, without what is no number. */
static unsigned code_of(const char *name, size_t i, bool four, bool e5)
{
    unsigned c = (unsigned)(hashed_bits(name, i) >> 20);
    if (four) return c & 15;
    return e5 ? (c & 0x83) | (8 + (c >> 2) % 12) << 2 : (c & 127) == 127 ? c & 0xf7 : c & 255;
}

static uint64_t bits_of_scale(const char *name, size_t i)
{
    return hashed_bits(name, (1ull << 40) + i) >> 20;
}

/* ------------------------------------------------------------------ codes and their scales */

/* Nibbles or bytes in groups under bytes: NVFP4 and MX. */
static void grouped(const char *name, size_t n, int group, bool four, bool e5, float gain, uint8_t *codes,
                    uint8_t *scales, float *w)
{
    for (size_t i = 0; i < n; i++) {
        const size_t g = i / (size_t)group;
        const unsigned c = code_of(name, i, four, e5), r = (unsigned)bits_of_scale(name, g);
        scales[g] = (uint8_t)(group == 16 ? 0x28 + r % 24 : (four ? 120 : e5 ? 118 : 112) + r % 5);
        float s = group == 16 ? (float)(e4m3(scales[g]) * (double)gain) : (float)ldexp(1, scales[g] - 127);
        if (four) codes[i / 2] |= (uint8_t)(c << i % 2 * 4);
        else codes[i] = (uint8_t)c;
        w[i] = four ? (float)((double)s * e2m1(c)) : bf16((e5 ? e5m2(c) : e4m3(c)) * (double)s);
    }
}

void mini_mlx(const char *mode, const char *name, size_t n, uint8_t *codes, uint8_t *scales, float *w)
{
    const bool four = strcmp(mode, "mxfp8") != 0;
    grouped(name, n, strcmp(mode, "nvfp4") == 0 ? 16 : 32, four, false, 1, codes, scales, w);
}

static void add_grouped(const mini_opts *o, st_file *out, const char *module, int rows, int k, float *w)
{
    const bool nv = o->layout <= MINI_NVFP4_MODELOPT, four = o->layout <= MINI_MXFP4, e5 = o->layout == MINI_MXFP8_E5M2;
    const int group = nv ? 16 : 32;
    const size_t n = (size_t)rows * (size_t)k, n_codes = four ? n / 2 : n, n_scales = n / (size_t)group;
    uint8_t *codes = ek_alloc(n_codes), *scales = ek_alloc(n_scales);
    const float gain = nv ? o->global : 1, divisor = 1 / o->global;
    const bool faulty = o->fault && strstr(module, "layers.1.mlp.up_proj");
    grouped(module, n, group, four, e5, gain, codes, scales, w);
    if (faulty && o->fault == 1) scales[n_scales - 1] = nv ? 0x7f : 255;
    if (faulty && o->fault == 2) codes[n_codes - 1] = 0x7f;
    const char *suffix = four && o->layout != MINI_NVFP4_MODELOPT ? ".weight_packed" : ".weight";
    twice_add(out, module, suffix, four ? "U8" : e5 ? "F8_E5M2" : "F8_E4M3", rows, four ? k / 2 : k, codes, n_codes);
    twice_add(out, module, ".weight_scale", nv ? "F8_E4M3" : o->scale_type, rows, k / group, scales, n_scales);
    if (o->layout == MINI_NVFP4_CT) twice_add(out, module, ".weight_global_scale", "F32", 1, 0, &divisor, 4);
    if (o->layout == MINI_NVFP4_MODELOPT) twice_add(out, module, ".weight_scale_2", "F32", 1, 0, &gain, 4);
    free(codes), free(scales);
}

/* ------------------------------------------------------------------ fp8 */

static void add_fp8(const mini_opts *o, st_file *out, const char *module, int rows, int k, float *w)
{
    const bool e5 = o->layout == MINI_FP8_E5M2, tiles = o->layout == MINI_FP8_TILES;
    const int tall = o->layout == MINI_FP8_TENSOR ? rows : tiles ? 128 : 1;
    const int wide = o->layout == MINI_FP8_GROUP ? 64 : tiles ? 128 : k;
    const int columns = (k + wide - 1) / wide, lines = (rows + tall - 1) / tall;
    const size_t n = (size_t)rows * (size_t)k, n_scales = (size_t)(lines * columns);
    const bool f32 = strcmp(o->scale_type, "F32") == 0, is_bf16 = o->scale_type[0] == 'B';
    uint8_t *codes = ek_alloc(n), *scales = ek_alloc(4 * n_scales);
    float *s = ek_alloc(4 * n_scales);
    for (size_t i = 0; i < n_scales; i++) {
        s[i] = 0.0001f + (float)(bits_of_scale(module, i) & 0xffff) * 1e-8f;
        uint16_t half = is_bf16 ? ek_f32_bf16(s[i]) : ek_f32_f16(s[i]);
        if (!f32) s[i] = is_bf16 ? ek_bf16_f32(half) : ek_f16_f32(half);
        memcpy(scales + (f32 ? 4 : 2) * i, f32 ? (const void *)&s[i] : (const void *)&half, f32 ? 4 : 2);
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++) {
            const size_t at = (size_t)r * (size_t)k + (size_t)i;
            const unsigned c = code_of(module, at, false, e5);
            codes[at] = (uint8_t)c;
            w[at] = bf16((e5 ? e5m2(c) : e4m3(c)) * (double)s[r / tall * columns + i / wide]);
        }
    if (o->fault == 2 && strstr(module, "layers.1.mlp.up_proj")) codes[n - 1] = 0x7f;
    twice_add(out, module, ".weight", e5 ? "F8_E5M2" : "F8_E4M3", rows, k, codes, n);
    twice_add(out, module, tiles ? ".weight_scale_inv" : ".weight_scale", o->scale_type, lines, columns, scales,
              n_scales * (f32 ? 4 : 2));
    free(codes), free(scales), free(s);
}

/* ------------------------------------------------------------------ files */

static bool pack(void *arg, st_file *out, const char *module, int rows, int k, float *w)
{
    const mini_opts *o = arg;
    const float of_inputs = 0.5f;
    if (k % 64) return false;
    if (o->layout <= MINI_MXFP8_E5M2) add_grouped(o, out, module, rows, k, w);
    else add_fp8(o, out, module, rows, k, w);
    if (o->layout == MINI_NVFP4_CT) twice_add(out, module, ".input_global_scale", "F32", 1, 0, &of_inputs, 4);
    else twice_add(out, module, ".input_scale", "F32", 1, 0, &of_inputs, 4);
    return true;
}

void write_minifloat(const char *dir, const char *hf_dir, const ek_config *c, const mini_opts *o)
{
    static const char *const method[] = {"compressed-tensors\",\"format\":\"nvfp4-pack-quantized",
                                         "modelopt\",\"quant_algo\":\"NVFP4",
                                         "compressed-tensors\",\"format\":\"mxfp4-pack-quantized",
                                         "compressed-tensors\",\"format\":\"mxfp8-quantized",
                                         "modelopt\",\"quant_algo\":\"MXFP8",
                                         "modelopt\",\"quant_algo\":\"FP8",
                                         "compressed-tensors\",\"format\":\"float-quantized",
                                         "compressed-tensors\",\"format\":\"float-quantized",
                                         "fp8\",\"activation_scheme\":\"dynamic",
                                         "fbgemm_fp8"};
    ek_buf text = {0};
    ek_buf_fmt(&text, "\"quantization_config\":{\"quant_method\":\"%s\"}", method[o->layout]);
    write_twice(dir, hf_dir, c, o->single_experts, pack, (void *)(uintptr_t)o, text.data);
    ek_buf_fini(&text);
}
