/* CUDA graphs: after a step of some form, one call queues further steps of that form, if they have few rows that all
 * want logits. The form is everything in the kernels' arguments: counts, and offsets in the step's block. Everything
 * that depth, tokens and options change lies in the block. Replaying a graph changes no bit. */
#include "gpu/step/step.h"

#include <string.h>

enum { MAX_ROWS = 128 };

static void add_set(ek_gpu_form *f, const ek_gpu_set *set)
{
    f->value[f->n++] = (uint64_t)set->n, f->value[f->n++] = set->place;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        const ek_gpu_list *l = &set->list[k];
        f->value[f->n++] = l->rows;
        f->value[f->n++] = (uint64_t)l->n_waves << 16 | (uint64_t)l->deep << 10 | (uint64_t)l->single << 9 |
                           (uint64_t)l->joined << 8 | (uint64_t)l->tile;
        if (!l->n_waves) continue;
        f->value[f->n++] = l->wave[0].tiles, f->value[f->n++] = l->wave[0].items;
        f->value[f->n++] = (uint64_t)l->wave[0].n_tiles << 32 | (uint64_t)l->wave[0].n_items;
    }
}

/* False: this step is queued kernel by kernel. */
static bool form_of(const ek_gpu_run *x, ek_gpu_part part, ek_gpu_form *f)
{
    const ek_gpu_now *now = &x->now;
    memset(f, 0, sizeof *f);
    if (x->host || now->all.n > MAX_ROWS || (x->g->share.head && now->n_want != now->all.n)) return false;
    for (int k = 0; k < EK_KIND_COUNT; k++)
        if (now->all.list[k].n_waves > 1 || now->all.list[k].n_prompt) return false;
    add_set(f, &now->all);
    for (int i = 0; i < now->n_want; i++) /* rows of logits are copied to the host */
        f->value[f->n + i / 64] |= (uint64_t)x->lists.shown[now->first_logits + i] << i % 64;
    f->n += MAX_ROWS / 64;
    f->value[f->n++] = now->id, f->value[f->n++] = now->sample, f->value[f->n++] = now->table_id;
    for (int k = 0; k < EK_KIND_COUNT; k++) f->value[f->n++] = now->table[k];
    f->value[f->n++] = (uint64_t)now->ld_table;
    f->value[f->n++] = (uint64_t)now->first_logits << 32 | (uint64_t)now->n_draws;
    f->value[f->n++] = (uint64_t)now->first_draw;
    f->value[f->n++] = (uint64_t)(now->masks | now->edits << 1 | now->weighs << 2 | now->chooses << 3 |
                                  now->draws_all << 4 | now->digests << 5 | now->sorts << 6);
    f->value[f->n++] = (uint64_t)part;
    EK_ASSERT(f->n <= EK_GPU_FORM);
    return true;
}

static void drop(ek_gpu_run *x, ek_gpu_graph *graph)
{
    if (graph->exec && !ek_cuda_broken(x->g->c)) ek_cuda_functions(x->g->c)->cuGraphExecDestroy(graph->exec);
    *graph = (ek_gpu_graph){0};
}

void ek_gpu_graphs_fini(ek_gpu_run *x)
{
    for (int i = 0; i < EK_GPU_GRAPHS; i++) drop(x, &x->graphs.graph[i]);
}

/* The graph of this form, or an emptied one: the graph unused for longest. */
static ek_gpu_graph *find(ek_gpu_run *x, const ek_gpu_form *f)
{
    ek_gpu_graph *oldest = &x->graphs.graph[0];
    for (int i = 0; i < EK_GPU_GRAPHS; i++) {
        ek_gpu_graph *graph = &x->graphs.graph[i];
        if (graph->used && memcmp(&graph->form, f, sizeof *f) == 0) return graph;
        if (graph->used < oldest->used) oldest = graph;
    }
    drop(x, oldest);
    oldest->form = *f;
    return oldest;
}

static ek_err capture(ek_gpu_run *x, ek_gpu_graph *graph, ek_gpu_body *body)
{
    ek_cuda *c = x->g->c;
    const ek_cuda_api *f = ek_cuda_functions(c);
    CUgraph made = NULL;
    EK_TRY(ek_cuda_check(c, f->cuStreamBeginCapture(ek_cuda_stream(c), EK_CU_CAPTURE_RELAXED), "recording a step"));
    ek_err err = body(&x, 1),
           ended = ek_cuda_check(c, f->cuStreamEndCapture(ek_cuda_stream(c), &made), "recording a step");
    if (!err) err = ended;
    if (!err) err = ek_cuda_check(c, f->cuGraphInstantiateWithFlags(&graph->exec, made, 0), "building a graph");
    if (made) f->cuGraphDestroy(made);
    if (err) graph->exec = NULL;
    return err;
}

/* *out: the graph of the kernels that body queues, or NULL if no step had this form before. */
static ek_err graph_for(ek_gpu_run *x, ek_gpu_body *body, ek_gpu_part part, CUgraphExec *out)
{
    ek_gpu_form form;
    *out = NULL;
    if (!form_of(x, part, &form)) return EK_OK;
    ek_gpu_graph *graph = find(x, &form);
    bool seen = graph->used > 0;
    graph->used = ++x->graphs.n_steps;
    if (!seen) return EK_OK;
    ek_err err = graph->exec ? EK_OK : capture(x, graph, body);
    if (err) drop(x, graph);
    else *out = graph->exec;
    return err;
}

ek_err ek_gpu_replay(ek_gpu_run *const *x, int n, ek_gpu_body *body, ek_gpu_part part)
{
    ek_gpu_run *rest[EK_CUDA_EXCHANGE_RANKS];
    CUgraphExec exec[EK_CUDA_EXCHANGE_RANKS];
    int n_rest = 0;
    for (int i = 0; i < n;
         i++) { /* all graphs are made before one is launched, because a launched one waits for the others */
        if (n > 1) EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(graph_for(x[i], body, part, &exec[i]));
    }
    for (int i = 0; i < n; i++) {
        ek_cuda *c = x[i]->g->c;
        if (!exec[i]) {
            rest[n_rest++] = x[i];
            continue;
        }
        if (n > 1) EK_TRY(ek_cuda_enter(c));
        EK_TRY(ek_cuda_check(c, ek_cuda_functions(c)->cuGraphLaunch(exec[i], ek_cuda_stream(c)), "launching a graph"));
    }
    if (n_rest == 0) return EK_OK;
    if (n > 1 && n_rest == 1) EK_TRY(ek_cuda_enter(rest[0]->g->c)); /* the body of a single device runs inside */
    return body(rest, n_rest);
}
