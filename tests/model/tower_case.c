#include "tower_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/hashed.h"
#include "../support/safetensors.h"
#include "base/alloc.h"
#include "tensor/dtype.h"

/* ------------------------------------------------------------------ tensors */

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* In (-1, 1), of 7 bits, so exact in every float type. */
static float small(const char *name, uint64_t i)
{
    return (float)((int)(hashed_bits(name, i) % 255) - 127) / 128;
}

static float value(const tower_case *c, const char *name, uint64_t i)
{
    const float x = small(name, i), inf = (float)INFINITY;
    if (ends(name, "put_min")) return c->infinite ? -inf : -0.75f + x / 4;
    if (ends(name, "put_max")) return c->infinite ? inf : 0.75f + x / 4;
    if (ends(name, "std_bias")) return (float)c->std_bias * x;
    if (ends(name, "std_scale")) return (1 + x / 2) / 4;
    if (strstr(name, "norm") || strstr(name, "ln")) return ends(name, "bias") ? x / 4 : 1 + x / 2;
    return x / 4;
}

static void add(tower_case *c, int n_dims, int64_t d0, int64_t d1, int64_t d2, const char *fmt, ...)
{
    va_list ap;
    c->tensor = ek_realloc(c->tensor, sizeof *c->tensor * (size_t)(c->n_tensors + 1));
    tower_tensor *t = &c->tensor[c->n_tensors++];
    *t = (tower_tensor){.n_dims = n_dims, .dim = {d0, d1, d2}, .n = 1};
    va_start(ap, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    for (int d = 0; d < n_dims; d++) t->n *= (size_t)t->dim[d];
    t->v = ek_alloc(sizeof *t->v * t->n);
    for (size_t i = 0; i < t->n; i++) t->v[i] = ek_bf16_f32(ek_f32_bf16(value(c, t->name, i)));
}

static void add_linear(tower_case *c, int layer, const char *name, int n, int k)
{
    static const char *const bound[] = {"input_min", "input_max", "output_min", "output_max"};
    add(c, 2, n, k, 0, "vision_tower.encoder.layers.%d.%s.linear.weight", layer, name);
    for (int i = 0; c->clips && i < 4; i++)
        add(c, 0, 0, 0, 0, "vision_tower.encoder.layers.%d.%s.%s", layer, name, bound[i]);
}

static void add_norm(tower_case *c, int layer, const char *name, int n)
{
    add(c, 1, n, 0, 0, "vision_tower.encoder.layers.%d.%s.weight", layer, name);
}

static void make_tower(tower_case *c)
{
    add(c, 2, c->width, 3 * c->side * c->side, 0, "vision_tower.patch_embedder.input_proj.weight");
    add(c, 3, 2, c->positions, c->width, "vision_tower.patch_embedder.position_embedding_table");
    for (int l = 0; l < c->layers; l++) {
        add_linear(c, l, "self_attn.q_proj", c->heads * c->dim, c->width);
        add_linear(c, l, "self_attn.k_proj", c->kv_heads * c->dim, c->width);
        add_linear(c, l, "self_attn.v_proj", c->kv_heads * c->dim, c->width);
        add_linear(c, l, "self_attn.o_proj", c->width, c->heads * c->dim);
        add_linear(c, l, "mlp.gate_proj", c->inner, c->width);
        add_linear(c, l, "mlp.up_proj", c->inner, c->width);
        add_linear(c, l, "mlp.down_proj", c->width, c->inner);
        add_norm(c, l, "self_attn.q_norm", c->dim);
        add_norm(c, l, "self_attn.k_norm", c->dim);
        add_norm(c, l, "input_layernorm", c->width);
        add_norm(c, l, "post_attention_layernorm", c->width);
        add_norm(c, l, "pre_feedforward_layernorm", c->width);
        add_norm(c, l, "post_feedforward_layernorm", c->width);
    }
    if (c->standardise) add(c, 1, c->width, 0, 0, "vision_tower.std_bias");
    if (c->standardise) add(c, 1, c->width, 0, 0, "vision_tower.std_scale");
    add(c, 2, c->hidden, c->width, 0, "embed_vision.embedding_projection.weight");
}

static void make_unified(tower_case *c)
{
    const int floats = 3 * c->side * c->side * c->pool * c->pool;
    const struct {
        const char *name;
        int n;
    } norm[] = {{"patch_ln1", floats}, {"patch_ln2", c->width}, {"pos_norm", c->width}};
    for (int i = 0; i < 3; i++) {
        add(c, 1, norm[i].n, 0, 0, "embed_vision.%s.weight", norm[i].name);
        add(c, 1, norm[i].n, 0, 0, "embed_vision.%s.bias", norm[i].name);
    }
    add(c, 2, c->width, floats, 0, "embed_vision.patch_dense.weight");
    add(c, 1, c->width, 0, 0, "embed_vision.patch_dense.bias");
    add(c, 3, c->positions, 2, c->width, "embed_vision.pos_embedding");
    add(c, 2, c->hidden, c->width, 0, "embed_vision.multimodal_embedder.embedding_projection.weight");
}

void tower_make(tower_case *c)
{
    c->tensor = NULL, c->n_tensors = 0;
    if (c->unified) make_unified(c);
    else make_tower(c);
}

void tower_free(tower_case *c)
{
    for (int i = 0; i < c->n_tensors; i++) free(c->tensor[i].v);
    free(c->tensor);
}

const tower_tensor *tower_find(const tower_case *c, const char *name)
{
    for (int i = 0; i < c->n_tensors; i++)
        if (strcmp(c->tensor[i].name, name) == 0) return &c->tensor[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* ------------------------------------------------------------------ safetensors */

static void config_text(ek_buf *b, const tower_case *c)
{
    ek_buf_fmt(b,
               "{\"model_type\":\"gemma4\",\"text_config\":{\"hidden_size\":%d,\"vocab_size\":512,"
               "\"use_bidirectional_attention\":%s},\"boi_token_id\":503,\"image_token_id\":500,\"eoi_token_id\":504,"
               "\"quantization\":{\"bits\":8,\"group_size\":32},",
               c->hidden, c->clips ? "null" : "\"vision\"");
    ek_buf_fmt(b, "\"vision_config\":{\"patch_size\":%d,\"pooling_kernel_size\":%d,\"rms_norm_eps\":1e-06,", c->side,
               c->pool);
    if (c->unified)
        ek_buf_fmt(b, "\"mm_embed_dim\":%d,\"mm_posemb_size\":%d,\"output_proj_dims\":%d}}", c->width, c->positions,
                   c->width);
    else
        ek_buf_fmt(b,
                   "\"hidden_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,"
                   "\"head_dim\":%d,\"intermediate_size\":%d,\"position_embedding_size\":%d,\"use_clipped_linears\":%s,"
                   "\"standardize\":%s,\"hidden_activation\":\"gelu_pytorch_tanh\",\"rope_parameters\":{\"rope_theta\":"
                   "100.0}}}",
                   c->width, c->layers, c->heads, c->kv_heads, c->dim, c->inner, c->positions,
                   c->clips ? "true" : "false", c->standardise ? "true" : "false");
}

static void put_config(const char *dir, const tower_case *c, const tower_layout *l)
{
    ek_buf b = {0}, changed = {0};
    config_text(&b, c);
    const char *text = ek_buf_text(&b), *at = l->change ? strstr(text, l->change) : NULL;
    if (l->change) {
        assert_non_null(at);
        ek_buf_fmt(&changed, "%.*s%s%s", (int)(at - text), text, l->to, at + strlen(l->change));
    }
    put_text(dir, "config.json", l->change ? ek_buf_text(&changed) : text);
    ek_buf_fini(&b);
    ek_buf_fini(&changed);
}

static void put_floats(st_file *f, const char *name, const char *dtype, const tower_tensor *t)
{
    const size_t size = strcmp(dtype, "F32") == 0 ? 4 : 2;
    uint8_t *bytes = ek_alloc(size * t->n + 1);
    for (size_t i = 0; i < t->n; i++) {
        const uint16_t half = strcmp(dtype, "F16") == 0 ? ek_f32_f16(t->v[i]) : ek_f32_bf16(t->v[i]);
        if (size == 4) memcpy(bytes + 4 * i, &t->v[i], 4);
        else memcpy(bytes + 2 * i, &half, 2);
    }
    st_add(f, name, dtype, t->n_dims, t->dim, bytes, size * t->n);
    free(bytes);
}

/* Codes of 8 bits, scales that are powers of two: the values are exactly those of the tensor, which have 7 bits; of 4
 * bits other ones, with scales in bf16 that differ. */
static void put_mlx(st_file *f, const char *name, const tower_tensor *t, const tower_layout *l)
{
    const size_t group = l->quantise_group ? (size_t)l->quantise_group : 32, groups_in_all = t->n / group;
    const bool four = l->quantise_bits == 4;
    const char *const dtype = four ? "BF16" : "F32";
    char full[160];
    const int stem = (int)(strlen(name) - strlen("weight"));
    uint8_t *codes = ek_alloc(t->n);
    void *of = ek_alloc(4 * groups_in_all);
    for (size_t i = 0; i < t->n; i++) {
        const int code = (int)lrintf(four ? t->v[i] * 30 + 7.5f : t->v[i] * 512 + 127);
        if (four) codes[i / 2] |= (uint8_t)(code << i % 2 * 4);
        else codes[i] = (uint8_t)code;
    }
    const int64_t words[] = {t->dim[0], t->dim[1] / (four ? 8 : 4)}, groups[] = {t->dim[0], t->dim[1] / (int)group};
    st_add(f, name, "U32", 2, words, codes, t->n / (four ? 2 : 1));
    for (int bias = 0; bias < 2; bias++) {
        for (size_t i = 0; i < groups_in_all; i++) {
            const float v = bias ? four ? -0.25f : -127 / 512.0f : four ? (float)(8 + i % 3) / 256 : 1 / 512.0f;
            if (four) ((uint16_t *)of)[i] = ek_f32_bf16(v);
            else ((float *)of)[i] = v;
        }
        snprintf(full, sizeof full, "%.*s%s", stem, name, bias ? "biases" : "scales");
        st_add(f, full, dtype, 2, groups, of, (four ? 2 : 4) * groups_in_all);
    }
    free(codes), free(of);
}

void tower_write(const char *dir, const tower_case *c, const tower_layout *l)
{
    st_file f = {{0}, {0}};
    for (int i = 0; i < c->n_tensors; i++) {
        const tower_tensor *t = &c->tensor[i];
        char name[160];
        if (l->skip && strcmp(t->name, l->skip) == 0) continue;
        const bool mlx = !*l->prefix && strncmp(t->name, "embed_vision.", 13) == 0 && c->unified;
        if (mlx && strstr(t->name, "multimodal_embedder."))
            snprintf(name, sizeof name, "embed_vision.embedding_projection.weight");
        else if (mlx) snprintf(name, sizeof name, "vision_embedder.%s", t->name + 13);
        else snprintf(name, sizeof name, "%s%s", l->prefix, t->name);
        if (l->quantise_bits && t->n_dims == 2 && t->dim[1] % (l->quantise_group ? l->quantise_group : 32) == 0)
            put_mlx(&f, name, t, l);
        else put_floats(&f, name, l->dtype, t);
    }
    st_save(&f, dir, "model.safetensors");
    put_config(dir, c, l);
}

/* ------------------------------------------------------------------ in float64 */

typedef struct oracle {
    const tower_case *c;
    int layer;
} oracle;

static const float *weight(const oracle *o, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "vision_tower.encoder.layers.%d.%s", o->layer, name);
    return tower_find(o->c, full)->v;
}

static void matmul(double *y, const double *x, const float *w, int n, int k)
{
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int j = 0; j < k; j++) y[i] += x[j] * (double)w[(size_t)i * (size_t)k + (size_t)j];
    }
}

static double bound(const oracle *o, const char *name, const char *which)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", name, which);
    return (double)*weight(o, full);
}

static void clipped(const oracle *o, double *y, const double *x, const char *name, int n, int k)
{
    char full[96];
    double *in = malloc(sizeof *in * (size_t)k);
    snprintf(full, sizeof full, "%s.linear.weight", name);
    memcpy(in, x, sizeof *in * (size_t)k);
    for (int i = 0; o->c->clips && i < k; i++)
        in[i] = fmin(fmax(x[i], bound(o, name, "input_min")), bound(o, name, "input_max"));
    matmul(y, in, weight(o, full), n, k);
    for (int i = 0; o->c->clips && i < n; i++)
        y[i] = fmin(fmax(y[i], bound(o, name, "output_min")), bound(o, name, "output_max"));
    free(in);
}

static void rms(double *y, const double *x, const float *w, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    const double r = 1 / sqrt(sum / n + 1e-6);
    for (int i = 0; i < n; i++) y[i] = x[i] * r * (w ? (double)w[i] : 1);
}

static void layer_norm(double *x, const float *w, const float *b, int n)
{
    double mean = 0, var = 0;
    for (int i = 0; i < n; i++) mean += x[i] / n;
    for (int i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++) x[i] = (x[i] - mean) / sqrt(var + 1e-5) * (double)w[i] + (double)b[i];
}

static void rotate(double *x, int dim, int px, int py)
{
    const int half = dim / 2, n = half / 2;
    for (int axis = 0; axis < 2; axis++)
        for (int i = 0; i < n; i++) {
            const double a = (axis ? py : px) * pow(100, -2.0 * i / half);
            double *p = x + axis * half + i, first = p[0], second = p[n];
            p[0] = first * cos(a) - second * sin(a);
            p[n] = second * cos(a) + first * sin(a);
        }
}

/* One layer over all rows of h. */
static void run_layer(const oracle *o, double *h, int n, int across)
{
    const tower_case *c = o->c;
    const size_t q_row = (size_t)(c->heads * c->dim), k_row = (size_t)(c->kv_heads * c->dim), wide = (size_t)c->width;
    double *q = calloc((size_t)n * q_row, sizeof *q), *k = calloc((size_t)n * k_row, sizeof *k),
           *v = calloc((size_t)n * k_row, sizeof *v), *x = calloc(wide, sizeof *x), *y = calloc(wide, sizeof *y),
           *at = calloc(q_row, sizeof *at), *p = calloc((size_t)n, sizeof *p),
           *gate = calloc((size_t)c->inner, sizeof *gate), *up = calloc((size_t)c->inner, sizeof *up);
    for (int r = 0; r < n; r++) {
        double *qr = q + (size_t)r * q_row, *kr = k + (size_t)r * k_row, *vr = v + (size_t)r * k_row;
        rms(x, h + (size_t)r * wide, weight(o, "input_layernorm.weight"), c->width);
        clipped(o, qr, x, "self_attn.q_proj", (int)q_row, c->width);
        clipped(o, kr, x, "self_attn.k_proj", (int)k_row, c->width);
        clipped(o, vr, x, "self_attn.v_proj", (int)k_row, c->width);
        for (int j = 0; j < c->heads; j++, qr += c->dim) {
            rms(qr, qr, weight(o, "self_attn.q_norm.weight"), c->dim);
            rotate(qr, c->dim, r % across, r / across);
        }
        for (int j = 0; j < c->kv_heads; j++, kr += c->dim, vr += c->dim) {
            rms(kr, kr, weight(o, "self_attn.k_norm.weight"), c->dim);
            rotate(kr, c->dim, r % across, r / across);
            rms(vr, vr, NULL, c->dim);
        }
    }
    for (int r = 0; r < n; r++) {
        double *hr = h + (size_t)r * wide;
        for (int j = 0; j < c->heads; j++) {
            const size_t head = (size_t)(j / (c->heads / c->kv_heads) * c->dim);
            double top = -INFINITY, sum = 0;
            for (int s = 0; s < n; s++) {
                p[s] = 0;
                for (int d = 0; d < c->dim; d++)
                    p[s] += q[(size_t)r * q_row + (size_t)(j * c->dim + d)] * k[(size_t)s * k_row + head + (size_t)d];
                top = fmax(top, p[s]);
            }
            for (int s = 0; s < n; s++) sum += p[s] = exp(p[s] - top);
            for (int d = 0; d < c->dim; d++) {
                double *to = at + j * c->dim + d;
                *to = 0;
                for (int s = 0; s < n; s++) *to += p[s] / sum * v[(size_t)s * k_row + head + (size_t)d];
            }
        }
        clipped(o, y, at, "self_attn.o_proj", c->width, (int)q_row);
        rms(y, y, weight(o, "post_attention_layernorm.weight"), c->width);
        for (int d = 0; d < c->width; d++) hr[d] += y[d];
        rms(x, hr, weight(o, "pre_feedforward_layernorm.weight"), c->width);
        clipped(o, gate, x, "mlp.gate_proj", c->inner, c->width);
        clipped(o, up, x, "mlp.up_proj", c->inner, c->width);
        for (int d = 0; d < c->inner; d++) {
            const double g = gate[d];
            gate[d] = 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * up[d];
        }
        clipped(o, y, gate, "mlp.down_proj", c->width, c->inner);
        rms(y, y, weight(o, "post_feedforward_layernorm.weight"), c->width);
        for (int d = 0; d < c->width; d++) hr[d] += y[d];
    }
    free(q), free(k), free(v), free(x), free(y), free(at), free(p), free(gate), free(up);
}

/* side x side pixels of the picture, from the patch's corner on. */
static void read_patch(double *x, const ek_picture *p, int side, int px, int py, bool tower)
{
    for (int y = 0; y < side; y++)
        for (int i = 0; i < 3 * side; i++) {
            const size_t at = ((size_t)(py * side + y) * (size_t)p->fit.width + (size_t)(px * side)) * 3 + (size_t)i;
            const double s = p->image.rgb[at] / 255.0;
            *x++ = tower ? 2 * (s - 0.5) : s;
        }
}

static void project(const tower_case *c, double *row, double *x, const char *name)
{
    rms(x, x, NULL, c->width);
    matmul(row, x, tower_find(c, name)->v, c->hidden, c->width);
}

static double *run_tower(const tower_case *c, const ek_picture *p)
{
    const int across = p->fit.width / c->side, n = across * (p->fit.height / c->side), tokens = across / c->pool;
    const float *table = tower_find(c, "vision_tower.patch_embedder.position_embedding_table")->v;
    const size_t wide = (size_t)c->width;
    double *h = calloc((size_t)n * wide, sizeof *h), *x = calloc((size_t)(3 * c->side * c->side), sizeof *x),
           *rows = calloc((size_t)p->fit.tokens * (size_t)c->hidden, sizeof *rows), *t = calloc(wide, sizeof *t);
    for (int r = 0; r < n; r++) {
        read_patch(x, p, c->side, r % across, r / across, true);
        matmul(h + (size_t)r * wide, x, tower_find(c, "vision_tower.patch_embedder.input_proj.weight")->v, c->width,
               3 * c->side * c->side);
        for (size_t d = 0; d < wide; d++)
            h[(size_t)r * wide + d] += (double)table[(size_t)(r % across) * wide + d] +
                                       (double)table[((size_t)c->positions + (size_t)(r / across)) * wide + d];
    }
    for (int l = 0; l < c->layers; l++) run_layer(&(oracle){c, l}, h, n, across);
    for (int i = 0; i < p->fit.tokens; i++) {
        for (size_t d = 0; d < wide; d++) {
            t[d] = 0;
            for (int s = 0; s < c->pool * c->pool; s++) {
                const int r = (i / tokens * c->pool + s / c->pool) * across + i % tokens * c->pool + s % c->pool;
                t[d] += h[(size_t)r * wide + d] / (c->pool * c->pool);
            }
            t[d] *= sqrt(c->width);
            if (c->standardise)
                t[d] = (t[d] - (double)tower_find(c, "vision_tower.std_bias")->v[d]) *
                       (double)tower_find(c, "vision_tower.std_scale")->v[d];
        }
        project(c, rows + (size_t)i * (size_t)c->hidden, t, "embed_vision.embedding_projection.weight");
    }
    free(h), free(x), free(t);
    return rows;
}

static double *run_unified(const tower_case *c, const ek_picture *p)
{
    const int side = c->side * c->pool, across = p->fit.width / side, floats = 3 * side * side;
    const float *table = tower_find(c, "embed_vision.pos_embedding")->v;
    double *x = calloc((size_t)floats, sizeof *x), *y = calloc((size_t)c->width, sizeof *y),
           *rows = calloc((size_t)p->fit.tokens * (size_t)c->hidden, sizeof *rows);
    for (int i = 0; i < p->fit.tokens; i++) {
        read_patch(x, p, side, i % across, i / across, false);
        layer_norm(x, tower_find(c, "embed_vision.patch_ln1.weight")->v,
                   tower_find(c, "embed_vision.patch_ln1.bias")->v, floats);
        matmul(y, x, tower_find(c, "embed_vision.patch_dense.weight")->v, c->width, floats);
        for (int d = 0; d < c->width; d++) y[d] += (double)tower_find(c, "embed_vision.patch_dense.bias")->v[d];
        layer_norm(y, tower_find(c, "embed_vision.patch_ln2.weight")->v,
                   tower_find(c, "embed_vision.patch_ln2.bias")->v, c->width);
        for (int d = 0; d < c->width; d++)
            y[d] += (double)table[(2 * (i % across)) * c->width + d] +
                    (double)table[(2 * (i / across) + 1) * c->width + d];
        layer_norm(y, tower_find(c, "embed_vision.pos_norm.weight")->v, tower_find(c, "embed_vision.pos_norm.bias")->v,
                   c->width);
        project(c, rows + (size_t)i * (size_t)c->hidden, y,
                "embed_vision.multimodal_embedder.embedding_projection.weight");
    }
    free(x), free(y);
    return rows;
}

double *tower_oracle(const tower_case *c, const ek_picture *p)
{
    return c->unified ? run_unified(c, p) : run_tower(c, p);
}

void tower_picture(ek_picture *p, const tower_case *c, int width, int height, int budget)
{
    const ek_picture_opts o = {.budget = budget, .resizer = EK_RESIZE_TORCH, .patching = {c->side, c->pool}};
    ek_image image = {.width = width, .height = height, .rgb = ek_alloc((size_t)(3 * width * height))};
    for (int i = 0; i < 3 * width * height; i++) {
        const int x = i / 3 % width, y = i / 3 / width;
        image.rgb[i] = (uint8_t)(7 * x + 13 * y + 29 * (i % 3) + ((x * y) >> 3));
    }
    assert_int_equal(ek_picture_make(p, &image, &o), EK_OK);
    free(image.rgb);
}
