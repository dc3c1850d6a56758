#include "gpu/recipe/sections.h"

#include "gpu/recipe/exchange.h"
#include "gpu/recipe/linear.h"
#include "gpu/step/step.h"
#include "gpu/weights/weights.h"

static void write_head(ek_gpu_writer *w)
{
    const ek_gpu_run *x = w->x;
    const ek_config *c = &x->g->m->config;
    ek_gpu_input in = ek_gpu_last_rows(w, w->of.n);
    const ek_gpu_value to = ek_gpu_is_sharded(x) ? EK_GPU_LOGITS_HERE : EK_GPU_LOGITS;
    ek_gpu_project(w, &x->g->w.head, &in, ek_gpu_open_value(to), c->vocab_size);
    ek_gpu_write_exchange_logits(w, in.n);
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

/* Looks the recipe up, or writes it first. */
static const ek_gpu_recipe *recipe_of(ek_gpu_run *x, const ek_gpu_subject *of)
{
    const ek_gpu_recipe *r = ek_gpu_recipe_find(x->recipes, of);
    if (r) return r;
    write(ek_gpu_recipe_begin(x->recipes, of));
    return ek_gpu_recipe_keep(x->recipes);
}

/* Queues each device's subject, one device after the other, so that all have begun before one waits for another. */
static void queue(ek_gpu_run *const *x, int n, const ek_gpu_subject *of)
{
    for (int i = 0; i < n; i++) ek_gpu_queue_begin(x[i], recipe_of(x[i], &of[i]));
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            if (n > 1) ek_gpu_note(x[i]->g, ek_cuda_enter(x[i]->g->c));
            more |= ek_gpu_queue_more(x[i]);
        }
    }
}

static void queue_one(ek_gpu_run *const *x, int n, ek_gpu_subject of)
{
    ek_gpu_subject all[EK_CUDA_EXCHANGE_RANKS];
    for (int i = 0; i < n; i++) all[i] = of;
    queue(x, n, all);
}

static ek_gpu_subject layer_of(const ek_gpu_run *x, int i, bool tail, bool drops)
{
    const ek_gpu_set *set = tail ? &x->now.tail : &x->now.all;
    const ek_gpu_list *list = &set->list[x->g->m->config.layer[i].kind];
    const bool finishes = ek_gpu_finishes(list);
    return (ek_gpu_subject){.section = EK_GPU_LAYER,
                            .layer = i,
                            .n = set->n,
                            .tail = tail,
                            .drops = drops,
                            .finishes = finishes,
                            .single = finishes && list->single,
                            .prompt = list->n_prompt > 0};
}

static void queue_layer(ek_gpu_run *const *x, int n, int i, bool tail, bool drops)
{
    ek_gpu_subject of[EK_CUDA_EXCHANGE_RANKS];
    for (int r = 0; r < n; r++) of[r] = layer_of(x[r], i, tail, drops);
    queue(x, n, of);
}

/* All layers on this device, for the rows in the block. Rows without logits end after the last layer that owns keys. */
static void queue_layers(ek_gpu_run *const *x, int n)
{
    const ek_gpu_run *first = x[0];
    const ek_config *c = &first->g->m->config;
    const bool drops = first->now.n_want < first->now.all.n;
    const int leaves = drops ? ek_prompt_layers(c) : c->n_layers;
    for (int i = first->g->share.first; i < first->g->share.end; i++) {
        if (i == leaves) queue_one(x, n, (ek_gpu_subject){.section = EK_GPU_KEYS, .layer = i, .n = first->now.all.n});
        if (i == leaves && !first->now.n_want) return;
        queue_layer(x, n, i, i >= leaves, i + 1 == leaves && drops);
    }
}

void ek_gpu_forward(ek_gpu_run *const *x, int n)
{
    const ek_gpu_run *first = x[0];
    const int want = first->g->m->config.per_layer_size ? first->now.n_want : 0;
    for (int i = 0; i < n; i++) ek_gpu_recipes_set(x[i]);
    queue_one(x, n, (ek_gpu_subject){.section = EK_GPU_BEGIN, .n = first->now.all.n, .want = want});
    queue_layers(x, n);
    if (first->now.n_want) queue_one(x, n, (ek_gpu_subject){.section = EK_GPU_HEAD, .n = first->now.n_want});
}

void ek_gpu_draft_first(ek_gpu_run *x)
{
    ek_gpu_recipes_set(x);
    queue_one(&x, 1, (ek_gpu_subject){.section = EK_GPU_DRAFT_FIRST, .n = x->now.all.n});
}

void ek_gpu_draft_token(ek_gpu_run *x)
{
    ek_gpu_recipes_set(x);
    queue_one(&x, 1, (ek_gpu_subject){.section = EK_GPU_DRAFT_BEGIN, .n = x->now.all.n});
    queue_layers(&x, 1);
    queue_one(&x, 1, (ek_gpu_subject){.section = EK_GPU_DRAFT_END, .n = x->now.all.n});
}
