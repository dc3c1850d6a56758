#include "media/budget.h"

#include <math.h>

bool ek_budget_known(int budget)
{
    return budget == 70 || budget == 140 || budget == 280 || budget == 560 || budget == 1120;
}

static int least(double a, int b)
{
    return a < b ? (int)a : b;
}

ek_err ek_image_fit_budget(ek_image_fit *out, int width, int height, int budget, ek_patching patching)
{
    if (!patching.side && !patching.pool) patching = (ek_patching){16, 3};
    if (!ek_budget_known(budget))
        return ek_fail(EK_EINVAL, "a picture of %d tokens; 70, 140, 280, 560 or 1120 are possible", budget);
    if (patching.side < 1 || patching.pool < 1 || (int64_t)patching.side * patching.pool > EK_MAX_CELL)
        return ek_fail(EK_EINVAL, "%d x %d patches of %d pixels in a token; at most %d pixels on a side are possible",
                       patching.pool, patching.pool, patching.side, EK_MAX_CELL);
    const int cell = patching.side * patching.pool;
    double w = width, h = height,
           target = (double)budget * (patching.pool * patching.pool) * (patching.side * patching.side);
    double factor = sqrt(target / (h * w));
    int th = (int)(floor(factor * h / cell) * cell), tw = (int)(floor(factor * w / cell) * cell);
    if (th == 0) {
        th = cell;
        tw = least(floor(w / h) * cell, budget * cell);
    } else if (tw == 0) {
        tw = cell;
        th = least(floor(h / w) * cell, budget * cell);
    }
    *out = (ek_image_fit){.width = tw, .height = th, .tokens = th / cell * (tw / cell), .patching = patching};
    EK_ASSERT(out->tokens >= 1 && out->tokens <= budget);
    return EK_OK;
}
