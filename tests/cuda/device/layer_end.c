/* The end of a layer with per-layer inputs in one launch against the scalar definitions of ops/rows/rows.c and
 * ops/linear/linear.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/device_pack.h"
#include "cuda/rows/launch.h"
#include "ops/rows/rows.h"
#include "linear.h"

enum { MAX_ROWS = 8 };

typedef struct end {
    dev *d;
    int n, size;
    ek_linear gate, proj, next; /* next: quantises x */
    ek_cuda_linear gate_at, proj_at, next_at;
    float *h, *y, *u, *y_norm, *post_norm, *x_norm, scalar;
    float *want_h, *want_x;
    void *mem, *mem_g, *mem_x;
    ek_acts want;
} end;

static float *floats(int n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) x[i] = uniform(seed, (uint64_t)i);
    return x;
}

static CUdeviceptr pack(dev *d, const ek_cuda_linear *l, const ek_linear *w)
{
    uint8_t *packed = calloc(1, l->bytes);
    device_pack(l, w, packed, 0, l->n_panels);
    CUdeviceptr at = up(d, packed, l->bytes);
    free(packed);
    return at;
}

/* What the CPU makes of MAX_ROWS rows. */
static void expect(end *e, bool scaled)
{
    const int n = e->n, size = e->size;
    ek_row_ops rows;
    ek_linear_ops ops;
    ek_row_init(&rows, 0);
    ek_linear_init(&ops, 0);
    float *g = malloc(sizeof *g * MAX_ROWS * (size_t)size), *p = malloc(sizeof *p * MAX_ROWS * (size_t)n);
    ek_acts acts, acts_g;
    for (int r = 0; r < MAX_ROWS; r++) {
        float *h = e->want_h + r * n;
        memcpy(h, e->h + r * n, sizeof *h * (size_t)n);
        rows.rms_norm(p, e->y + r * n, e->y_norm, n, 1e-6f);
        rows.add(h, p, n);
    }
    ek_acts_bind(&acts, e->mem, e->want_h, n, MAX_ROWS, n);
    quantize_both(e->d, &acts, &e->gate);
    ek_linear_forward(&ops, e->d->pool, &e->gate, &acts, g, size);
    for (int r = 0; r < MAX_ROWS; r++) rows.gelu_mul(g + r * size, g + r * size, e->u + r * size, size);
    ek_acts_bind(&acts_g, e->mem_g, g, size, MAX_ROWS, size);
    quantize_both(e->d, &acts_g, &e->proj);
    ek_linear_forward(&ops, e->d->pool, &e->proj, &acts_g, p, n);
    for (int r = 0; r < MAX_ROWS; r++) {
        float *h = e->want_h + r * n;
        rows.rms_norm(p + r * n, p + r * n, e->post_norm, n, 1e-6f);
        rows.add(h, p + r * n, n);
        if (scaled) rows.scale(h, e->scalar, n);
        rows.rms_norm(e->want_x + r * n, h, e->x_norm, n, 1e-6f);
    }
    ek_acts_bind(&e->want, e->mem_x, e->want_x, n, MAX_ROWS, n);
    quantize_both(e->d, &e->want, &e->next);
    ek_linear_forward(&ops, e->d->pool, &e->next, &e->want, p, 16);
    free(g), free(p);
}

static void compare(end *e, CUdeviceptr gate, CUdeviceptr proj, const CUdeviceptr *norm, int rows, bool scaled,
                    bool quantised)
{
    char name[120];
    const size_t n = (size_t)e->n, bytes = sizeof(float) * n * (size_t)rows;
    ek_cuda_product p;
    ek_cuda_layer_end_args a = {0};
    if (!ek_cuda_layer_end_plan(&p, &a, &e->gate_at, &e->proj_at, &e->next_at, rows, ek_cuda_chip_of(e->d->c))) {
        printf("FAIL no kernel ends a layer of %d with %d\n", e->n, e->size);
        e->d->failed++;
        return;
    }
    const size_t record = ek_cuda_acts_plan(&a.to, e->n, e->next_at.a_group);
    a.h = up(e->d, e->h, bytes), a.y = up(e->d, e->y, bytes), a.x = up(e->d, NULL, bytes);
    a.u = up(e->d, e->u, sizeof(float) * (size_t)rows * (size_t)e->size);
    if (quantised) a.to.q = up(e->d, NULL, record * (size_t)rows);
    a.y_norm = norm[0], a.post_norm = norm[1], a.x_norm = norm[2], a.scalar = scaled ? norm[3] : 0;
    a.gate = gate, a.gate_scales = gate + e->gate_at.code_bytes;
    a.proj = proj, a.proj_scales = proj + e->proj_at.code_bytes;
    a.ld = e->n, a.ldu = e->size, a.eps = 1e-6f;
    ek_cuda_kernel kernel = find(e->d, p.name, p.grid.shared);
    must(ek_cuda_allow_cluster(e->d->c, &kernel));
    launch(e->d, &kernel, p.grid, &a);
    snprintf(name, sizeof name, "end of a layer of %d with %d, %d rows by %s", e->n, e->size, rows, p.name);
    same(e->d, e->want_h, down(e->d, a.h, bytes), bytes, true, "h of %s", name);
    same(e->d, e->want_x, down(e->d, a.x, bytes), bytes, true, "x of %s", name);
    if (quantised) compare_rows(e->d, &e->want, &a.to, rows, name);
    drop(e->d, a.h), drop(e->d, a.y), drop(e->d, a.x), drop(e->d, a.u), drop(e->d, a.to.q);
}

/* next_type: GGUF's type of the matrix behind, where gguf is that of the others. */
static void test_shape(dev *d, int n, int size, int limbs, bool odd, const char *next_type)
{
    end e = {.d = d, .n = n, .size = size, .scalar = 0.4375f};
    shape gate = {size, n, 4, 64, 64, limbs, EK_BF16, true}, proj = {n, size, 4, 64, 64, limbs, EK_BF16, true},
          next = {16, n, 4, 64, 64, 1, EK_BF16, true};
    open_weights(&e.gate, &gate, 1), open_weights(&e.proj, &proj, 2);
    if (gguf) gguf = next_type;
    open_weights(&e.next, &next, 3);
    must(ek_cuda_linear_plan(&e.next_at, &e.next));
    must(ek_cuda_linear_plan(&e.gate_at, &e.gate));
    must(ek_cuda_linear_plan(&e.proj_at, &e.proj));
    e.h = make_rows(MAX_ROWS, n, odd), e.y = make_rows(MAX_ROWS, n, false), e.u = floats(MAX_ROWS * size, 21);
    e.y_norm = floats(n, 22), e.post_norm = floats(n, 23), e.x_norm = floats(n, 24);
    e.want_h = malloc(sizeof(float) * MAX_ROWS * (size_t)n), e.want_x = malloc(sizeof(float) * MAX_ROWS * (size_t)n);
    e.mem = aligned_alloc(64, ek_acts_bytes(MAX_ROWS, n)), e.mem_g = aligned_alloc(64, ek_acts_bytes(MAX_ROWS, size));
    e.mem_x = aligned_alloc(64, ek_acts_bytes(MAX_ROWS, n));
    const size_t bytes = sizeof(float) * (size_t)n;
    const CUdeviceptr norm[4] = {up(d, e.y_norm, bytes), up(d, e.post_norm, bytes), up(d, e.x_norm, bytes),
                                 up(d, &e.scalar, sizeof e.scalar)},
                      w = pack(d, &e.gate_at, &e.gate), w2 = pack(d, &e.proj_at, &e.proj);
    for (int scaled = 0; scaled < 2; scaled++) {
        expect(&e, scaled);
        for (int rows = 1; rows <= MAX_ROWS; rows += cases(d, 7, 3, 1))
            compare(&e, w, w2, norm, rows, scaled, scaled || rows % 2);
    }
    for (int i = 0; i < 4; i++) drop(d, norm[i]);
    drop(d, w), drop(d, w2);
    free(e.h), free(e.y), free(e.u), free(e.y_norm), free(e.post_norm), free(e.x_norm), free(e.want_h), free(e.want_x);
    free(e.mem), free(e.mem_g), free(e.mem_x), free(e.gate.data), free(e.proj.data), free(e.next.data);
}

void test_layer_end(dev *d)
{
    if (!ek_cuda_chip_of(d->c)->clusters) return; /* which its blocks are */
    static const struct {
        int n, size;
    } c[] = {{128, 64}, {192, 64}, {1536, 256}, {1088, 128}, {2560, 256}, {2048, 512}};
    for (int i = 0; i < cases(d, 1, 3, 6); i++)
        for (int limbs = 1; limbs <= 2; limbs++) test_shape(d, c[i].n, c[i].size, limbs, i % 2, NULL);
    static const char *const types[][2] = {{"q4_0", "q4_0"}, {"q8_0", "q4_0"}, {"q4_k", "q4_k"},
                                           {"q5_k", "q4_k"}, {"q6_k", "q4_0"}, {"q6_k", "q6_k"}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int i = 0; i < (d->quick ? 1 : 2); i++)
            for (int limbs = 1; limbs <= 2; limbs++) {
                const bool six = !strcmp(types[t][0], "q6_k"); /* its kernels are of two limbs */
                if (d->few && t % 3) continue;
                if (d->quick ? limbs != (six ? 2 : 1 + (int)t % 2) : six && limbs == 1) continue;
                gguf = types[t][0]; /* groups of the last two have 256 inputs */
                test_shape(d, i ? 2560 : 512, 256, limbs, t % 2, types[t][1]);
                gguf = NULL;
            }
}

/* --- a chain of layers' down, end, and q: by four launches, or by one */

enum { LAYERS = 35 };

typedef struct chain {
    dev *d;
    ek_cuda_linear down, gate, proj, q;
    ek_cuda_product p_down, p_gate, p_proj, p_q, p_end;
    ek_cuda_kernel down_k, gate_k, proj_k, q_k, stage_k, end_k;
    CUdeviceptr w[4]; /* [LAYERS] matrices each */
    CUdeviceptr norm, h, y, x, u, out;
    ek_cuda_acts wide, a, g;
    ek_cuda_layer_end_args end;
    int rows, n;
    enum { NO_END, BY_FOUR, BY_ONE } ends;
} chain;

static ek_cuda_linear random_layers(dev *d, int n, int k, int limbs, CUdeviceptr *at)
{
    shape s = {n, k, 4, 64, 64, limbs, EK_BF16, true};
    ek_linear w;
    ek_cuda_linear l;
    open_weights(&w, &s, 1);
    must(ek_cuda_linear_plan(&l, &w));
    uint8_t *packed = calloc(1, l.bytes);
    device_pack(&l, &w, packed, 0, l.n_panels);
    *at = up(d, NULL, l.bytes * LAYERS);
    for (int i = 0; i < LAYERS; i++) must(ek_cuda_upload(d->c, *at + (CUdeviceptr)i * l.bytes, packed, l.bytes));
    must(ek_cuda_sync(d->c));
    free(packed), free(w.data);
    return l;
}

static void project(chain *c, const ek_cuda_linear *l, const ek_cuda_product *p, const ek_cuda_kernel *k, CUdeviceptr w,
                    const ek_cuda_acts *in, CUdeviceptr y)
{
    ek_cuda_linear_args a = {.x = *in, .y = y, .ldy = l->n, .rows = c->rows, .share = p->share, .slots = p->slots};
    ek_cuda_linear_args_of(&a, l, w);
    launch(c->d, k, p->grid, &a);
}

static void stage(chain *c, CUdeviceptr x)
{
    ek_cuda_stage_args a = {.h = c->h, .y = c->y, .y_norm = c->norm, .ld = c->n, .n = c->n, .eps = 1e-6f, .to = c->a};
    if (x) a.x = x, a.x_norm = c->norm, a.scalar = c->norm;
    launch(c->d, &c->stage_k,
           (ek_cuda_grid){.x = (unsigned)c->rows, .threads = (unsigned)(c->n + 255) / 256 * 32, .overlap = true}, &a);
}

static void queue_layer(void *arg, int i)
{
    chain *c = arg;
    const CUdeviceptr gate = c->w[1] + (CUdeviceptr)i * c->gate.bytes, proj = c->w[2] + (CUdeviceptr)i * c->proj.bytes;
    project(c, &c->down, &c->p_down, &c->down_k, c->w[0] + (CUdeviceptr)i * c->down.bytes, &c->wide, c->y);
    if (c->ends == BY_ONE) {
        c->end.gate = gate, c->end.gate_scales = gate + c->gate.code_bytes;
        c->end.proj = proj, c->end.proj_scales = proj + c->proj.code_bytes;
        launch(c->d, &c->end_k, c->p_end.grid, &c->end);
    } else if (c->ends == BY_FOUR) {
        ek_cuda_warp_args a = {.a = {.x = c->a, .rows = c->rows, .share = c->p_gate.share, .slots = c->p_gate.slots},
                               .u = c->u,
                               .ldu = c->gate.n,
                               .to = c->g};
        stage(c, 0);
        ek_cuda_linear_args_of(&a.a, &c->gate, gate);
        launch(c->d, &c->gate_k, c->p_gate.grid, &a);
        project(c, &c->proj, &c->p_proj, &c->proj_k, proj, &c->g, c->y);
        stage(c, c->x);
    }
    project(c, &c->q, &c->p_q, &c->q_k, c->w[3] + (CUdeviceptr)i * c->q.bytes, &c->a, c->out);
}

static void time_chain(dev *d, int n, int inter, int rows)
{
    const int size = 256;
    const ek_cuda_chip *chip = ek_cuda_chip_of(d->c);
    const size_t row = sizeof(float) * (size_t)n * MAX_ROWS, max = 220 << 10;
    chain c = {.d = d, .rows = rows, .n = n};
    c.down = random_layers(d, n, inter, 1, &c.w[0]), c.gate = random_layers(d, size, n, 2, &c.w[1]);
    c.proj = random_layers(d, n, size, 2, &c.w[2]), c.q = random_layers(d, 2048, n, 1, &c.w[3]);
    c.p_down = ek_cuda_warp_plan(&c.down, rows, 0, EK_CUDA_GATE_NONE, chip);
    c.p_gate = ek_cuda_warp_plan(&c.gate, rows, 0, EK_CUDA_GATE_ROW, chip);
    c.p_proj = ek_cuda_warp_plan(&c.proj, rows, 0, EK_CUDA_GATE_NONE, chip);
    c.p_q = ek_cuda_warp_plan(&c.q, rows, 0, EK_CUDA_GATE_NONE, chip);
    c.down_k = find(d, c.p_down.name, max), c.gate_k = find(d, c.p_gate.name, max);
    c.proj_k = find(d, c.p_proj.name, max), c.q_k = find(d, c.p_q.name, max);
    c.stage_k = find(d, "ek_stage", 0);
    float *zeros = calloc(1, row);
    c.norm = up(d, zeros, row), c.h = up(d, zeros, row), c.y = up(d, zeros, row), c.x = up(d, zeros, row);
    c.u = up(d, zeros, row), c.out = up(d, zeros, 2 * row);
    c.wide.q = 0, c.a.q = c.g.q = 0;
    size_t bytes = ek_cuda_acts_plan(&c.wide, inter, 64) * MAX_ROWS;
    c.wide.q = up(d, NULL, bytes), must(ek_cuda_fill(d->c, c.wide.q, 0, bytes));
    bytes = ek_cuda_acts_plan(&c.a, n, 64) * MAX_ROWS, c.a.q = up(d, NULL, bytes);
    bytes = ek_cuda_acts_plan(&c.g, size, 64) * MAX_ROWS, c.g.q = up(d, NULL, bytes);
    ek_cuda_layer_end_args *e = &c.end;
    if (!ek_cuda_layer_end_plan(&c.p_end, e, &c.gate, &c.proj, &c.q, rows, ek_cuda_chip_of(d->c))) return;
    e->h = c.h, e->y = c.y, e->x = c.x, e->u = c.u, e->ldu = size, e->ld = n, e->eps = 1e-6f, e->to = c.a;
    e->y_norm = e->post_norm = e->x_norm = e->scalar = c.norm;
    c.end_k = find(d, c.p_end.name, c.p_end.grid.shared);
    must(ek_cuda_allow_cluster(d->c, &c.end_k));
    c.ends = NO_END;
    const double without = time_us(d, queue_layer, &c, LAYERS);
    c.ends = BY_FOUR;
    const double four = time_us(d, queue_layer, &c, LAYERS);
    c.ends = BY_ONE;
    printf("a layer of %d, %d rows, us: down and q %.2f, with four launches between %.2f, with one %.2f\n", n, rows,
           without, four, time_us(d, queue_layer, &c, LAYERS));
    for (int i = 0; i < 4; i++) drop(d, c.w[i]);
    drop(d, c.norm), drop(d, c.h), drop(d, c.y), drop(d, c.x), drop(d, c.u), drop(d, c.out);
    drop(d, c.wide.q), drop(d, c.a.q), drop(d, c.g.q);
    free(zeros);
}

void speed_layer_end(dev *d)
{
    time_chain(d, 1536, 6144, 1), time_chain(d, 1536, 6144, 8), time_chain(d, 2560, 10240, 1);
    time_chain(d, 2560, 10240, 8);
}
