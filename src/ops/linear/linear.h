/* y[r][n] = sum over k of x[r][k] * w[n][k]: every linear layer of the model.
 *
 * Weights lie in panels of 16 outputs, so that a chain of additions per output is a lane of
 * a vector and every vector width adds in the same order. K is walked in blocks of 256 (Form F)
 * or 1024 (Form Q) from k = 0 (the last may be short); a block gives one leaf, leaves are added
 * by the tree T of ops/tree.h. rows, the panel split, the thread count and the ISA never change a
 * bit of y.
 *
 * Form F (F32, F16, BF16 weights): leaf: a = +0; for k ascending: a = fma(x[k], w[n][k], a),
 *   the weight widened exactly.
 * Form Q (Q4, Q8, PLANES: centred codes c = u - zero, scale s and bias b per group of G weights):
 *   the row of x is quantised once to 16 bits in groups of A, q = 256 h + l with two int8 limbs.
 *   A matrix of two limbs takes q and the group's scale sx; a matrix of one limb takes h for q and
 *   256 sx for sx.
 *   I = exact integer sum of c * q over an A-group, |I| <= 64 * 128 * 32512 < 2^29;
 *   X = exact integer sum of q, |X| < 2^21;
 *   leaf: a = +0; for A-groups in ascending k:
 *       t = fma(b', (float)X, s * (float)I)     b' = fma((float)zero, s, b); t = s * (float)I if not biased
 *       a = fma(t, sx, a)
 * Formula: torch.nn.Linear without bias; groups: MLX affine quantisation. docs/NUMERICS.md 3.
 *
 * The kernels cannot fail: shapes are checked by the plan, once, when a model is loaded. */
#ifndef EK_OPS_LINEAR_H
#define EK_OPS_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/machine/pool.h"
#include "ops/weights/weight_type.h"
#include "tensor/dtype.h"

enum {
    EK_PANEL = 16,          /* outputs */
    EK_KBLOCK = 256,        /* inputs of a leaf of Form F, and of Form B (ops/linear/linear_b.h) */
    EK_KBLOCK_Q = 1024,     /* inputs of a leaf of Form Q */
    EK_LINEAR_MAX = 1 << 24 /* of n and of k */
};

struct ek_acts;
typedef struct ek_linear ek_linear;

/* Computes panels [p0, p1) for rows [r0, r1) of x into y (row r0 of x is row r0 of y). */
typedef void ek_linear_fn(const ek_linear *w, const struct ek_acts *x, int r0, int r1, float *y, ptrdiff_t ldy, int p0,
                          int p1);

/* The panels of a matrix that is divided among NUMA nodes: each node's lie in its own memory, beside its panels of
 * other matrices. */
typedef struct ek_linear_parts {
    int first[EK_MAX_NODES + 1]; /* panels of node j: [first[j], first[j + 1]) */
    uint8_t *data[EK_MAX_NODES]; /* address of panel first[j] */
} ek_linear_parts;

/* A packed matrix of n outputs and k inputs. Filled by ek_linear_plan, memory by the caller.
 * The bytes of a panel: ops/linear/linear_layout.h. */
struct ek_linear {
    ek_wform form;
    int n, k;
    int n_panels;         /* (n + 15) / 16; the outputs past n are zeros */
    int group;            /* Q: weights that share a scale: 16 (PLANES), 32, 64, 128; divides k. F: 0 */
    int a_group;          /* Q: activations that share a scale: 16 or 32 if group is, else 64. F: 0 */
    int bits;             /* Q: 2, 3, 4, 5, 6, 8 as stored in the checkpoint */
    int zero;             /* Q: 2^(bits-1); 128 of a codebook */
    int limbs;            /* Q: int8 limbs of an activation: 1 (the plan's) or 2 */
    bool biased;          /* Q: false if the format's groups are symmetric */
    ek_dtype scale_dtype; /* Q: BF16 or F32; PLANES: F16 */
    int block;            /* PLANES: inputs of a block, see ops/linear/planes.h; divides k */
    ek_wscale scale;      /* PLANES */
    const int8_t *book;   /* PLANES: centred codes by index, static; NULL: codes are numbers */
    size_t panel_bytes;   /* from one panel to the next; a multiple of 64 */
    size_t bytes;         /* n_panels * panel_bytes */
    uint8_t *data;        /* 64-byte aligned */
    ek_linear_fn *run;    /* chosen by the plan from cpu and form; its kernels may differ by rows, no bit does */
    /* borrowed, instead of data; NULL: all panels lie consecutively at data */
    const ek_linear_parts *parts;
};

/* The form in which a matrix of Form Q reads the rows of x: a part of its product's definition. Not for Form F. A
 * model's choice: model/weights/role.h. */
typedef struct ek_act_form {
    int limbs; /* int8 limbs of an activation: 1, the high one, or 2 */
    int group; /* activations that share a scale: 32 or 64, at most the weights' group; PLANES: as planned */
} ek_act_form;

/* Lays out an n x k matrix of a type; data stays NULL. Activations have one limb, in groups of 16 or 32 for weights in
 * groups of 16 or 32, else 64. EINVAL with both shapes if the type cannot hold the matrix (k is not whole blocks, n or
 * k outside [1, EK_LINEAR_MAX]). EUNSUPPORTED for a group without a kernel; such a type can still be planned as F32 and
 * packed widened. */
ek_err ek_linear_plan(ek_linear *w, unsigned cpu, int n, int k, const ek_weight_type *type);
/* Replaces the plan's activation form; call it at most once, after the plan. EINVAL if w is not Form Q or has no such
 * form. The effect of each form on a model's answer: docs/NUMERICS.md 10. */
ek_err ek_linear_set_acts(ek_linear *w, ek_act_form acts);

/* The first panel of a node of the pool, whose threads decide the division; w->n_panels for the node after the last. A
 * product's tasks go to the threads of their node first. */
int ek_linear_node_panel(const ek_linear *w, const ek_pool *pool, int node);

/* Packs all rows of src as rows [row, row + src->n) of w. Rows may be packed in any order, and by
 * several threads that split at multiples of 16; the call that packs row n - 1 also zeroes the
 * outputs past n. A matrix of form F32 takes every type, widened as ek_weight_row does (for models
 * that run without quantised activations); others take the type they were planned for. EINVAL
 * where a conversion would round or the rows do not fit. */
ek_err ek_linear_pack(ek_linear *w, int row, const ek_weight_data *src);

/* The first of n packed rows from `row` on, a multiple of 16, with an infinite or NaN scale, bias or (Form F) weight;
 * -1: none. A model with one would give plausible but wrong answers, because attention takes such scores for hidden
 * keys. */
int ek_linear_odd_row(const ek_linear *w, int row, int n);

/* out[0..k) = the weights of a row of w as the formula uses them: Form F the value, Form Q fma(s, (float)u, b)
 * with the unsigned code u, or s * (float)c if not biased. */
void ek_linear_row(const ek_linear *w, int row, float *out);

/* A group of activations of a quantised row, in the form for one limb or for two. */
typedef struct ek_act_group {
    float sx;      /* two limbs: the group's scale; one limb: 256 times that */
    float sum;     /* X: two limbs: the sum of q; one limb: the sum of h; exact */
    int32_t start; /* -8 * X: stored codes are c + 8 or c + 128 */
    /* The same for sums in 16 bits, modulo 2^16: bits 0 to 15 over the inputs with k % 4 < 2, 16 to 31 over the others.
     * One limb: -8 times the sum of h. Two limbs: -8 times the sum of l, less EK_ACT_LOWER. */
    int32_t starts;
} ek_act_group;
enum { EK_ACT_LOWER = 128 }; /* keeps a sum of 32 products c * l, which may be 32768, within 16 bits */

/* `starts` from the limb's sums over k % 4 < 2 and over the others. */
static inline int32_t ek_act_starts(int32_t first, int32_t second, int32_t lower)
{
    return (int32_t)(((uint32_t)(-8 * first - lower) & 0xffff) | (uint32_t)(-8 * second - lower) << 16);
}

/* Rows as a linear layer reads them. x is borrowed; the rest is the caller's memory of
 * ek_acts_bytes(), needed for Form Q only. Rows that are quantised for two limbs serve matrices of one limb as well.
 * A quantised row is one record, so that a kernel holds one address per row:
 *     h      k bytes, rounded up to 64
 *     l      the same, at `low`
 *     groups for one limb, at `groups[0]`, and for two, at `groups[1]` */
typedef struct ek_acts {
    const float *x;
    ptrdiff_t ldx; /* elements */
    int rows, k;
    int a_group, limbs;            /* how the rows are quantised; a_group 0: not quantised */
    int8_t *q;                     /* the records */
    ptrdiff_t ldq, low, groups[2]; /* bytes: between records, and in one */
    const int32_t *index;          /* a view: row r here is row index[r] above; NULL: row r */
} ek_acts;

/* Bytes for `rows` rows of k, whatever the group; memory must be 64-byte aligned. */
size_t ek_acts_bytes(int rows, int k);
/* Sets up a over mem and x, both borrowed; quantises nothing yet (a->a_group = 0). mem NULL: Form F only. */
void ek_acts_bind(ek_acts *a, void *mem, const float *x, ptrdiff_t ldx, int rows, int k);
/* A view of n rows of a, in the order of index (borrowed): the tokens of one expert. Quantise a first:
 * views are never quantised themselves. A view copies nothing; kernels read through the index. */
ek_acts ek_acts_pick(const ek_acts *a, const int32_t *index, int n);

static inline ptrdiff_t ek_acts_row(const ek_acts *a, int r)
{
    return a->index ? a->index[r] : r;
}

/* The record of row r, of a or of the view a, and its groups for a matrix of that many limbs. */
static inline const int8_t *ek_acts_record(const ek_acts *a, int r)
{
    return a->q + ek_acts_row(a, r) * a->ldq;
}

static inline const ek_act_group *ek_acts_groups(const ek_acts *a, int r, int limbs)
{
    return (const ek_act_group *)(const void *)(ek_acts_record(a, r) + a->groups[limbs - 1]);
}

/* Element k of row r for a matrix of that many limbs: h, or q. */
static inline int ek_acts_code(const ek_acts *a, int r, int k, int limbs)
{
    const int8_t *h = ek_acts_record(a, r) + k;
    return limbs == 1 ? *h : 256 * *h + h[a->low];
}

/* Quantises one row in groups of a_group (16, 32 or 64; a short last group is allowed, its absent
 * codes are 0): amax = max |x|; amax < 2^-100: sx = 0, q = 0; else sx = amax / 32512,
 * inv = 32512 / amax, q = rne(x * inv), |q| <= 32512 = 127 * 256. A group with an infinity or NaN
 * gets sx = NaN and q = 0, so that the output is NaN. h = (q + 128) >> 8 (arithmetic: floor) in [-127, 127],
 * l = q - 256 h in [-128, 127]. h and l have room for whole
 * groups. one: 256 sx and the sums of h; two: sx and the sums of q. l
 * and two NULL: for matrices of one limb alone. */
typedef void ek_quantize_fn(const float *x, int k, int a_group, int8_t *h, int8_t *l, ek_act_group *one,
                            ek_act_group *two);

/* Quantises elements [from, from + n) of row r of a (no view), which are x; from is a multiple of the group, and so is
 * n unless it reaches the row's end. The caller sets a's form once all of a is quantised. */
static inline void ek_acts_quantize_part(ek_quantize_fn *fn, const ek_acts *a, int r, int from, int n, const float *x,
                                         ek_act_form form)
{
    int8_t *row = a->q + r * a->ldq, *h = row + from;
    const ptrdiff_t group = from / form.group * (ptrdiff_t)sizeof(ek_act_group);
    const bool both = form.limbs == 2;
    fn(x, n, form.group, h, both ? h + a->low : NULL, (ek_act_group *)(void *)(row + a->groups[0] + group),
       both ? (ek_act_group *)(void *)(row + a->groups[1] + group) : NULL);
}

static inline void ek_acts_quantize_row(ek_quantize_fn *fn, const ek_acts *a, int r, ek_act_form form)
{
    ek_acts_quantize_part(fn, a, r, 0, a->k, a->x + r * a->ldx, form);
}

/* Adds w to the readers of rows. form {0}: none yet. An absent matrix, Form F and other groups change nothing: for the
 * latter the rows are quantised again. */
static inline void ek_acts_add_reader(ek_act_form *form, const ek_linear *w)
{
    if (!w->a_group || (form->group && form->group != w->a_group)) return;
    form->group = w->a_group;
    if (form->limbs < w->limbs) form->limbs = w->limbs;
}

typedef struct ek_linear_ops {
    ek_quantize_fn *quantize_row;
    ek_linear_fn *run[EK_WFORM_COUNT];
} ek_linear_ops;
void ek_linear_init(ek_linear_ops *ops, unsigned cpu); /* the scalar definition, then the kernels that cpu allows */
/* The kernels: of x86-64, */
ek_quantize_fn ek_quantize_row_avx2, ek_quantize_row_avx512;
ek_linear_fn ek_linear_f32_avx2, ek_linear_f16_avx2, ek_linear_bf16_avx2, ek_linear_q4_avx2, ek_linear_q8_avx2,
    ek_linear_planes_avx2;
ek_linear_fn ek_linear_q4_avxvnni, ek_linear_q8_avxvnni, ek_linear_planes_avxvnni;
ek_linear_fn ek_linear_f32_avx512, ek_linear_f16_avx512, ek_linear_bf16_avx512, ek_linear_q4_avx512,
    ek_linear_q8_avx512, ek_linear_planes_avx512;
/* EK_CPU_ZEN4. The one of PLANES leaves types without its kernels to the next, of a panel at a time. */
ek_linear_fn ek_linear_q4_avx512_zen4, ek_linear_q8_avx512_zen4, ek_linear_planes_avx512_zen4,
    ek_linear_planes_avx512_zen4_panels;
ek_linear_fn ek_linear_q4_amx, ek_linear_q8_amx, ek_linear_planes_amx;
/* and of 64-bit Arm; q: Q4 and Q8. */
ek_quantize_fn ek_quantize_row_neon;
ek_linear_fn ek_linear_q_dotprod, ek_linear_q_i8mm;

/* Quantises all rows of a for w; does nothing for Form F or if they are quantised so. */
void ek_acts_quantize_for(const ek_linear_ops *ops, ek_pool *pool, ek_acts *a, const ek_linear *w);
/* The same for all readers that were added to form. */
void ek_acts_quantize_as(const ek_linear_ops *ops, ek_pool *pool, ek_acts *a, ek_act_form form);

/* y = x w^T for all rows and panels, spread over the pool; quantises x first if w needs it.
 * ldy, in elements, is at least n; exactly n elements per row are written. */
void ek_linear_forward(const ek_linear_ops *ops, ek_pool *pool, const ek_linear *w, ek_acts *x, float *y,
                       ptrdiff_t ldy);

enum { EK_GATE_OUTPUTS = 64, EK_GATE_ROWS = 128, EK_GATE_FLOATS = 2 * EK_GATE_ROWS * EK_GATE_OUTPUTS };

/* The gate of a product g: gelu_tanh(g) * u is quantised into rows of `out`, and neither g nor u is written to memory.
 * A task has EK_GATE_OUTPUTS outputs of both, which any group of form divides. u is another product of the same rows,
 * or exists already. */
typedef struct ek_linear_gate {
    const ek_linear *up; /* with w's number of outputs, inputs and inputs per group; NULL: u is `factor` */
    const float *factor; /* floats; row r begins at r * ldf */
    ptrdiff_t ldf;
    void (*gelu_mul)(float *y, const float *g, const float *u, int n); /* of ek_row_ops */
    ek_acts *out; /* k: the outputs of w; x is not read. The run sets its form at the end */
    int row;      /* row of out for row 0 of the job */
    ek_act_form form;
    float *space; /* EK_GATE_FLOATS per thread of the pool */
} ek_linear_gate;

/* Several products in one parallel region: matrices that read the same rows (q, k, v; gate,
 * up), or experts that read views of them. Rows are written as in x: row r of a view is row r
 * of y. x with no rows is allowed. */
typedef struct ek_linear_job {
    const ek_linear *w;
    ek_acts *x;
    float *y;
    ptrdiff_t ldy;
    const ek_linear_gate *gate; /* instead of y and ldy, or NULL */
    int panels, rows;           /* written by ek_linear_run: the size of a task */
    int tasks[EK_MAX_NODES];    /* and the end of each node's tasks */
} ek_linear_job;
void ek_linear_run(const ek_linear_ops *ops, ek_pool *pool, int n, ek_linear_job *job);

#endif
