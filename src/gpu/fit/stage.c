#include "gpu/fit/fit.h"

#include <math.h>

#include "model/pass.h"
#include "model/weights/weights.h"

/* Constants of a step's time. CHAIN: a layer's chain of kernels, 30 us. ROW: 1.2 us for each row until tiles are full.
 * HEAD: head and draws, 67 us. PRODUCT: time of a row per byte of the weights that it reads. EXPERTS: with experts the
 * last two are half as much again. BORDER: a copy to the next device, 40 us. */
static const double CHAIN = 0.135e9, ROW = 5.4e6, HEAD = 0.3e9, PRODUCT = 0.065, BORDER = 0.18e9, EXPERTS = 1.5;
enum { FULL = 200 };

/* The time that a layer's three exchanges of some 3 us may take, with a margin of one half: 15 us. */
static const double EXCHANGES = 67.5e6;

enum { REPLIES = 8 }; /* replies of agents that work together */

ek_stage ek_stage_of(const ek_model *m, int first, int end)
{
    const ek_config *c = &m->config;
    ek_stage s = {.chosen = c->n_experts ? (double)c->top_k_experts / c->n_experts : 0};
    for (int i = first; i < end; i++) {
        const int part = i >= ek_prompt_layers(c);
        const double experts = ek_model_experts_bytes(m, i, c->n_experts) - ek_model_experts_bytes(m, i, 0);
        s.part[part].layers++;
        s.part[part].experts += experts, s.part[part].dense += ek_model_layer_bytes(m, i) - experts;
    }
    if (end == c->n_layers) s.head = ek_model_common_bytes(m, true) - ek_model_common_bytes(m, false);
    return s;
}

double ek_stage_time(const ek_stage *s, int rows, int wanted)
{
    double time = wanted && s->head > 0 ? HEAD + s->head * (1 + PRODUCT * wanted) : 0;
    for (int i = 0; i < 2; i++) {
        const int n = i ? wanted : rows;
        if (!n) continue;
        const double row = s->chosen > 0 ? EXPERTS * ROW : ROW;
        const double read =
            1 - pow(1 - s->chosen, n); /* fraction of the experts that n rows read, because rows choose independently */
        time += s->part[i].layers * (CHAIN + row * (n < FULL ? n : FULL));
        time += s->part[i].dense + s->part[i].experts * read;
        time += PRODUCT * n * (s->part[i].dense + EXPERTS * s->part[i].experts * s->chosen);
    }
    return time;
}

bool ek_stage_prefers_outputs(const ek_model *m, int n)
{
    const ek_stage s = ek_stage_of(m, 0, m->config.n_layers);
    const double experts = 1 - pow(1 - s.chosen, REPLIES); /* fraction of the experts that a step reads */
    double read = s.head;
    for (int i = 0; i < 2; i++) read += s.part[i].dense + s.part[i].experts * experts;
    return read * (n - 1) / n > EXCHANGES * m->config.n_layers;
}

static double time_of_microbatches(const ek_stage *s, int n, int rows, int wanted, bool turns, int microbatches)
{
    const int size = (rows + microbatches - 1) / microbatches;
    double limit = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        limit = fmax(limit, BORDER + ek_stage_time(&s[i], size, turns ? size : 0));
        sum += BORDER + ek_stage_time(&s[i], size, turns ? size : wanted);
    }
    return turns ? fmax(limit * microbatches, sum) : limit * (microbatches - 1) + sum;
}

int ek_stage_microbatches(const ek_stage *s, int n, int rows, int wanted, bool turns, int max)
{
    double best = 0.95 * time_of_microbatches(s, n, rows, wanted, turns, 1);
    int microbatches = 1;
    for (int p = 2; p <= max && p <= rows; p++) {
        const double time = time_of_microbatches(s, n, rows, wanted, turns, p);
        if (time < best) best = time, microbatches = p;
    }
    return microbatches;
}
