#define _GNU_SOURCE
/* The CPU executor: pages, logits and scratch in host memory, the model's forward pass, and samplers
 * spread over the model's pool. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/machine/cpu.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"

#define ROW_COST 0.25f /* docs/SPECULATION.md has the measurement */

typedef struct cpu {
    ek_model *model;
    ek_scratch *scratch;
    ek_kv_memory kv;
    size_t kv_bytes[EK_PAGE_KINDS];
    float *logits;
    uint64_t *digest; /* of each row of logits */
    ptrdiff_t ld;
    size_t logits_bytes;
    ek_drafter *drafter; /* NULL: none, and the fields below are unused */
    float *hidden;       /* [max_logits][ldh]: last hidden states of the rows of logits */
    ptrdiff_t ldh;
    ek_drafter_row *draft_row; /* [max_requests] */
    int *draft_of;             /* the index in the draft of each row */
    ek_sampler **sampler;      /* one per thread of the pool */
    int n_samplers;
    bool one_node; /* of memory */
} cpu;

static ek_err open_pages(cpu *x, const int n_pages[EK_PAGE_KINDS])
{
    const ek_kv_layout *layout = ek_model_kv_layout(x->model);
    double have = ek_memory_available(), need = 0;
    for (int k = 0; k < EK_PAGE_KINDS; k++) need += (double)layout->page_bytes[k] * n_pages[k];
    if (have > 0 && need > have)
        return ek_fail(EK_ENOMEM, "keys and values need %.0f MiB, %.0f MiB of memory are available", need / 1048576,
                       have / 1048576);
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        EK_ASSERT(layout->page_bytes[k] % 64 == 0);
        x->kv.stride[k] = layout->page_bytes[k];
        x->kv_bytes[k] = layout->page_bytes[k] * (size_t)n_pages[k];
        if (x->kv_bytes[k] == 0) continue;
        x->kv.base[k] = ek_alloc_big(x->kv_bytes[k]);
        if (!x->kv.base[k])
            return ek_fail_in(EK_ENOMEM, "%d pages of %zu bytes for keys and values", n_pages[k],
                              layout->page_bytes[k]);
    }
    return EK_OK;
}

static ek_err open_drafter(cpu *x, const ek_executor_sizes *z)
{
    if (!x->drafter) return EK_OK;
    EK_ASSERT(ek_drafter_target(x->drafter) == x->model);
    x->ldh = (ek_model_config(x->model)->hidden_size + 15) / 16 * 16;
    x->hidden = ek_alloc(sizeof *x->hidden * (size_t)x->ldh * (size_t)z->max_logits);
    x->draft_row = ek_alloc(sizeof *x->draft_row * (size_t)z->max_requests);
    x->draft_of = ek_alloc(sizeof *x->draft_of * (size_t)z->max_requests);
    return ek_drafter_reserve(x->drafter, z->max_requests, z->max_ctx);
}

static ek_err open_cpu(void *arg, const ek_executor_sizes *z)
{
    cpu *x = arg;
    const ek_config *c = ek_model_config(x->model);
    ek_nodes nodes;
    ek_nodes_read(&nodes, "");
    x->one_node = nodes.n == 1;
    EK_TRY(open_pages(x, z->n_pages));
    x->ld = (c->vocab_size + 15) / 16 * 16;
    x->logits_bytes = sizeof(float) * (size_t)x->ld * (size_t)z->max_logits;
    x->logits = ek_alloc_big(x->logits_bytes);
    if (!x->logits) return EK_ENOMEM;
    x->digest = ek_alloc(sizeof *x->digest * (size_t)z->max_logits);
    x->n_samplers = ek_pool_threads(ek_model_pool(x->model));
    x->sampler = ek_alloc(sizeof *x->sampler * (size_t)x->n_samplers);
    for (int i = 0; i < x->n_samplers; i++)
        ek_sampler_open(&x->sampler[i], ek_model_cpu(x->model), c->vocab_size, c->suppress, c->n_suppress);
    EK_TRY(open_drafter(x, z));
    return ek_scratch_open(&x->scratch, x->model, z->max_rows, z->max_logits, z->max_ctx);
}

typedef struct draws {
    const cpu *x;
    ek_draw *draw;
    const bool *digested;
} draws;

static void draw_task(void *arg, int task, int worker)
{
    const draws *all = arg;
    ek_draw *d = &all->draw[task];
    const float *row = all->x->logits + d->logits * all->x->ld;
    const int vocab = ek_model_config(all->x->model)->vocab_size;
    bool finite = ek_logits_finite(row, vocab);
    if (all->digested[d->logits]) all->x->digest[d->logits] = ek_logits_digest(row, vocab);
    d->token = EK_DRAW_NOT_FINITE;
    if (finite)
        d->token = ek_sample(all->x->sampler[worker], row, d->allowed, d->sampling, d->tokens, d->n_prompt,
                             d->n_tokens);
}

static void keep_hidden(cpu *x, const ek_step *step)
{
    size_t bytes = sizeof(float) * (size_t)ek_model_config(x->model)->hidden_size;
    for (int i = 0, n = 0; i < step->n_rows; i++)
        if (step->row[i].wants_logits) {
            memcpy(x->hidden + (step->first_logits + n) * x->ldh, ek_scratch_hidden(x->scratch, n), bytes);
            n++;
        }
}

static ek_err step_cpu(void *arg, const ek_step *step)
{
    cpu *x = arg;
    EK_TRY(ek_model_forward(x->model, x->scratch, &x->kv, step->row, step->n_rows, step->seq, step->n_seqs,
                            x->logits + step->first_logits * x->ld, x->ld));
    if (x->drafter) keep_hidden(x, step);
    draws all = {x, step->draw, step->digested};
    ek_masks_wait(step->masks);
    ek_pool_run(ek_model_pool(x->model), draw_task, &all, step->n_draws);
    return EK_OK;
}

/* All drafts grow together, by a token per step of the drafter, until each has the wanted length. States are
 * overwritten. */
static ek_err draft_cpu(void *arg, ek_draft *draft, int n)
{
    cpu *x = arg;
    for (int i = 0; i < n; i++) draft[i].n = 0;
    for (int k = 0;; k++) {
        int rows = 0;
        for (int i = 0; i < n; i++) {
            const ek_draft *d = &draft[i];
            if (k >= d->max) continue;
            x->draft_of[rows] = i;
            x->draft_row[rows++] = (ek_drafter_row){.seq = d->seq,
                                                    .n = d->n_tokens - 1,
                                                    .token = k ? d->token[k - 1] : d->tokens[d->n_tokens - 1],
                                                    .state = x->hidden + d->logits * x->ldh};
        }
        if (rows == 0) return EK_OK;
        EK_TRY(ek_drafter_step(x->drafter, &x->kv, x->draft_row, rows, NULL, 0));
        for (int r = 0; r < rows; r++) {
            ek_draft *d = &draft[x->draft_of[r]];
            d->token[d->n++] = x->draft_row[r].token;
        }
    }
}

static const float *logits_cpu(void *arg, int row)
{
    const cpu *x = arg;
    return x->logits + row * x->ld;
}

static uint64_t digest_cpu(void *arg, int row)
{
    const cpu *x = arg;
    return x->digest[row];
}

static uint8_t *page_at(const cpu *x, ek_layer_kind kind, int32_t page)
{
    EK_ASSERT(page >= 0 && x->kv.stride[kind] * (size_t)page < x->kv_bytes[kind]);
    return x->kv.base[kind] + x->kv.stride[kind] * (size_t)page;
}

static void copy_page_cpu(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    const cpu *x = arg;
    memcpy(page_at(x, kind, to), page_at(x, kind, from), x->kv.stride[kind]);
}

static void read_page_cpu(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const cpu *x = arg;
    memcpy(out, page_at(x, kind, page), x->kv.stride[kind]);
}

static void write_page_cpu(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    const cpu *x = arg;
    memcpy(page_at(x, kind, page), in, x->kv.stride[kind]);
}

/* The system clears a page at the first write, which in a virtual machine can take longer than computing the page's
 * contents. So another thread writes first. */
static void ready_pages_cpu(void *arg, ek_layer_kind kind, int32_t first, int n)
{
#ifdef MADV_POPULATE_WRITE
    const cpu *x = arg;
    if (!x->one_node) return; /* the node of the first writer gets the page */
    const uintptr_t page = 4096, from = (uintptr_t)page_at(x, kind, first) / page * page;
    madvise((void *)from, (uintptr_t)page_at(x, kind, first + n - 1) + x->kv.stride[kind] - from, MADV_POPULATE_WRITE);
#else
    (void)arg, (void)kind, (void)first, (void)n;
#endif
}

static void poison_page_cpu(void *arg, ek_layer_kind kind, int32_t page)
{
    const cpu *x = arg;
    memset(page_at(x, kind, page), 0xff, x->kv.stride[kind]); /* all bits set: NaN as f32, f16 and bf16 */
}

static void close_cpu(void *arg)
{
    cpu *x = arg;
    for (int i = 0; i < x->n_samplers; i++) ek_sampler_close(x->sampler[i]);
    free(x->sampler);
    free(x->hidden);
    free(x->digest);
    free(x->draft_row);
    free(x->draft_of);
    ek_scratch_close(x->scratch);
    ek_free_big(x->logits, x->logits_bytes);
    for (int k = 0; k < EK_PAGE_KINDS; k++) ek_free_big(x->kv.base[k], x->kv_bytes[k]);
    free(x);
}

ek_executor ek_executor_cpu(ek_model *m)
{
    cpu *x = ek_alloc(sizeof *x);
    x->model = m;
    return (ek_executor){.config = ek_model_config(m),
                         .layout = ek_model_kv_layout(m),
                         .model = m,
                         .arg = x,
                         .open = open_cpu,
                         .step = step_cpu,
                         .logits = logits_cpu,
                         .digest = digest_cpu,
                         .row_cost = ROW_COST,
                         .copy_page = copy_page_cpu,
                         .read_page = read_page_cpu,
                         .write_page = write_page_cpu,
                         .ready_pages = ready_pages_cpu,
                         .poison_page = poison_page_cpu,
                         .close = close_cpu};
}

void ek_executor_cpu_set_drafter(ek_executor *x, ek_drafter *d)
{
    ((cpu *)x->arg)->drafter = d;
    x->draft = draft_cpu;
    x->draft_arg = x->arg;
    x->draft_cost = (float)ek_drafter_cost(d);
}
