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

ek_err ek_image_fit_budget(ek_image_fit *out, int width, int height, int budget)
{
    if (!ek_budget_known(budget))
        return ek_fail(EK_EINVAL, "a picture of %d tokens; 70, 140, 280, 560 or 1120 are possible", budget);
    double w = width, h = height, target = budget * 9.0 * 256.0;
    double factor = sqrt(target / (h * w));
    int th = (int)(floor(factor * h / EK_CELL) * EK_CELL), tw = (int)(floor(factor * w / EK_CELL) * EK_CELL);
    if (th == 0) {
        th = EK_CELL;
        tw = least(floor(w / h) * EK_CELL, budget * EK_CELL);
    } else if (tw == 0) {
        tw = EK_CELL;
        th = least(floor(h / w) * EK_CELL, budget * EK_CELL);
    }
    *out = (ek_image_fit){.width = tw, .height = th, .tokens = th / EK_CELL * (tw / EK_CELL)};
    EK_ASSERT(out->tokens >= 1 && out->tokens <= budget);
    return EK_OK;
}
