#include "mlx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "hashed.h"
#include "minifloat.h"
#include "tensor/dtype.h"
#include "base/alloc.h"

typedef struct mlx_writer {
    const mlx_opts *o;
    values_fn *values; /* NULL: none */
    void *arg;
    st_file mlx, hf;
    ek_buf overrides;
} mlx_writer;

static float stored_as(const char *type, float x)
{
    return type[0] == 'B' ? ek_bf16_f32(ek_f32_bf16(x)) : strcmp(type, "F16") == 0 ? ek_f16_f32(ek_f32_f16(x)) : x;
}

/* One group: scale, bias and codes as mlx.core.quantize chooses them on a CPU. */
static void mlx_group(const float *w, int n, int bits, const char *type, float *scale, float *bias, uint8_t *code)
{
    float top = (float)((1 << bits) - 1), lo = w[0], hi = w[0];
    for (int i = 1; i < n; i++) lo = fminf(lo, w[i]), hi = fmaxf(hi, w[i]);
    bool low_edge = fabsf(lo) > fabsf(hi);
    float s = fmaxf((hi - lo) / top, 1e-7f), edge = low_edge ? lo : hi;
    if (!low_edge) s = -s;
    float q0 = rintf(edge / s);
    if (q0 != 0) s = edge / q0;
    *scale = stored_as(type, s);
    *bias = q0 != 0 ? stored_as(type, edge) : 0;
    for (int i = 0; i < n; i++) code[i] = (uint8_t)fminf(fmaxf(rintf((w[i] - (q0 != 0 ? edge : 0)) / s), 0), top);
}

static void add_typed(st_file *f, const char *name, const char *type, int n_dims, const int64_t *dim, const float *x,
                      size_t n)
{
    uint16_t *half = ek_alloc(n * 2);
    for (size_t i = 0; i < n; i++) half[i] = type[0] == 'B' ? ek_f32_bf16(x[i]) : ek_f32_f16(x[i]);
    bool wide = strcmp(type, "F32") == 0;
    st_add(f, name, type, n_dims, dim, wide ? (const void *)x : half, n * (wide ? 4 : 2));
    free(half);
}

/* w: rows x k, replaced by what the codes stand for. */
static void mlx_quantise(mlx_writer *t, const char *module, int n_dims, const int64_t *dim, float *w, int bits,
                         int group)
{
    int64_t k = dim[n_dims - 1], rows = 1, shape[3];
    char name[200];
    for (int d = 0; d < n_dims - 1; d++) rows *= shape[d] = dim[d];
    size_t row_bytes = (size_t)(k * bits / 8), groups = (size_t)(k / group), n_groups = (size_t)rows * groups;
    uint8_t *codes = ek_alloc((size_t)rows * row_bytes), one[128];
    float *scales = ek_alloc(n_groups * 4), *biases = ek_alloc(n_groups * 4);
    for (size_t g = 0; g < n_groups; g++) {
        float *x = w + g * (size_t)group;
        mlx_group(x, group, bits, t->o->scale_type, &scales[g], &biases[g], one);
        for (int i = 0; i < group; i++) {
            x[i] = fmaf(scales[g], one[i], biases[g]);
            size_t bit = (g % groups * (size_t)group + (size_t)i) * (size_t)bits;
            for (int b = 0; b < bits; b++)
                codes[g / groups * row_bytes + (bit + (size_t)b) / 8] |= (uint8_t)((one[i] >> b & 1)
                                                                                   << (bit + (size_t)b) % 8);
        }
    }
    shape[n_dims - 1] = k * bits / 32;
    snprintf(name, sizeof name, "%s.weight", module);
    st_add(&t->mlx, name, "U32", n_dims, shape, codes, (size_t)rows * row_bytes);
    shape[n_dims - 1] = (int64_t)groups;
    snprintf(name, sizeof name, "%s.scales", module);
    add_typed(&t->mlx, name, t->o->scale_type, n_dims, shape, scales, n_groups);
    snprintf(name, sizeof name, "%s.biases", module);
    add_typed(&t->mlx, name, t->o->scale_type, n_dims, shape, biases, n_groups);
    free(codes), free(scales), free(biases);
}

/* The same in a mode of floats. */
static void mlx_minifloat(mlx_writer *t, const char *module, int n_dims, const int64_t *dim, float *w)
{
    const int bits = t->o->bits, group = t->o->group;
    int64_t k = dim[n_dims - 1], n = k, shape[3];
    char name[200];
    for (int d = 0; d < n_dims - 1; d++) n *= shape[d] = dim[d];
    uint8_t *codes = ek_alloc((size_t)(n * bits / 8)), *scales = ek_alloc((size_t)(n / group));
    mini_mlx(t->o->mode, module, (size_t)n, codes, scales, w);
    shape[n_dims - 1] = k * bits / 32;
    snprintf(name, sizeof name, "%s.weight", module);
    st_add(&t->mlx, name, "U32", n_dims, shape, codes, (size_t)(n * bits / 8));
    shape[n_dims - 1] = k / group;
    snprintf(name, sizeof name, "%s.scales", module);
    st_add(&t->mlx, name, "U8", n_dims, shape, scales, (size_t)(n / group));
    free(codes), free(scales);
}

/* One matrix (or stack of them) under the path of its module. */
static void mlx_module(mlx_writer *t, const char *bare, int n_dims, const int64_t *dim, float *w, size_t n)
{
    const mlx_opts *o = t->o;
    char module[180], name[200];
    bool other = o->other && strstr(bare, o->other);
    int bits = other ? o->other_bits : o->bits, group = other ? o->other_group : o->group;
    snprintf(module, sizeof module, "%s%s", o->prefix, bare);
    if (other && bits) ek_buf_fmt(&t->overrides, ",\"%s\":{\"group_size\":%d,\"bits\":%d}", module, group, bits);
    if (other && !bits) ek_buf_fmt(&t->overrides, ",\"%s\":false", module);
    if (bits && dim[n_dims - 1] % group == 0) {
        if (o->mode && !other) mlx_minifloat(t, module, n_dims, dim, w);
        else mlx_quantise(t, module, n_dims, dim, w, bits, group);
        return;
    }
    snprintf(name, sizeof name, "%s.weight", module);
    add_typed(&t->mlx, name, o->f32_rest ? "F32" : "BF16", n_dims, dim, w, n);
}

/* The two halves of a fused gate_up_proj, each a stack of its own. */
static void mlx_experts(mlx_writer *t, const char *bare, const int64_t *dim, float *w)
{
    static const char *const half[] = {"gate_proj", "up_proj"};
    int64_t part[] = {dim[0], dim[1] / 2, dim[2]};
    size_t one = (size_t)(part[1] * part[2]);
    float *stack = ek_alloc((size_t)dim[0] * one * 4);
    for (int h = 0; h < 2; h++) {
        char path[160];
        snprintf(path, sizeof path, "%.*s.switch_glu.%s", (int)(strlen(bare) - strlen(".gate_up_proj")), bare, half[h]);
        for (size_t e = 0; e < (size_t)dim[0]; e++) memcpy(stack + e * one, w + (2 * e + (size_t)h) * one, one * 4);
        mlx_module(t, path, 3, part, stack, (size_t)dim[0] * one);
        for (size_t e = 0; e < (size_t)dim[0]; e++) memcpy(w + (2 * e + (size_t)h) * one, stack + e * one, one * 4);
    }
    free(stack);
}

static void mlx_tensor(void *arg, const char *name, int n_dims, const int64_t *dim)
{
    mlx_writer *t = arg;
    char bare[160];
    size_t n = 1, length = strlen(name);
    for (int d = 0; d < n_dims; d++) n *= (size_t)dim[d];
    float *w = ek_alloc(n * 4);
    for (size_t i = 0; i < n; i++) w[i] = hashed_weight(name, i);
    snprintf(bare, sizeof bare, "%s", name + strlen("model."));
    if (strstr(name, "experts.gate_up_proj")) {
        mlx_experts(t, bare, dim, w);
    } else if (strstr(name, "experts.down_proj")) {
        snprintf(bare, sizeof bare, "%.*s.switch_glu.down_proj", (int)(length - strlen("model..down_proj")),
                 name + strlen("model."));
        mlx_module(t, bare, 3, dim, w, n);
    } else if (n_dims == 2) {
        bare[strlen(bare) - strlen(".weight")] = '\0';
        mlx_module(t, bare, 2, dim, w, n);
    } else {
        char full[200];
        snprintf(full, sizeof full, "%s%s", t->o->prefix, bare);
        add_typed(&t->mlx, full, t->o->f32_rest ? "F32" : "BF16", n_dims, dim, w, n);
    }
    if (t->values) t->values(t->arg, name, w, n);
    st_add(&t->hf, name, "F32", n_dims, dim, w, n * 4);
    free(w);
}

void write_mlx_values(const char *mlx_dir, const char *hf_dir, const ek_config *c, const mlx_opts *o, values_fn *fn,
                      void *arg)
{
    mlx_writer t = {.o = o, .values = fn, .arg = arg};
    ek_buf text = {0};
    each_tensor(c, mlx_tensor, &t);
    st_save(&t.mlx, mlx_dir, "model.safetensors");
    st_save(&t.hf, hf_dir, "model.safetensors");
    ek_buf_char(&text, '{');
    config_fields(&text, c);
    ek_buf_char(&text, '}');
    put_text(hf_dir, "config.json", text.data);
    text.data[--text.len] = '\0';
    ek_buf_fmt(&text, ",\"quantization\":{\"group_size\":%d,\"bits\":%d%s%s%s%s}}", o->group, o->bits,
               o->mode ? ",\"mode\":\"" : "", o->mode ? o->mode : "", o->mode ? "\"" : "", ek_buf_text(&t.overrides));
    put_text(mlx_dir, "config.json", text.data);
    ek_buf_fini(&text);
    ek_buf_fini(&t.overrides);
}

void write_mlx(const char *mlx_dir, const char *hf_dir, const ek_config *c, const mlx_opts *o)
{
    write_mlx_values(mlx_dir, hf_dir, c, o, NULL, NULL);
}
