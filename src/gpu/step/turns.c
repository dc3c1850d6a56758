/* Rows of cos and sin of a step's positions, for devices without floats of 64 bits, which the kernel needs. The host
 * makes them in the step's block, and they are copied to where kernels look for them. */
#include "gpu/step/step.h"

#include "ops/rows/rows.h"

size_t ek_gpu_turns_bytes(const ek_gpu_run *x)
{
    size_t bytes = 0;
    if (!ek_cuda_chip_of(x->g->c)->plain) return 0;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        bytes += (size_t)(x->z.max_rows + x->z.max_logits) * 2 * sizeof(float) * (size_t)x->g->m->n_rotated[k] + 128;
    return bytes;
}

ek_err ek_gpu_make_turns(ek_gpu_run *x, ek_gpu_set *set, const ek_step *s, const int *pick)
{
    const ek_model *m = x->g->m;
    if (!ek_cuda_chip_of(x->g->c)->plain) return EK_OK;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const int rotated = m->n_rotated[k];
        void *to = NULL;
        set->turns[k] = 0;
        if (!rotated) continue;
        const size_t all = (size_t)set->n * (size_t)rotated;
        EK_TRY(ek_gpu_block_take(&x->block, 2 * sizeof(float) * all, &to, &set->turns[k]));
        for (int i = 0; i < set->n; i++) {
            float *const cos = (float *)to + (size_t)i * (size_t)rotated;
            ek_rope_row(cos, cos + all, m->rope[k], rotated, s->row[pick ? pick[i] : i].pos);
        }
    }
    return EK_OK;
}

static ek_err put(ek_gpu_run *x, const ek_gpu_set *set)
{
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const size_t bytes = sizeof(float) * (size_t)set->n * (size_t)x->g->m->n_rotated[k];
        if (!bytes) continue;
        EK_TRY(ek_cuda_copy(x->g->c, set->cos[k], set->turns[k], bytes));
        EK_TRY(ek_cuda_copy(x->g->c, set->sin[k], set->turns[k] + bytes, bytes));
    }
    return EK_OK;
}

ek_err ek_gpu_put_turns(ek_gpu_run *x)
{
    if (!ek_cuda_chip_of(x->g->c)->plain) return EK_OK;
    EK_TRY(put(x, &x->now.all));
    return x->now.tail.n ? put(x, &x->now.tail) : EK_OK;
}
