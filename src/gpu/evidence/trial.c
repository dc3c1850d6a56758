#include "gpu/evidence/evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

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

static ek_err differs(const ek_trial *t, const char *kernel, size_t wrong, size_t n, size_t first)
{
    ek_cuda *c = t->g->c;
    return ek_fail(EK_EUNSUPPORTED, "%s:%d (%s): %zu of %zu results of %s differ from the definition, the first at %zu",
                   ek_cuda_maker(c), ek_cuda_ordinal(c), ek_cuda_card(c), wrong, n, kernel, first);
}

static ek_err compare(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n, size_t size)
{
    uint8_t *const back = ek_alloc(n * size + 1);
    size_t wrong = 0, first = 0;
    ek_gpu_note(t->g, ek_cuda_download(t->g->c, back, got, n * size));
    ek_gpu_note(t->g, ek_cuda_sync(t->g->c));
    for (size_t i = 0; i < n; i++) {
        bool same = !memcmp(back + i * size, (const uint8_t *)want + i * size, size);
        if (!same && size == sizeof(float)) {
            float a, b;
            memcpy(&a, back + i * size, size), memcpy(&b, (const uint8_t *)want + i * size, size);
            same = isnan(a) && isnan(b);
        }
        if (!same && !wrong++) first = i;
    }
    free(back);
    t->n++;
    if (t->g->err) return t->g->err;
    return wrong ? differs(t, kernel, wrong, n, first) : EK_OK;
}

ek_err ek_trial_floats(ek_trial *t, const char *kernel, CUdeviceptr got, const float *want, size_t n)
{
    return compare(t, kernel, got, want, n, sizeof *want);
}

ek_err ek_trial_bytes(ek_trial *t, const char *kernel, CUdeviceptr got, const void *want, size_t n)
{
    return compare(t, kernel, got, want, n, 1);
}

void ek_trial_hard(float *x, size_t n, uint64_t seed, int limit)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = ek_mix64(seed * 0x9E3779B97F4A7C15u + i), group = ek_mix64(seed ^ (i / 16 + 1) << 20);
        const float v = (float)(int32_t)(r >> 32) * 0x1p-31f;
        const int kind = (int)(group % 16);
        if (kind == 0) x[i] = r & 1 ? 0.0f : -0.0f;
        else if (kind == 1) x[i] = v * 0x1p-130f; /* denormals */
        else x[i] = ldexpf(v, limit - (int)(group >> 8) % (kind < 4 ? 90 : 12));
    }
}
