#include "device_pack.h"

#include <string.h>

#include "ops/linear/linear_layout.h"
#include "ops/linear/planes.h"

enum { UNIT = 64 };

/* Where input kk of a unit of output o lies in the unit; 4 bits: in a byte's half. */
typedef struct place {
    int byte, shift;
} place;

static place place_of(const ek_cuda_linear *l, int o, int kk)
{
    const int a = l->a_group;
    const int j = a == 64 ? kk / 8 % 2 : kk / 32, t = a == 64 ? kk / 16 : a == 32 ? kk % 32 / 8 : kk % 16 / 4;
    const int upper = a == 16 ? kk / 16 % 2 : kk / 4 % 2, lane = o % 8 * 4 + t, i = o / 8;
    if (l->bits == 8) return (place){j * 512 + lane * 16 + (i + 2 * upper) * 4 + kk % 4, 0};
    return (place){lane * 16 + (j * 2 + i) * 4 + kk % 4, upper * 4};
}

/* Code of output o at input k of the panel; 0 past the last input. */
static int code_at(const ek_linear *w, const uint8_t *panel, int o, int k)
{
    if (k >= w->k) return 0;
    return ek_linear_code(w, panel + (size_t)(k / w->group) * ek_linear_group_bytes(w), o, k % w->group);
}

static void pack_unit(const ek_cuda_linear *l, const ek_linear *w, const uint8_t *panel, int unit, uint8_t *to)
{
    for (int lane = 0; lane < 32; lane++)
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < 4; i++) {
                const int t = lane % 4, o = lane / 4 + 8 * (i & 1);
                const int k = unit * UNIT + (l->a_group == 64 ? 16 * t + 8 * j : 32 * j + 8 * t) + 4 * (i >> 1);
                for (int e = 0; e < 4; e++) {
                    const int c = code_at(w, panel, o, k + e);
                    if (l->bits == 8) {
                        to[j * 512 + lane * 16 + i * 4 + e] = (uint8_t)c;
                    } else {
                        uint8_t *byte = &to[lane * 16 + (j * 2 + (i & 1)) * 4 + e];
                        *byte = (uint8_t)(i < 2 ? c & 15 : *byte | (c & 15) << 4);
                    }
                }
            }
}

static void pack_scales(const ek_cuda_linear *l, const uint8_t *from, uint8_t *to)
{
    const size_t size = l->f32_scales ? 4 : 2;
    for (int g = 0; g < 8; g++)
        for (int half = 0; half < 2; half++)
            for (int b = 0; b < (l->biased ? 2 : 1); b++, to += size)
                memcpy(to, from + (size_t)(b * EK_PANEL + g + 8 * half) * size, size);
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

static void pack_planes(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1)
{
    const size_t unit_bytes = (size_t)l->bits * 128;
    for (int p = p0; p < p1; p++)
        for (int o = 0; o < EK_PANEL; o++) {
            static _Thread_local int8_t c[EK_CUDA_MAX_LEAVES * EK_KBLOCK_Q + UNIT];
            memset(c + l->k, 0, UNIT);
            read_output(l, w, p, o, c, to + l->code_bytes);
            for (int k = 0; k < l->units * UNIT; k++) {
                uint8_t *unit = to + ((size_t)p * (size_t)l->units + (size_t)(k / UNIT)) * unit_bytes;
                const place at = place_of(l, o, k % UNIT);
                uint8_t *byte = unit + at.byte;
                if (l->bits == 8) *byte = (uint8_t)c[k];
                else *byte = (uint8_t)((*byte & ~(15 << at.shift)) | (c[k] & 15) << at.shift);
            }
        }
}

void device_pack(const ek_cuda_linear *l, const ek_linear *w, uint8_t *to, int p0, int p1)
{
    if (!ek_wform_is_q(l->form)) {
        memcpy(to + (size_t)p0 * w->panel_bytes, w->data + (size_t)p0 * w->panel_bytes,
               (size_t)(p1 - p0) * w->panel_bytes);
        return;
    }
    if (l->form == EK_W_PLANES) {
        pack_planes(l, w, to, p0, p1);
        return;
    }
    const int groups = l->k / l->group;
    const size_t unit_bytes = (size_t)l->bits * 128, group_bytes = EK_PANEL * ek_cuda_linear_scale(l);
    for (int p = p0; p < p1; p++) {
        const uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
        for (int u = 0; u < l->units; u++)
            pack_unit(l, w, panel, u, to + ((size_t)p * (size_t)l->units + (size_t)u) * unit_bytes);
        for (int g = 0; g < groups; g++)
            pack_scales(l, panel + (size_t)g * ek_linear_group_bytes(w) + ek_linear_code_bytes(w),
                        to + l->code_bytes + ((size_t)p * (size_t)groups + (size_t)g) * group_bytes);
    }
    size_t end = (size_t)l->n_panels * (size_t)groups * group_bytes;
    if (p1 == l->n_panels) memset(to + l->code_bytes + end, 0, l->scale_bytes - end);
}

void device_pack_for(const ek_cuda_chip *chip, const ek_cuda_linear *l, const ek_linear *w, uint8_t *to)
{
    enum { QUAD = 16, QUADS = 32 };
    device_pack(l, w, to, 0, l->n_panels);
    if (!chip->plain || !ek_wform_is_q(l->form)) return;
    const size_t unit_bytes = (size_t)l->bits * 128;
    for (size_t at = 0; at < (size_t)l->n_panels * (size_t)l->units * unit_bytes; at += QUAD * QUADS) {
        uint8_t of_lane[QUAD * QUADS];
        memcpy(of_lane, to + at, sizeof of_lane);
        for (int lane = 0; lane < QUADS; lane++)
            memcpy(to + at + (size_t)(lane % 4 * 8 + lane / 4) * QUAD, of_lane + lane * QUAD, QUAD);
    }
}
