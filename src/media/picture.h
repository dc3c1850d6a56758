/* A picture as model input: from a file's bytes to patches, their positions and the number of soft tokens. Pure
 * functions of bytes and options. Prompt and tower use the same functions, so that they cannot differ. */
#ifndef EK_MEDIA_PICTURE_H
#define EK_MEDIA_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "media/resize.h"

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

typedef struct ek_picture_opts {
    int budget; /* soft tokens; ek_budget_known is true */
    ek_resizer resizer;
    ek_alpha alpha;             /* for ek_picture_read */
    ek_patching patching;       /* the model's; zeros: that of every published model */
    const ek_image_info *known; /* ek_image_probe's result for the same bytes; borrowed. NULL: it is called */
} ek_picture_opts;

/* The cost of a picture from its header alone, so that it can be refused or planned before decoding. The token count is
 * that of ek_picture_read. Errors of ek_image_probe and ek_image_fit_budget. */
typedef struct ek_picture_cost {
    ek_image_info image;
    ek_image_fit fit;
    size_t memory; /* upper bound of ek_picture_read's bytes at its peak */
} ek_picture_cost;

ek_err ek_picture_probe(ek_picture_cost *out, const void *bytes, size_t n, const ek_picture_opts *o);

typedef struct ek_picture {
    ek_image image; /* resized: fit.width x fit.height */
    ek_image_fit fit;
    uint8_t digest[32]; /* SHA-256 of size and resized pixels; features are a function of it and the tower */
} ek_picture;

/* Decodes and resizes, row by row if the file's format allows it. Free with ek_picture_free. */
ek_err ek_picture_read(ek_picture *out, const void *bytes, size_t n, const ek_picture_opts *o);
/* The same from decoded pixels, such as a frame of a video. */
ek_err ek_picture_make(ek_picture *out, const ek_image *image, const ek_picture_opts *o);
void ek_picture_free(ek_picture *p);

/* The patches of a model family. Patches are ordered row by row, from left to right, and so are the pixels in a patch,
 * with red, green, blue adjacent. */
typedef enum ek_patch_kind {
    EK_PATCH_TOWER,  /* tower: 16 x 16 pixels, 768 floats 2 (x - 1/2); nine patches per token */
    EK_PATCH_UNIFIED /* no tower (12B): 48 x 48 pixels, 6,912 floats x; one patch per token */
} ek_patch_kind;

int ek_patch_side(const ek_image_fit *fit, ek_patch_kind kind);   /* pixels */
int ek_patch_floats(const ek_image_fit *fit, ek_patch_kind kind); /* of one patch */
int ek_patch_count(const ek_image_fit *fit, ek_patch_kind kind);  /* of a picture; there is no padding */

/* The float for each sample 0 to 255. */
void ek_patch_values(float of[256], ek_patch_kind kind);
/* Writes n patches from `first` on: n x ek_patch_floats floats to values, n pairs (column, row) to positions; either
 * may be NULL. x = (float)sample * (float)(1 / 255), as in torchvision's backend. */
void ek_picture_patches(float *values, int32_t *positions, const ek_picture *p, ek_patch_kind kind, int first, int n);

#endif
