/* What a device's layers cost a step: a model of the time, by which layers are dealt and steps cut in pieces. It
 * decides speed alone, and never a bit.
 *
 * Time is counted in bytes of weights that the device could read meanwhile, and the constants are those of an H200
 * (docs/log/2026-11-27-several-gpus.md#dealt-by-time). */
#ifndef EK_GPU_RANKS_STAGE_H
#define EK_GPU_RANKS_STAGE_H

#include "model/model.h"

typedef struct ek_stage {
    struct {
        int layers;
        double dense, experts; /* bytes of weights */
    } part[2];                 /* of all rows; of those that want logits alone (ek_prompt_layers) */
    double head;               /* bytes; 0: another device has it */
    double chosen;             /* of experts, what a row reads; 0: there are none */
} ek_stage;

/* Of layers [first, end), with the head if they are the last. Only sizes of m are read. */
ek_stage ek_stage_of(const ek_model *m, int first, int end);

/* A step of so many rows, of which `wanted` want logits: what is read of the weights, what a chain of kernels takes
 * beside reading, and what rows take. It grows with rows. */
double ek_stage_time(const ek_stage *s, int rows, int wanted);

/* Whether a reply alone is faster with outputs cut over n devices than with whole layers on each: what a row need not
 * read any more on a device, of dense weights, the head and the experts that it chooses, takes longer than the
 * exchanges of all layers do. Only sizes of m are read. */
bool ek_stage_prefers_outputs(const ek_model *m, int n);

/* In how many pieces, max at most, a step goes through n devices, s[0] to s[n - 1], in the least time. In turns, each
 * piece of the next step behind its own of this one, the device that takes longest is never idle, if a piece is back
 * by then; else it computes all pieces, and the others the last. 1 unless more gain a twentieth. */
int ek_stage_pieces(const ek_stage *s, int n, int rows, int wanted, bool turns, int max);

#endif
