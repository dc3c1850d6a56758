#include "gpu/recipe/host.h"

#include "gpu/recipe/exchange.h"
#include "gpu/recipe/gated.h"
#include "gpu/recipe/row_kernel.h"

/* The host computes while the device does gate, up and down. */
void ek_gpu_write_moe_with_host(ek_gpu_writer *w, int i, int n, ek_cuda_stage_args *end)
{
    const ek_gpu_run *x = w->x;
    const ek_gpu_layer *l = &x->g->w.layer[i];
    const ek_cuda_stage_args behind = {.y = x->y, .y_norm = l->post_attention_norm};
    EK_ASSERT(!ek_gpu_is_cut(x));
    ek_gpu_input in = ek_gpu_write_rows_for(w, behind, &(ek_gpu_reading){.layer = i, .n = n, .by = EK_GPU_TO_MLP});
    ek_gpu_write_host(w, EK_GPU_HOST_ASK, n);
    ek_gpu_write_mlp(w, i, &in, n);
    ek_gpu_write_host(w, EK_GPU_HOST_ANSWER, n);
    end->pair_out = x->pair_out, end->row_pair = x->host_pair, end->weight = x->host_weight;
    end->top_k = 1, end->known = true;
    end->norm_1 = l->post_mlp_norm_1, end->norm_2 = l->post_mlp_norm_2;
}
