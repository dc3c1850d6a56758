/* How many soft tokens a picture takes, and the size it is brought to for that. One function tells both the prompt and
 * the tower, so that they cannot differ. */
#ifndef EK_MEDIA_BUDGET_H
#define EK_MEDIA_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    EK_BUDGET_IMAGE = 280, /* soft tokens of a picture that does not say how many */
    EK_BUDGET_FRAME = 70,  /* of a frame of a video */
    EK_CELL = 48,          /* pixels: the side of what becomes one soft token, 3 x 3 patches of 16 */
    EK_MAX_CELL = 256      /* of models that cut pictures otherwise */
};

/* How a model cuts pictures: patches of side x side pixels, of which pool x pool become one soft token. */
typedef struct ek_patching {
    int side, pool; /* 0: 16 and 3, those of every published model */
} ek_patching;

/* 70, 140, 280, 560 or 1120: what models were trained with. */
bool ek_budget_known(int budget);

typedef struct ek_image_fit {
    int width, height;    /* multiples of side times pool: 48 */
    int tokens;           /* (width / 48) (height / 48), at most the budget; nine patches of 16 x 16 each */
    ek_patching patching; /* as asked for, zeros replaced */
} ek_image_fit;

/* For a picture of width x height > 0: keeps its shape and fills the budget, so that small pictures grow. In float64
 * and in the order of transformers' get_aspect_ratio_preserving_size, roundings that lose a row included. EINVAL for an
 * unknown budget, and for patches beyond EK_MAX_CELL. */
ek_err ek_image_fit_budget(ek_image_fit *out, int width, int height, int budget, ek_patching patching);

#endif
