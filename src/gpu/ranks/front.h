/* The layers in front of the first device, on the CPU: their pages in host memory, and steps from tokens to hidden
 * states. */
#ifndef EK_GPU_RANKS_FRONT_H
#define EK_GPU_RANKS_FRONT_H

#include "engine/executor.h"

typedef struct ek_front ek_front;

/* Layers [0, end) of m, whose weights are packed. page_bytes: what they have of a page, from its begin. */
ek_err ek_front_open(ek_front **out, ek_model *m, int end, const size_t page_bytes[EK_PAGE_KINDS],
                     const ek_executor_sizes *z);
void ek_front_close(ek_front *f); /* NULL is allowed */

/* Hidden states of all rows to h, [n_rows][hidden_size]. */
ek_err ek_front_step(ek_front *f, const ek_step *s, float *h);

/* What the front has of a page. */
uint8_t *ek_front_page(const ek_front *f, ek_layer_kind kind, int32_t page);

#endif
