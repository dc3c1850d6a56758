/* Modules of 4-bit and 8-bit floats. The tensors show which program wrote them:
 *
 *                   codes                     scales                              one for all
 *   MLX             .weight U32               .scales U8, no .biases
 *   compressed-     .weight_packed U8         .weight_scale F8_E4M3 (NVFP4)       .weight_global_scale, divides
 *   tensors                                   .weight_scale U8 (MXFP4)
 *   modelopt        .weight U8                the same                            .weight_scale_2, multiplies
 *   both, fp8       .weight F8_E4M3, F8_E5M2  .weight_scale, floats or U8 (MXFP8); .weight_scale_inv in tiles of 128
 *
 * Sources: compressed-tensors, compressors; modelopt, unified_export_hf; transformers, finegrained_fp8; vLLM, modelopt.
 */
#include <string.h>

#include "model/source/module.h"
#include "ops/convert.h"
#include "ops/weights/quantised_type.h"

static bool is_fp8(const ek_tensor *t)
{
    return t && (t->dtype == EK_F8_E4M3 || t->dtype == EK_F8_E5M2);
}

static bool is_byte(const ek_tensor *t) /* the type of E8M0 scales */
{
    return t && (t->dtype == EK_U8 || t->dtype == EK_F8_E8M0);
}

bool ek_module_is_minifloat(const ek_module *m)
{
    const ek_tensor *const *p = m->part, *codes = p[EK_PART_PACKED] ? p[EK_PART_PACKED] : p[EK_PART_WEIGHT];
    if (!codes || p[EK_PART_QWEIGHT] || p[EK_PART_BIASES]) return false;
    if (p[EK_PART_SCALES] && !p[EK_PART_PACKED]) return is_byte(p[EK_PART_SCALES]);
    return is_fp8(codes) || codes->dtype == EK_U8;
}

/* ------------------------------------------------------------------ one number */

static ek_err read_gain(const ek_tensor *t, bool divides, float *gain)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->dim[d];
    EK_TRY(ek_module_type(t, EK_F32, "scales of a whole tensor"));
    if (n != 1)
        return ek_fail(EK_EFORMAT, "%s: tensor %s holds %lld numbers, a scale of a whole tensor is one", t->file,
                       t->name, (long long)n);
    float v = ek_load_float(t->data, EK_F32);
    *gain = divides ? 1 / v : v;
    if (*gain > 0x1p-100f && *gain < 0x1p100f) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: tensor %s is %g, which is no scale of weights", t->file, t->name, (double)v);
}

/* ------------------------------------------------------------------ 4 bits */

static ek_err read_fp4(const ek_module *m, int rows, int k, ek_weight_data *out)
{
    const ek_tensor *codes = m->part[EK_PART_PACKED] ? m->part[EK_PART_PACKED] : m->part[EK_PART_WEIGHT];
    const ek_tensor *scales = m->part[EK_PART_SCALE], *divisor = m->part[EK_PART_GLOBAL_SCALE],
                    *factor = m->part[EK_PART_SCALE_2];
    const bool nv = scales->dtype == EK_F8_E4M3;
    if (!nv && !is_byte(scales))
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s; 4-bit floats have scales of F8_E4M3, F8_E8M0 or U8",
                       scales->file, scales->name, ek_dtype_name(scales->dtype));
    if (k % 32)
        return ek_fail(EK_EFORMAT, "%s: tensor %s: %d inputs are no whole groups of 32", codes->file, codes->name, k);
    EK_TRY(ek_module_type(codes, EK_U8, "4-bit floats"));
    EK_TRY(ek_module_shape(codes, 0, rows, k / 2));
    EK_TRY(ek_module_shape(scales, 0, rows, k / (nv ? 16 : 32)));
    *out = (ek_weight_data){.type = ek_weight_type_minifloat(nv ? EK_MINI_NVFP4 : EK_MINI_MXFP4),
                            .plane = {codes->data, scales->data}};
    if (nv && !divisor && !factor)
        return ek_fail(EK_EFORMAT, "%s: tensor %s needs %s.weight_global_scale or .weight_scale_2 beside it",
                       codes->file, codes->name, m->name);
    if (!nv) return EK_OK;
    return divisor ? read_gain(divisor, true, &out->gain) : read_gain(factor, false, &out->gain);
}

/* ------------------------------------------------------------------ 8 bits */

/* The dimensions rows x columns, without dimensions of 1 that some writers insert; -1: there are others. */
static void flat_shape(const ek_tensor *t, int64_t shape[2])
{
    int n = 0;
    shape[0] = shape[1] = 1;
    for (int d = 0; d < t->n_dims; d++)
        if (t->dim[d] != 1 || (t->n_dims == 2)) {
            if (n == 2) shape[0] = shape[1] = -1;
            else shape[n++] = t->dim[d];
        }
}

/* Finds the extent of a scale: the tensor, a row, a group of a row, or a tile of 128 x 128. */
static ek_err find_tiles(ek_weight_data *w, const ek_tensor *t, int rows, int k)
{
    enum { TILE = 128 };
    int64_t shape[2];
    flat_shape(t, shape);
    if (shape[0] == 1 && shape[1] == 1) return EK_OK; /* also if the tensor is one row or one tile */
    if (shape[0] == rows && shape[1] == 1) {
        w->tile_rows = 1;
        return EK_OK;
    }
    if (shape[0] == rows && shape[1] > 1 && k % shape[1] == 0) {
        w->tile_rows = 1, w->tile_k = (int)(k / shape[1]);
        return EK_OK;
    }
    w->tile_rows = w->tile_k = TILE;
    if (shape[0] == (rows + TILE - 1) / TILE && shape[1] == (k + TILE - 1) / TILE) return EK_OK;
    return ek_fail(EK_EFORMAT,
                   "%s: tensor %s holds %lld x %lld scales; %d x %d weights have 1, %d x 1, as many in "
                   "groups, or %d x %d",
                   t->file, t->name, (long long)shape[0], (long long)shape[1], rows, k, rows, (rows + TILE - 1) / TILE,
                   (k + TILE - 1) / TILE);
}

static ek_err read_fp8(const ek_module *m, int rows, int k, ek_weight_data *out)
{
    const ek_tensor *codes = m->part[EK_PART_PACKED] ? m->part[EK_PART_PACKED] : m->part[EK_PART_WEIGHT];
    const ek_tensor *scales = m->part[EK_PART_SCALE];
    const bool e5 = codes->dtype == EK_F8_E5M2;
    if (!scales) scales = m->part[EK_PART_SCALE_INV];
    EK_TRY(ek_module_shape(codes, 0, rows, k));
    if (is_byte(scales)) {
        if (k % 32)
            return ek_fail(EK_EFORMAT, "%s: tensor %s: %d inputs are no whole groups of 32", codes->file, codes->name,
                           k);
        EK_TRY(ek_module_shape(scales, 0, rows, k / 32));
        *out = (ek_weight_data){.type = ek_weight_type_minifloat(e5 ? EK_MINI_MXFP8_E5M2 : EK_MINI_MXFP8)};
    } else {
        *out = (ek_weight_data){.type = ek_weight_type_fp8(codes->dtype, scales->dtype)};
        if (!out->type)
            return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s; fp8 has scales of F32, F16, BF16, F8_E8M0 or U8",
                           scales->file, scales->name, ek_dtype_name(scales->dtype));
        EK_TRY(find_tiles(out, scales, rows, k));
    }
    out->plane[0] = codes->data, out->plane[1] = scales->data;
    return EK_OK;
}

/* ------------------------------------------------------------------ MLX */

static ek_err read_mlx(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out)
{
    const ek_tensor *codes = m->part[EK_PART_WEIGHT], *scales = m->part[EK_PART_SCALES];
    int bits, group;
    ek_quant_find(quant, m->name, &bits, &group);
    const bool nv = bits == 4 && group == 16, fp4 = bits == 4 && group == 32, fp8 = bits == 8 && group == 32;
    if (!nv && !fp4 && !fp8)
        return ek_fail(
            EK_EFORMAT,
            "%s: tensor %s has bytes for scales, config.json gives it %d bits in groups of %d; mxfp4, mxfp8 and "
            "nvfp4 are 4 in 32, 8 in 32 and 4 in 16",
            scales->file, scales->name, bits, group);
    if (k % 32)
        return ek_fail(EK_EFORMAT, "%s: tensor %s: %d inputs are no whole groups of 32", codes->file, codes->name, k);
    EK_TRY(ek_module_type(codes, EK_U32, "quantised weights"));
    EK_TRY(ek_module_shape(codes, outer, rows, k / 32 * bits));
    EK_TRY(ek_module_shape(scales, outer, rows, k / group));
    *out = (ek_weight_data){.type = ek_weight_type_minifloat(nv    ? EK_MINI_NVFP4_MLX
                                                             : fp4 ? EK_MINI_MXFP4
                                                                   : EK_MINI_MXFP8_MLX),
                            .plane = {codes->data, scales->data}};
    return EK_OK;
}

ek_err ek_module_minifloat(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out)
{
    const ek_tensor *codes = m->part[EK_PART_PACKED] ? m->part[EK_PART_PACKED] : m->part[EK_PART_WEIGHT];
    if (m->part[EK_PART_SCALES] && !m->part[EK_PART_PACKED]) return read_mlx(m, quant, outer, rows, k, out);
    if (outer)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s: experts in one tensor are read as floats or MLX's", codes->file,
                       codes->name);
    if (!m->part[EK_PART_SCALE] && !m->part[EK_PART_SCALE_INV])
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s and no .weight_scale beside it", codes->file, codes->name,
                       ek_dtype_name(codes->dtype));
    if (is_fp8(codes)) return read_fp8(m, rows, k, out);
    if (m->part[EK_PART_SCALE]) return read_fp4(m, rows, k, out);
    return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, tiles of scales are fp8's", codes->file, codes->name,
                   ek_dtype_name(codes->dtype));
}
