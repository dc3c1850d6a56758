#include "cuda/planes.h"

#include <string.h>

#include "ops/planes.h"

enum { UNIT = 64 };

ek_err ek_cuda_planes_plan(ek_cuda_linear *l, const ek_linear *w)
{
    switch (w->scale) {
    case EK_SCALE_PLAIN: l->f16_scales = true; break;
    case EK_SCALE_E8M0: break;
    case EK_SCALE_I8:
    case EK_SCALE_U8:
    case EK_SCALE_U4:
    case EK_SCALE_E4M3: l->f32_scales = true; break;
    default:
        return ek_fail(EK_EUNSUPPORTED,
                       "a matrix of %d-bit codes in groups of %d with scales of rule %d; the CUDA kernels lack them",
                       w->bits, w->group, (int)w->scale);
    }
    l->bits = w->bits <= 4 && w->group == 32 && !w->book ? 4 : 8;
    return EK_OK;
}

void ek_cuda_planes_args(ek_cuda_pack_planes_args *a, const ek_cuda_linear *l, const ek_linear *w)
{
    *a = (ek_cuda_pack_planes_args){.panel_bytes = (int64_t)w->panel_bytes,
                                    .block_bytes = (int64_t)ek_planes_block_bytes(w),
                                    .codes_at = (int32_t)ek_planes_scale_bytes(w),
                                    .k = w->k,
                                    .units = l->units,
                                    .block = w->block,
                                    .group = w->group,
                                    .from_bits = w->bits,
                                    .bits = l->bits,
                                    .zero = w->zero,
                                    .biased = w->biased,
                                    .has_book = w->book != NULL};
    switch (w->scale) {
    case EK_SCALE_PLAIN: a->rule = EK_CUDA_SCALE_PLAIN; break;
    case EK_SCALE_E8M0: a->rule = EK_CUDA_SCALE_E8M0; break;
    case EK_SCALE_I8: a->rule = EK_CUDA_SCALE_I8; break;
    case EK_SCALE_U8: a->rule = EK_CUDA_SCALE_U8; break;
    case EK_SCALE_E4M3: a->rule = EK_CUDA_SCALE_E4M3; break;
    default: a->rule = EK_CUDA_SCALE_U4;
    }
    if (w->book) memcpy(a->book, w->book, (size_t)1 << w->bits);
}

static void put_scale(const ek_cuda_linear *l, uint8_t *to, int i, float x)
{
    const ek_bf16 b = ek_f32_bf16(x);
    const ek_f16 h = ek_f32_f16(x);
    if (l->f32_scales) memcpy(to + 4 * i, &x, 4);
    else memcpy(to + 2 * i, l->f16_scales ? &h : &b, 2);
}

/* A panel's output o: its codes to c, its scales to their places. */
static void read_output(const ek_cuda_linear *l, const ek_linear *w, int p, int o, int8_t *c, uint8_t *scales)
{
    float s[EK_KBLOCK_Q / 16], b[EK_KBLOCK_Q / 16] = {0};
    const int parts = l->biased ? 2 : 1, groups = l->k / l->group;
    for (int k = 0, n; k < l->k; k += n) {
        n = l->k - k < EK_KBLOCK_Q ? l->k - k : EK_KBLOCK_Q;
        ek_planes_read(w, w->data + (size_t)p * w->panel_bytes, o, k, n, c + k, s, b);
        for (int g = 0; g < n / l->group; g++) {
            const int at = (((p * groups + k / l->group + g) * 8 + o % 8) * 2 + o / 8) * parts;
            put_scale(l, scales, at, s[g]);
            if (l->biased) put_scale(l, scales, at + 1, b[g]);
        }
    }
}

void ek_cuda_planes_pack(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1)
{
    const size_t unit_bytes = (size_t)l->bits * 128;
    for (int p = p0; p < p1; p++)
        for (int o = 0; o < EK_PANEL; o++) {
            static _Thread_local int8_t c[EK_CUDA_MAX_LEAVES * EK_KBLOCK_Q + UNIT];
            memset(c + l->k, 0, UNIT);
            read_output(l, w, p, o, c, to + l->code_bytes);
            for (int k = 0; k < l->units * UNIT; k++) {
                uint8_t *unit = to + ((size_t)p * (size_t)l->units + (size_t)(k / UNIT)) * unit_bytes;
                const ek_cuda_place_of_code at = ek_cuda_linear_place(l, o, k % UNIT);
                uint8_t *byte = unit + at.byte;
                if (l->bits == 8) *byte = (uint8_t)c[k];
                else *byte = (uint8_t)((*byte & ~(15 << at.shift)) | (c[k] & 15) << at.shift);
            }
        }
}
