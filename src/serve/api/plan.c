#include "serve/api/plan.h"

#include <stdint.h>

void ek_plan_weigh(ek_body_plan *p, size_t n)
{
    if (!p) return;
    p->n_sum = n < SIZE_MAX - p->n_sum ? p->n_sum + n : SIZE_MAX;
    if (p->n_sum > p->max_beside) p->n_beside = p->n_sum;
}

/* Many small parts take as long as a large one. */
bool ek_plan_reads(ek_body_plan *p, size_t n)
{
    ek_plan_weigh(p, n);
    if (!p || p->n_sum <= p->max_beside) return true;
    p->too_large = true;
    return false;
}

bool ek_plan_runs(ek_body_plan *p)
{
    if (!p || p->may_wait) return true;
    p->no_program = true;
    return false;
}

bool ek_plan_lacks(const ek_body_plan *p)
{
    return p->too_large || p->no_fetched || p->no_program;
}
