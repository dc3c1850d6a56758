/* The number of soft tokens of a picture, and the size to which it is resized for them. Prompt and tower use the same
 * function, so that they cannot differ. */
#ifndef EK_MEDIA_BUDGET_H
#define EK_MEDIA_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    EK_BUDGET_IMAGE = 280, /* default soft tokens of a picture */
    EK_BUDGET_FRAME = 70,  /* default soft tokens of a video's frame */
    EK_MAX_CELL = 256      /* pixels: the maximum side of one soft token's square */
};

/* A model's patches: side x side pixels, of which pool x pool become one soft token. */
typedef struct ek_patching {
    int side, pool; /* 0: 16 and 3, the values of every published model */
} ek_patching;

/* 70, 140, 280, 560 or 1120: the budgets used in training. */
bool ek_budget_known(int budget);

typedef struct ek_image_fit {
    int width, height;    /* multiples of side times pool: 48 */
    int tokens;           /* (width / 48) (height / 48), at most the budget; nine patches of 16 x 16 each */
    ek_patching patching; /* as requested; zeros are replaced */
} ek_image_fit;

/* Fits a picture of width x height > 0: keeps its shape and fills the budget, so small pictures grow. In float64, in
 * the order of transformers' get_aspect_ratio_preserving_size, including roundings that lose a row. EINVAL for an
 * unknown budget, and for patches beyond EK_MAX_CELL. */
ek_err ek_image_fit_budget(ek_image_fit *out, int width, int height, int budget, ek_patching patching);

#endif
