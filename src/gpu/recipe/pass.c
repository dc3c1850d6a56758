#include "gpu/recipe/pass.h"

#include "gpu/recipe/drafter.h"
#include "gpu/recipe/embed.h"
#include "gpu/recipe/layer.h"
#include "gpu/recipe/product.h"
#include "gpu/step/attend.h"

static void write_head(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    ek_gpu_input in = ek_gpu_last_rows(w, w->of.n);
    ek_gpu_project(w, &x->g->w.embed, &in, ek_gpu_open_value(EK_GPU_LOGITS), c->vocab_size);
    const ek_cuda_cap_args a = {.x = ek_gpu_open_value(EK_GPU_LOGITS),
                                .bad = ek_gpu_open_value(EK_GPU_BAD),
                                .digest = ek_gpu_open_value(EK_GPU_DIGEST),
                                .ld = c->vocab_size,
                                .cap = c->final_logit_softcapping,
                                .n = c->vocab_size};
    const ek_cuda_grid grid = {.x = in.n > 8 ? 32 : 128, .y = (unsigned)in.n, .threads = 256, .overlap = true};
    EK_GPU_WRITE(w, "ek_soft_cap_check", grid, a);
}

static void write(ek_gpu_writer *w)
{
    switch (w->of.section) {
    case EK_GPU_BEGIN: ek_gpu_write_begin(w); break;
    case EK_GPU_KEYS: ek_gpu_write_keys(w); break;
    case EK_GPU_LAYER: ek_gpu_write_layer(w); break;
    case EK_GPU_HEAD: write_head(w); break;
    case EK_GPU_DRAFT_FIRST: ek_gpu_write_draft_first(w); break;
    case EK_GPU_DRAFT_BEGIN: ek_gpu_write_draft_begin(w); break;
    case EK_GPU_DRAFT_END: ek_gpu_write_draft_end(w); break;
    }
}

/* Looked up, or written first, and queued. */
static void queue(ek_gpu_run *x, ek_gpu_subject of)
{
    const ek_gpu_recipe *r = ek_gpu_recipe_find(x->recipes, &of);
    if (!r) {
        write(ek_gpu_recipe_begin(x->recipes, &of));
        r = ek_gpu_recipe_keep(x->recipes);
    }
    ek_gpu_queue(x, r);
}

static void queue_layer(ek_gpu_run *x, int i, bool tail, bool drops)
{
    const ek_gpu_set *set = tail ? &x->tail : &x->all;
    const ek_gpu_list *list = &set->list[x->g->m->config.layer[i].kind];
    const bool finishes = ek_gpu_finishes(list);
    queue(x, (ek_gpu_subject){.section = EK_GPU_LAYER,
                              .layer = i,
                              .n = set->n,
                              .tail = tail,
                              .drops = drops,
                              .finishes = finishes,
                              .single = finishes && list->single,
                              .prompt = list->n_prompt > 0});
}

/* All layers here of the rows in the block. Those that want no logits leave in the last layer that owns keys. */
static void queue_layers(ek_gpu_run *x)
{
    const ek_config *c = &x->g->m->config;
    const bool drops = x->n_want < x->all.n;
    const int leaves = drops ? ek_prompt_layers(c) : c->n_layers;
    for (int i = x->g->share.first; i < x->g->share.end; i++) {
        if (i == leaves) queue(x, (ek_gpu_subject){.section = EK_GPU_KEYS, .layer = i, .n = x->all.n});
        if (i == leaves && !x->n_want) return;
        queue_layer(x, i, i >= leaves, i + 1 == leaves && drops);
    }
}

void ek_gpu_forward(ek_gpu_run *x)
{
    ek_gpu_recipes_set(x);
    const int want = x->g->m->config.per_layer_size ? x->n_want : 0;
    queue(x, (ek_gpu_subject){.section = EK_GPU_BEGIN, .n = x->all.n, .want = want});
    queue_layers(x);
    if (x->n_want) queue(x, (ek_gpu_subject){.section = EK_GPU_HEAD, .n = x->n_want});
}

void ek_gpu_draft_first(ek_gpu_run *x)
{
    ek_gpu_recipes_set(x);
    queue(x, (ek_gpu_subject){.section = EK_GPU_DRAFT_FIRST, .n = x->all.n});
}

void ek_gpu_draft_token(ek_gpu_run *x)
{
    ek_gpu_recipes_set(x);
    queue(x, (ek_gpu_subject){.section = EK_GPU_DRAFT_BEGIN, .n = x->all.n});
    queue_layers(x);
    queue(x, (ek_gpu_subject){.section = EK_GPU_DRAFT_END, .n = x->all.n});
}
