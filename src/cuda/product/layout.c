#include "cuda/product/layout.h"

#include <stdio.h>
#include <string.h>

#include "ops/linear/linear_layout.h"
#include "ops/linear/planes.h"

enum { UNIT = 64 };

static size_t up64(size_t n)
{
    return (n + 63) / 64 * 64;
}

size_t ek_cuda_linear_scale(const ek_cuda_linear *l)
{
    return (l->f32_scales ? 4u : 2u) << (l->biased ? 1 : 0);
}

/* Bits and scales of weights with the scales of their file. */
static ek_err plan_planes(ek_cuda_linear *l, const ek_linear *w)
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

ek_err ek_cuda_linear_plan(ek_cuda_linear *out, const ek_linear *w)
{
    const int block = ek_wform_is_q(w->form) ? EK_KBLOCK_Q : EK_KBLOCK;
    if (w->k > EK_CUDA_MAX_LEAVES * block)
        return ek_fail(EK_EUNSUPPORTED, "a matrix of %d inputs; the CUDA kernels take up to %d", w->k,
                       EK_CUDA_MAX_LEAVES * block);
    ek_cuda_linear l = {.form = w->form, .n = w->n, .k = w->k, .n_panels = w->n_panels};
    if (ek_wform_is_q(w->form)) {
        l.units = (w->k + UNIT - 1) / UNIT;
        l.group = w->group, l.a_group = w->a_group, l.bits = w->form == EK_W_Q4 ? 4 : 8;
        l.limbs = w->limbs, l.zero = w->zero, l.biased = w->biased, l.f32_scales = w->scale_dtype == EK_F32;
        if (w->form == EK_W_PLANES) EK_TRY(plan_planes(&l, w));
        l.code_bytes = (size_t)l.n_panels * (size_t)l.units * (size_t)l.bits * 128;
        l.scale_bytes = up64((size_t)l.n_panels * (size_t)(l.k / l.group) * EK_PANEL * ek_cuda_linear_scale(&l));
    } else {
        l.code_bytes = w->bytes;
    }
    l.bytes = l.code_bytes + l.scale_bytes;
    *out = l;
    return EK_OK;
}

bool ek_cuda_linear_alike(const ek_cuda_linear *a, const ek_cuda_linear *b)
{
    return a->form == b->form && a->n == b->n && a->k == b->k && a->group == b->group && a->a_group == b->a_group &&
           a->bits == b->bits && a->limbs == b->limbs && a->zero == b->zero && a->biased == b->biased &&
           a->f32_scales == b->f32_scales && a->f16_scales == b->f16_scales;
}

static int log2_of(int group)
{
    return group == 16 ? 4 : group == 32 ? 5 : group == 64 ? 6 : 7;
}

void ek_cuda_linear_args_of(ek_cuda_linear_args *args, const ek_cuda_linear *l, CUdeviceptr weights)
{
    args->codes = weights, args->scales = weights + l->code_bytes;
    args->n = l->n, args->x.k = l->k;
    args->group_shift = log2_of(l->group);
    args->zero = l->zero;
    args->biased = l->biased, args->f32_scales = l->f32_scales, args->f16_scales = l->f16_scales;
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

enum { MAX_LEAVES = 128 }; /* of a panel, in shared memory */

bool ek_cuda_affine_64(const ek_cuda_linear *l)
{
    return l->units && l->group == 64 && l->a_group == 64 && l->biased && !l->f32_scales && !l->f16_scales;
}

bool ek_cuda_half_32(const ek_cuda_linear *l)
{
    return l->units && l->group == 32 && l->a_group == 32 && l->f16_scales && !l->biased && l->k % 64 == 0;
}

bool ek_cuda_own_scales(const ek_cuda_linear *l)
{
    if (!l->units || l->group != l->a_group || l->k > MAX_LEAVES * EK_KBLOCK_Q) return false;
    if (l->group == 16) return l->bits == 8 && l->f32_scales && !l->biased;
    /* no type has 4 bits without biases unless scales are f16 */
    return l->group == 32 && (l->biased || l->f16_scales || l->bits == 8);
}

ek_cuda_kind ek_cuda_kind_of(const ek_cuda_linear *l)
{
    const char *const scales = l->f16_scales ? "h" : l->f32_scales ? "f" : "b";
    ek_cuda_kind k;
    if (ek_cuda_affine_64(l)) snprintf(k.name, sizeof k.name, "q%d", l->bits);
    else snprintf(k.name, sizeof k.name, "q%d%s%s_%d", l->bits, scales, l->biased ? "m" : "", l->group);
    return k;
}

size_t ek_cuda_acts_plan(ek_cuda_acts *a, int k, int a_group)
{
    const size_t codes = up64((size_t)k), groups = up64((size_t)((k + a_group - 1) / a_group) * 8);
    *a = (ek_cuda_acts){.ldq = (int64_t)(2 * codes + 2 * groups),
                        .low = (int64_t)codes,
                        .groups = {(int64_t)(2 * codes), (int64_t)(2 * codes + groups)},
                        .k = k,
                        .a_group = a_group};
    return 2 * codes + 2 * groups;
}
