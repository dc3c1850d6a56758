/* How many soft tokens a picture takes, and the size it is brought to for that. One function tells both the prompt and
 * the tower, so that they cannot differ. */
#ifndef EK_MEDIA_BUDGET_H
#define EK_MEDIA_BUDGET_H

#include <stdbool.h>

#include "base/err.h"

enum {
    EK_BUDGET_IMAGE = 280, /* soft tokens of a picture that does not say how many */
    EK_BUDGET_FRAME = 70,  /* of a frame of a video */
    EK_CELL = 48           /* pixels: the side of what becomes one soft token, 3 x 3 patches of 16 */
};

/* 70, 140, 280, 560 or 1120: what models were trained with. */
bool ek_budget_known(int budget);

typedef struct ek_image_fit {
    int width, height; /* multiples of EK_CELL */
    int tokens;        /* (width / 48) (height / 48), at most the budget; nine patches of 16 x 16 each */
} ek_image_fit;

/* For a picture of width x height > 0: keeps its shape and fills the budget, so that small pictures grow. In float64
 * and in the order of transformers' get_aspect_ratio_preserving_size, roundings that lose a row included. EINVAL for an
 * unknown budget. */
ek_err ek_image_fit_budget(ek_image_fit *out, int width, int height, int budget);

#endif
