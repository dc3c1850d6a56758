/* What the plans of products choose for a use of matrices, in words (test_choices.c). */
#ifndef EK_TESTS_CUDA_CHOICES_H
#define EK_TESTS_CUDA_CHOICES_H

#include "base/buf.h"
#include "cuda/product/layout.h"

typedef struct use {
    const ek_cuda_linear *a, *b, *c; /* NULL: none */
    int experts, top_k, tile;        /* of experts, else 0 */
} use;

typedef enum column { PRODUCT, GATE, WIDE_GATE, HEADS, WIDE_HEADS, TWO, EXPERTS, FIRST, SECOND, END, COLUMNS } column;
typedef struct choices_column {
    const char *name;
    void (*say)(ek_buf *to, const use *u, int rows);
} choices_column;
extern const choices_column choices_columns[COLUMNS];

/* Of which chip; before any other. */
void choices_of_chip(int capability, int multiprocessors);
extern int choices_impossible; /* launches that were said and that the chip cannot do */

/* All that a plan can see of l but its shape. */
void choices_say_form(ek_buf *to, const ek_cuda_linear *l);

#endif
