#include "gpu/evidence/evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "ops/linear/linear.h"

CUdeviceptr ek_trial_up(ek_trial *t, const void *from, size_t bytes)
{
    const CUdeviceptr to = t->at + t->used;
    const size_t whole = (bytes + 511) / 256 * 256;
    if (whole > t->room - t->used) {
        ek_gpu_note(t->g, ek_fail(EK_ETOOLARGE, "a comparison of kernels needs more than %zu bytes", t->room));
        return t->at;
    }
    t->used += whole;
    if (from) ek_gpu_note(t->g, ek_cuda_upload(t->g->c, to, from, bytes));
    else ek_gpu_note(t->g, ek_cuda_fill(t->g->c, to, 0xff, bytes));
    ek_gpu_note(t->g, ek_cuda_sync(t->g->c));
    return to;
}

ek_cuda_acts ek_trial_acts(ek_trial *t, int k, int a_group, int rows)
{
    ek_cuda_acts to = {0};
    if (!a_group) return to;
    const size_t row = ek_cuda_acts_plan(&to, k, a_group);
    to.q = ek_trial_up(t, NULL, row * (size_t)rows);
    return to;
}

static ek_err differs(const ek_trial *t, const char *kernel, size_t wrong, size_t n, size_t first)
{
    ek_cuda *c = t->g->c;
    return ek_fail(EK_EUNSUPPORTED, "%s:%d (%s): %zu of %zu results of %s differ from the definition, the first at %zu",
                   ek_cuda_maker(c), ek_cuda_ordinal(c), ek_cuda_card(c), wrong, n, kernel, first);
}

void ek_trial_down(ek_trial *t, void *to, CUdeviceptr from, size_t bytes)
{
    ek_gpu_note(t->g, ek_cuda_download(t->g->c, to, from, bytes));
    ek_gpu_note(t->g, ek_cuda_sync(t->g->c));
}

static bool are_same(const uint8_t *got, const uint8_t *want, size_t size)
{
    float a, b;
    if (!memcmp(got, want, size)) return true;
    if (size != sizeof a) return false;
    memcpy(&a, got, size), memcpy(&b, want, size);
    return isnan(a) && isnan(b);
}

static ek_err judge(ek_trial *t, const char *kernel, const uint8_t *got, const uint8_t *want, size_t n, size_t size)
{
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < n; i++)
        if (!are_same(got + i * size, want + i * size, size) && !wrong++) first = i;
    t->n++;
    if (t->g->err) return t->g->err;
    return wrong && !t->goes_on ? differs(t, kernel, wrong, n, first) : EK_OK;
}

static ek_err compare(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n, size_t size)
{
    uint8_t *const back = ek_alloc(n * size + 1);
    ek_trial_down(t, back, got, n * size);
    const ek_err err = judge(t, kernel, back, want, n, size);
    free(back);
    return err;
}

ek_err ek_trial_floats(ek_trial *t, const char *kernel, CUdeviceptr got, const float *want, size_t n)
{
    return compare(t, kernel, got, want, n, sizeof *want);
}

ek_err ek_trial_bytes(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n)
{
    return compare(t, kernel, got, want, n, 1);
}

ek_err ek_trial_same(ek_trial *t, const char *kernel, const void *got, const void *want, size_t n)
{
    return judge(t, kernel, got, want, n, 1);
}

ek_err ek_trial_records(ek_trial *t, const char *kernel, const ek_cuda_acts *a, const float *x, int64_t ld, int rows)
{
    ek_linear_ops ops;
    ek_linear_init(&ops, 0);
    const size_t groups = (size_t)(a->k + a->a_group - 1) / (size_t)a->a_group, codes = groups * (size_t)a->a_group;
    int8_t *const h = ek_alloc(2 * codes + 64), *const l = h + codes;
    ek_act_group *const one = ek_alloc(2 * sizeof *one * groups), *const two = one + groups;
    float *const pairs = ek_alloc(2 * sizeof *pairs * groups);
    const int before = t->n;
    ek_err err = EK_OK;
    for (int r = 0; r < rows && !err; r++) {
        const CUdeviceptr row = a->q + (CUdeviceptr)(r * a->ldq);
        ops.quantize_row(x + r * ld, a->k, a->a_group, h, l, one, two);
        err = ek_trial_bytes(t, kernel, row, h, (size_t)a->k);
        if (!err) err = ek_trial_bytes(t, kernel, row + (CUdeviceptr)a->low, l, (size_t)a->k);
        for (int limbs = 1; limbs <= 2 && !err; limbs++) {
            const ek_act_group *const from = limbs == 1 ? one : two;
            for (size_t i = 0; i < groups; i++) pairs[2 * i] = from[i].sx, pairs[2 * i + 1] = from[i].sum;
            err = ek_trial_floats(t, kernel, row + (CUdeviceptr)a->groups[limbs - 1], pairs, 2 * groups);
        }
    }
    free(h), free(one), free(pairs);
    t->n = before + 1; /* counts rows, not their parts */
    return err;
}

static float hard_at(uint64_t i, uint64_t seed, int limit)
{
    const uint64_t r = ek_mix64(seed * 0x9E3779B97F4A7C15u + i), group = ek_mix64(seed ^ (i / 16 + 1) << 20);
    const float v = (float)(int32_t)(r >> 32) * 0x1p-31f;
    const int kind = (int)(group % 16);
    if (kind == 0) return r & 1 ? 0.0f : -0.0f;
    if (kind == 1) return v * 0x1p-130f; /* denormals */
    return ldexpf(v, limit - (int)(group >> 8) % (kind < 4 ? 90 : 12));
}

float *ek_trial_hard(size_t n, uint64_t seed, int limit)
{
    float *const x = ek_alloc(sizeof *x * (n + 64));
    for (size_t i = 0; i < n; i++) x[i] = hard_at(i, seed, limit);
    return x;
}
