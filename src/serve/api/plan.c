#include "serve/api/plan.h"

void ek_plan_weigh(ek_body_plan *p, size_t n)
{
    if (p && n > p->max_beside && n > p->n_beside) p->n_beside = n;
}

bool ek_plan_reads(ek_body_plan *p, size_t n)
{
    if (!p || n <= p->max_beside) return true;
    ek_plan_weigh(p, n);
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
