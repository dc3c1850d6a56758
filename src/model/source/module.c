#include "model/source/module.h"

#include <stdio.h>
#include <string.h>

#include "ops/weights/quantised_type.h"

const char *ek_part_suffix(int part)
{
    static const char *const suffix[EK_PART_COUNT] = {".weight",
                                                      ".scales",
                                                      ".biases",
                                                      ".weight_packed",
                                                      ".weight_scale",
                                                      ".weight_zero_point",
                                                      ".weight_shape",
                                                      ".weight_g_idx",
                                                      ".weight_global_scale",
                                                      ".weight_scale_2",
                                                      ".weight_scale_inv",
                                                      ".qweight",
                                                      ".qzeros",
                                                      ".g_idx"};
    return suffix[part];
}

/* GPTQ and AWQ name their scales like MLX. */
const char *ek_module_missing(const ek_module *m)
{
    const ek_tensor *const *p = m->part;
    if (p[EK_PART_QWEIGHT]) return !p[EK_PART_SCALES] ? ".scales" : !p[EK_PART_QZEROS] ? ".qzeros" : NULL;
    if (p[EK_PART_PACKED]) return p[EK_PART_SCALE] ? NULL : ".weight_scale";
    if (!p[EK_PART_WEIGHT]) return "";
    if (p[EK_PART_BIASES] && !p[EK_PART_SCALES]) return ".scales";
    if (p[EK_PART_SCALES] && !p[EK_PART_BIASES] && !ek_module_is_minifloat(m)) return ".biases";
    return NULL;
}

/* ------------------------------------------------------------------ shapes */

static void shape_text(char *out, size_t room, const ek_tensor *t)
{
    size_t used = (size_t)snprintf(out, room, "[");
    for (int d = 0; d < t->n_dims && used < room; d++)
        used += (size_t)snprintf(out + used, room - used, "%s%lld", d ? ", " : "", (long long)t->dim[d]);
    if (used < room) snprintf(out + used, room - used, "]");
}

ek_err ek_module_shape(const ek_tensor *t, int outer, int rows, int k)
{
    int64_t want[3], n = 0;
    char has[128], needs[64];
    if (outer) want[n++] = outer;
    want[n++] = rows;
    if (k) want[n++] = k;
    bool same = t->n_dims == n;
    for (int d = 0; same && d < n; d++) same = t->dim[d] == want[d];
    if (same) return EK_OK;
    ek_tensor w = {.n_dims = (int)n, .dim = {want[0], n > 1 ? want[1] : 0, n > 2 ? want[2] : 0}};
    shape_text(has, sizeof has, t);
    shape_text(needs, sizeof needs, &w);
    return ek_fail(EK_EFORMAT, "%s: tensor %s has shape %s, config.json needs %s", t->file, t->name, has, needs);
}

ek_err ek_module_type(const ek_tensor *t, ek_dtype want, const char *what)
{
    if (t->dtype == want) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, %s are %s", t->file, t->name, ek_dtype_name(t->dtype), what,
                   ek_dtype_name(want));
}

/* ------------------------------------------------------------------ floats and MLX */

ek_err ek_module_floats(ek_weight_data *w, const ek_tensor *t, int outer, int rows, int k)
{
    const ek_weight_type *type = ek_weight_type_float(t->dtype);
    if (!type)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, without .scales it must be F32, F16 or BF16", t->file,
                       t->name, ek_dtype_name(t->dtype));
    EK_TRY(ek_module_shape(t, outer, rows, k));
    *w = (ek_weight_data){.type = type, .plane = {t->data}};
    return EK_OK;
}

/* Finds bits and group from the shapes of codes and scales. A copy of the embedding under the head's name has those of
 * the embedding and no entry in config.json. */
static void find_by_shapes(const ek_tensor *codes, const ek_tensor *scales, int k, int *bits, int *group)
{
    if (codes->n_dims != 2 || scales->n_dims != 2 || scales->dim[1] < 1 || k % scales->dim[1]) return;
    const int64_t wide = codes->dim[1] * 32;
    if (wide % k || wide / k < 2 || wide / k > 8 || wide / k == 7) return;
    *bits = (int)(wide / k), *group = (int)(k / scales->dim[1]);
}

static ek_err read_affine(ek_weight_data *w, const ek_module *m, const ek_quant *quant, int outer, int rows, int k)
{
    const ek_tensor *codes = m->part[EK_PART_WEIGHT], *scales = m->part[EK_PART_SCALES],
                    *biases = m->part[EK_PART_BIASES];
    const ek_weight_type *type;
    int bits, group;
    if (!ek_quant_find(quant, m->name, &bits, &group) && strcmp(m->name, "lm_head") == 0)
        find_by_shapes(codes, scales, k, &bits, &group);
    if (bits == 0 || group == 0)
        return ek_fail(EK_EFORMAT,
                       "%s: tensor %s has .scales, but config.json gives no quantization bits and "
                       "group_size for it",
                       codes->file, codes->name);
    EK_TRY(ek_module_type(codes, EK_U32, "quantised weights"));
    if (!ek_weight_type_float(scales->dtype) || biases->dtype != scales->dtype)
        return ek_fail(EK_EFORMAT, "%s: tensor %s has type %s, its biases %s; both must be the same of F32, F16, BF16",
                       scales->file, scales->name, ek_dtype_name(scales->dtype), ek_dtype_name(biases->dtype));
    if (k % group || (int64_t)k * bits % 32)
        return ek_fail(EK_EFORMAT, "%s: tensor %s: %d inputs cannot be stored in groups of %d at %d bits", codes->file,
                       codes->name, k, group, bits);
    EK_TRY(ek_module_shape(codes, outer, rows, (int)((int64_t)k * bits / 32)));
    EK_TRY(ek_module_shape(scales, outer, rows, k / group));
    EK_TRY(ek_module_shape(biases, outer, rows, k / group));
    EK_TRY(ek_weight_type_affine(&type, bits, group, scales->dtype, true));
    *w = (ek_weight_data){.type = type, .plane = {codes->data, scales->data, biases->data}};
    return EK_OK;
}

/* ------------------------------------------------------------------ compressed-tensors */

/* The number of values in [n], [n, 1], [1] or []. */
static int64_t count_of(const ek_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->dim[d];
    return n;
}

/* A scale of a whole row, or of more, is repeated for groups that divide the row. */
static ek_err repeat_scale(const ek_tensor *scales, int k, int *group)
{
    *group = k % 64 ? 32 : 64;
    if (k % 32 == 0) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s: one scale for a row of %d inputs, which are no whole groups of 32",
                   scales->file, scales->name, k);
}

/* Finds the groups of a row by the number of scales: k / group per row, one per row, or one for the whole tensor
 * (0). */
static ek_err find_groups(const ek_tensor *scales, int rows, int k, int *groups, int *group)
{
    if (count_of(scales) == 1 && rows > 1) {
        *groups = 0;
        return repeat_scale(scales, k, group);
    }
    if (count_of(scales) == rows) {
        *groups = 1;
        return repeat_scale(scales, k, group);
    }
    int64_t columns = scales->n_dims == 2 && scales->dim[0] == rows ? scales->dim[1] : 0;
    if (columns < 1 || k % columns)
        return ek_fail(EK_EFORMAT, "%s: tensor %s holds %lld numbers: no whole groups of %d outputs of %d inputs",
                       scales->file, scales->name, (long long)count_of(scales), rows, k);
    *groups = (int)columns, *group = k / *groups;
    return EK_OK;
}

/* Refuses inputs that are ordered by size, which would need a gather; an order that changes nothing is accepted. */
static ek_err check_order(const ek_tensor *order, int k, int group)
{
    if (!order) return EK_OK;
    EK_TRY(ek_module_type(order, EK_I32, "group indices"));
    EK_TRY(ek_module_shape(order, 0, k, 0));
    for (int i = 0; i < k; i++) {
        int32_t g;
        memcpy(&g, order->data + sizeof g * (size_t)i, sizeof g);
        if (g >= 0 && g != i / group)
            return ek_fail(EK_EUNSUPPORTED,
                           "%s: tensor %s orders inputs by size (desc_act, actorder): input %d is in group %d; weights "
                           "in their own order can be read",
                           order->file, order->name, i, (int)g);
    }
    return EK_OK;
}

static ek_err choose(ek_weight_data *w, const ek_tensor *codes, const ek_tensor *scales, ek_packing packing, int bits,
                     int group, bool zeros)
{
    ek_err err = ek_weight_type_packed(&w->type, packing, bits, group, scales->dtype, zeros);
    return err ? ek_fail_in(EK_EUNSUPPORTED, "%s: tensor %s", codes->file, codes->name) : EK_OK;
}

static ek_err check_stated_shape(const ek_tensor *t, int rows, int k)
{
    int64_t stated[2];
    if (!t) return EK_OK;
    EK_TRY(ek_module_type(t, EK_I64, "shapes"));
    EK_TRY(ek_module_shape(t, 0, 2, 0));
    memcpy(stated, t->data, sizeof stated);
    if (stated[0] == rows && stated[1] == k) return EK_OK;
    return ek_fail(EK_EFORMAT, "%s: tensor %s says [%lld, %lld], config.json needs [%d, %d]", t->file, t->name,
                   (long long)stated[0], (long long)stated[1], rows, k);
}

static ek_err read_packed(ek_weight_data *w, const ek_module *m, int rows, int k)
{
    const ek_tensor *codes = m->part[EK_PART_PACKED], *scales = m->part[EK_PART_SCALE],
                    *zeros = m->part[EK_PART_ZERO_POINT];
    int groups, group;
    EK_TRY(ek_module_type(codes, EK_I32, "packed weights"));
    EK_TRY(check_stated_shape(m->part[EK_PART_SHAPE], rows, k));
    int64_t words = codes->n_dims == 2 ? codes->dim[1] : 0, bits = words * 32 / k;
    if (words < 1 || bits < 1 || bits > 8 || words * 32 != bits * k)
        return ek_fail(EK_EFORMAT, "%s: tensor %s: %lld words a row are no whole codes of %d inputs", codes->file,
                       codes->name, (long long)words, k);
    EK_TRY(ek_module_shape(codes, 0, rows, (int)words));
    EK_TRY(find_groups(scales, rows, k, &groups, &group));
    EK_TRY(check_order(m->part[EK_PART_CT_ORDER], k, groups > 1 ? group : k));
    if (zeros) {
        EK_TRY(ek_module_type(zeros, EK_I32, "packed zero points"));
        EK_TRY(ek_module_shape(zeros, 0, (int)((rows * bits + 31) / 32), groups > 1 ? groups : 1));
    }
    EK_TRY(choose(w, codes, scales, EK_PACK_BITS, (int)bits, group, zeros != NULL));
    w->plane[0] = codes->data, w->plane[1] = scales->data, w->plane[2] = zeros ? zeros->data : NULL;
    w->groups = groups;
    return EK_OK;
}

static ek_err read_bytes(ek_weight_data *w, const ek_module *m, int rows, int k)
{
    const ek_tensor *codes = m->part[EK_PART_WEIGHT], *scales = m->part[EK_PART_SCALE];
    int groups, group;
    if (m->part[EK_PART_ZERO_POINT])
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s: 8-bit weights with zero points cannot be read", codes->file,
                       m->part[EK_PART_ZERO_POINT]->name);
    EK_TRY(ek_module_shape(codes, 0, rows, k));
    EK_TRY(find_groups(scales, rows, k, &groups, &group));
    EK_TRY(choose(w, codes, scales, EK_PACK_BYTES, 8, group, false));
    w->plane[0] = codes->data, w->plane[1] = scales->data;
    w->groups = groups;
    return EK_OK;
}

/* ------------------------------------------------------------------ GPTQ, AWQ */

static ek_err read_across(ek_weight_data *w, const ek_module *m, const ek_quant *quant, int rows, int k)
{
    const ek_tensor *codes = m->part[EK_PART_QWEIGHT], *scales = m->part[EK_PART_SCALES],
                    *zeros = m->part[EK_PART_QZEROS];
    const bool awq = quant->method == EK_QUANT_AWQ;
    if (!awq && quant->method != EK_QUANT_GPTQ)
        return ek_fail(EK_EFORMAT, "%s: tensor %s is GPTQ's or AWQ's, but config.json names neither", codes->file,
                       codes->name);
    const int bits = quant->bits, words = rows / 32 * bits + rows % 32 * bits / 32;
    int64_t groups = scales->n_dims == 2 ? scales->dim[0] : 0;
    int group;
    EK_TRY(ek_module_type(codes, EK_I32, "packed weights"));
    EK_TRY(ek_module_type(zeros, EK_I32, "packed zero points"));
    if (groups < 1 || k % groups || rows % 32 || (bits != 4 && bits != 8) || k % (32 / bits))
        return ek_fail(EK_EFORMAT, "%s: tensor %s: %d outputs of %d inputs at %d bits in %lld groups cannot be stored",
                       codes->file, codes->name, rows, k, bits, (long long)groups);
    EK_TRY(awq ? ek_module_shape(codes, 0, k, words) : ek_module_shape(codes, 0, k / (32 / bits), rows));
    EK_TRY(ek_module_shape(scales, 0, (int)groups, rows));
    EK_TRY(ek_module_shape(zeros, 0, (int)groups, words));
    EK_TRY(check_order(m->part[EK_PART_ORDER], k, (int)(k / groups)));
    if (groups > 1) group = (int)(k / groups);
    else EK_TRY(repeat_scale(scales, k, &group));
    ek_packing packing = awq ? EK_PACK_AWQ : quant->zero_as_is ? EK_PACK_GPTQ2 : EK_PACK_GPTQ;
    EK_TRY(choose(w, codes, scales, packing, bits, group, true));
    w->plane[0] = codes->data, w->plane[1] = scales->data, w->plane[2] = zeros->data;
    w->groups = (int)groups, w->across = rows;
    return EK_OK;
}

ek_err ek_module_read(const ek_module *m, const ek_quant *quant, int outer, int rows, int k, ek_weight_data *out)
{
    const ek_tensor *codes = m->part[EK_PART_QWEIGHT]  ? m->part[EK_PART_QWEIGHT]
                             : m->part[EK_PART_PACKED] ? m->part[EK_PART_PACKED]
                                                       : m->part[EK_PART_WEIGHT];
    const bool bytes = codes == m->part[EK_PART_WEIGHT] && m->part[EK_PART_SCALE];
    *out = (ek_weight_data){0};
    if (ek_module_is_minifloat(m)) return ek_module_minifloat(m, quant, outer, rows, k, out);
    if (outer && (bytes || codes != m->part[EK_PART_WEIGHT]))
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s: experts in one tensor are read as floats or MLX's", codes->file,
                       codes->name);
    if (m->part[EK_PART_QWEIGHT]) return read_across(out, m, quant, rows, k);
    if (m->part[EK_PART_PACKED]) return read_packed(out, m, rows, k);
    if (bytes && codes->dtype == EK_I8) return read_bytes(out, m, rows, k);
    if (bytes)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %s has type %s and a scale; I8 and F8 can be read", codes->file,
                       codes->name, ek_dtype_name(codes->dtype));
    if (m->part[EK_PART_SCALES]) return read_affine(out, m, quant, outer, rows, k);
    return ek_module_floats(out, codes, outer, rows, k);
}
