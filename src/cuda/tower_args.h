/* The arguments of the kernels of towers for images and sounds, under the rules of cuda/args.h. */
#ifndef EK_CUDA_TOWER_ARGS_H
#define EK_CUDA_TOWER_ARGS_H

#include "cuda/args.h"

/* ek_attn_tensors_COLS: attention of `rows` rows over `keys` keys; every row sees all keys (ops/attn/attn_tensors.h,
 * Form A, scale 1); COLS: 32, 64, 72 or 128, at least dim. The result is then clamped to clip. Any grid (x), 128
 * threads, EK_CUDA_TENSORS_SHARED(COLS) bytes; stack: `levels` nodes of EK_CUDA_TENSORS_NODE(COLS) bytes per block. */
enum { EK_CUDA_TENSORS_TILE = 64 };
#define EK_CUDA_TENSORS_SLOT(cols)   ((cols) > 65 ? 32 * (cols) : 2080)
#define EK_CUDA_TENSORS_SHARED(cols) (4 * (3 * EK_CUDA_TENSORS_SLOT(cols) + 64 * (cols) + 64 * 256 + 128))
#define EK_CUDA_TENSORS_NODE(cols)   (((cols) / 8 + 4) * 128 * 16)

typedef struct ek_cuda_tensors_args {
    ek_cuda_ptr q, k, v, o; /* f32, heads of dim elements in a row */
    int64_t ldq, ldk, ldv, ldo;
    ek_cuda_ptr stack;
    int32_t heads, kv_heads, rows, keys, dim, levels;
    float clip[2];
} ek_cuda_tensors_args;

/* ek_attn_tensors_int_COLS: the same in integers (ops/attn/attn_int.h, keys and values in i12); each row sees all rows;
 * COLS: 64, 96 or 128. Any grid (x), 256 threads, and as much shared memory as a segment's keys and values; stack:
 * `levels` nodes of EK_CUDA_TENSORS_INT_NODE(dim) bytes per block. codes: written by ek_tensors_codes from q, k and v;
 * its grid (padded rows / 8, heads + 2 kv_heads), 256 threads, rows padded to whole segments. */
#define EK_CUDA_TENSORS_INT_STEPS(dim) ((dim) <= 64 ? 2 : (dim) <= 96 ? 3 : 4)         /* of 32 dims */
#define EK_CUDA_TENSORS_INT_K(dim)     (EK_CUDA_TENSORS_INT_STEPS(dim) * 16384 + 1024) /* bytes of a segment */
#define EK_CUDA_TENSORS_INT_V(dim)     (((dim) + 7) / 8 * 4096 + 1024)
#define EK_CUDA_TENSORS_INT_NODE(dim)  ((((dim) + 7) / 8 + 2) * 128 * 16)

typedef struct ek_cuda_tensors_int_args {
    ek_cuda_ptr q, k, v, o; /* f32, heads of dim elements in a row */
    int64_t ld, ldo;        /* ld: of q, k and v */
    ek_cuda_ptr codes, stack;
    int32_t heads, kv_heads, rows, dim, levels, unused;
    float clip[2];
} ek_cuda_tensors_int_args;

/* The row kernels between the products of a tower (kernels/rows/tower.cu): row operators of ops/rows/rows.h. A row by a
 * block of 32 threads per 256 elements; rows of up to EK_CUDA_TOWER_WIDTH elements. A clip clamps elements to [0] and
 * [1], like ek_row_ops.clamp; infinities: no clip. */
enum { EK_CUDA_TOWER_WIDTH = 8192, EK_CUDA_TOWER_INPUTS = 3 };

/* ek_tower_patch: patches of a picture with `across` patches per line. x[p][i] = value[sample i of patch p]; a patch is
 * side x side pixels of 3 samples. grid (ceil(3 side side / 256), patches), 256 threads. */
typedef struct ek_cuda_patch_args {
    ek_cuda_ptr x, rgb, value; /* value: 256 floats */
    int64_t ldx;
    int32_t side, across;
} ek_cuda_patch_args;

/* ek_tower_stage. With y: y = clip(y, y_clip); with y_norm y = norm(y, y_norm); h = fma(factor, y, h). Without y but
 * with column and line: h = h + (column[p % across] + line[p / across]) for row p. With h_norm: h = norm(h clamped to
 * limit, h_norm). Then x[i] = clip(norm(h clamped to limit, x_norm), x_clip[i]) for i < n_x. */
typedef struct ek_cuda_tower_stage_args {
    ek_cuda_ptr h, y, y_norm, h_norm, x_norm, x[EK_CUDA_TOWER_INPUTS], column, line;
    int64_t ld; /* of all */
    float y_clip[2], x_clip[EK_CUDA_TOWER_INPUTS][2];
    float limit, factor;
    float eps, x_eps; /* eps: for y_norm and h_norm; x_eps: for x_norm */
    int32_t n, n_x, across;
} ek_cuda_tower_stage_args;

/* ek_tower_norms: makes a row of y from a row of x (which may be y), by the steps that are given: + bias; layer norm
 * with w[0] and b[0], if any; + (column[p % across] + line[p / across]) for row p; layer norm with w[1], b[1]; a norm
 * without weights (rms); clamp to clip. One block per row. */
typedef struct ek_cuda_tower_norms_args {
    ek_cuda_ptr y, x, bias, w[2], b[2], column, line;
    int64_t ldy, ldx;
    float clip[2], ln_eps, eps;
    int32_t n, across, layer_norms /* 0 to 2 */, rms;
} ek_cuda_tower_norms_args;

/* Elements per thread of kernels that work element by element. */
enum { EK_CUDA_TOWER_EACH = 4 };

/* ek_tower_windows: the 3 x 3 windows with stride 2 of a map of rows x cols x channels, cols even: per row 2 t and
 * column 2 f, 9 channels floats of y, with zeros beyond the map. grid (ceil(cols / 2 9 channels / 1024), ceil(rows /
 * 2)), 256 threads. */
typedef struct ek_cuda_tower_windows_args {
    ek_cuda_ptr y, x;
    int32_t rows, cols, channels, unused;
} ek_cuda_tower_windows_args;

/* ek_tower_taps: a depthwise convolution over a row and the rows before it: y[p] = the sum over j < taps, in ascending
 * order, of fma(tap[j], x[p - taps + 1 + j], sum), without rows before the first; then clamp to limit, norm with
 * weights, y = y sigmoid(y), clip. One block per row. */
typedef struct ek_cuda_tower_taps_args {
    ek_cuda_ptr y, x, tap, norm;
    int64_t ld; /* elements from row to row of y and x; tap has n */
    float clip[2], limit, eps;
    int32_t n, taps;
} ek_cuda_tower_taps_args;

/* ek_attn_near: attention over the keys near a query (ops/attn/attn_near.h), for `rows` rows of heads x dim. First q, k
 * and v are clamped to their bounds; then queries are multiplied by q_scale (heads x dim), keys by k_scale. o is
 * clamped to its own bounds. grid (ceil(rows / EK_CUDA_NEAR_QUERIES), heads), 16 threads per query,
 * EK_CUDA_NEAR_SHARED(span) bytes. */
enum { EK_CUDA_NEAR_QUERIES = 16, EK_CUDA_NEAR_MAX_DIM = 256 };
#define EK_CUDA_NEAR_SHARED(span) (EK_CUDA_NEAR_QUERIES * (size_t)(span)*4)

typedef struct ek_cuda_near_args {
    ek_cuda_ptr o, q, k, v, rel, q_scale; /* rel: span rows of heads x dim */
    int64_t ldo, ld;                      /* ld: of q, k and v */
    float q_clip[2], k_clip[2], v_clip[2], o_clip[2], k_scale, cap;
    int32_t heads, dim, span, rows;
} ek_cuda_near_args;

/* ek_tower_heads, in place: elements are clamped to clips. Then heads of queries and keys are normed with weights and
 * rotated: their first half by cos and sin of the column, their second half by those of the line (tables of dim / 4 per
 * position). Values are normed without weights. grid (rows), EK_CUDA_TOWER_HEADS_THREADS; dim up to 128. */
enum { EK_CUDA_TOWER_HEADS_THREADS = 256 };

typedef struct ek_cuda_tower_heads_args {
    ek_cuda_ptr q, k, v, q_norm, k_norm, cos, sin;
    int64_t ld; /* elements from row to row of q, k and v */
    float clip[3][2];
    float eps;
    int32_t heads, kv_heads, dim, across;
} ek_cuda_tower_heads_args;

/* ek_tower_gate: y = clip(gelu(clip(g, g_clip)) * clip(u, u_clip), y_clip); with `sigmoid`, sigmoid instead of gelu
 * (ek_row_ops.sigmoid_mul); y may be g, and g may be u. grid (ceil(n / 1024), rows), 256 threads. */
typedef struct ek_cuda_tower_gate_args {
    ek_cuda_ptr y, g, u;
    int64_t ldy, ld; /* ld: of g and u */
    float g_clip[2], u_clip[2], y_clip[2];
    int32_t n, sigmoid;
} ek_cuda_tower_gate_args;

/* ek_tower_pool: x[t] = norm((sum over a token's side x side patches of fma(share, h, sum)) times factor), with bias (x
 * - bias) * scale before the norm, which has no weights. One block per token. */
typedef struct ek_cuda_tower_pool_args {
    ek_cuda_ptr x, h, bias, scale;
    int64_t ldx, ldh;
    float share, factor, eps;
    int32_t n, side, across; /* across: patches per line */
} ek_cuda_tower_pool_args;

#endif
