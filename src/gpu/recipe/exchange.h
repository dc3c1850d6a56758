/* What devices whose outputs are cut have computed of the same rows goes to all of them. A recipe of one device is
 * written as if it had all outputs, but for what these functions are told: where its part lies in a row, and that the
 * others' parts come. Without a cut a part is all of it, and nothing is exchanged.
 *
 * A buffer that others write into is not one that two exchanges in a row fill: who puts for one has taken the one in
 * front, so that everybody has put for that, and is done with what came before it. */
#ifndef EK_GPU_RECIPE_EXCHANGE_H
#define EK_GPU_RECIPE_EXCHANGE_H

#include "cuda/words_args.h"
#include "gpu/recipe/operand.h"

typedef struct ek_gpu_exchange {
    ek_cuda_exchange_args a;
    ek_cuda_exchange_span whole[EK_CUDA_EXCHANGE_PIECES][EK_CUDA_EXCHANGE_SPANS]; /* of what a.piece has a part */
    int n;                                                                        /* pieces */
} ek_gpu_exchange;

static inline bool ek_gpu_is_cut(const ek_gpu_run *x)
{
    return x->g->share.cut.ranks > 0;
}

/* The part of n outputs, or of the inputs of m, that is computed here. */
ek_gpu_range ek_gpu_outputs_of(const ek_gpu_run *x, int n);
ek_gpu_range ek_gpu_inputs_of(const ek_gpu_run *x, const ek_gpu_matrix *m);

/* y, rows of floats, from the part's first element on. */
static inline CUdeviceptr ek_gpu_at_part(CUdeviceptr y, ek_gpu_range p)
{
    return y + sizeof(float) * (size_t)p.first;
}

/* Whether the columns that m reads go as records: whole groups, of a size that the kernels write everywhere. Otherwise
 * they go as floats. */
bool ek_gpu_goes_as_records(const ek_gpu_run *x, const ek_gpu_matrix *m);
/* Records of n rows of m's inputs, at `at`, and the part of them that is written here. */
ek_gpu_input ek_gpu_records_for(const ek_gpu_matrix *m, CUdeviceptr at, int n);
ek_cuda_acts ek_gpu_part_of_records(const ek_cuda_acts *all, ek_gpu_range p);

/* Adds a piece: floats of n rows, ld elements each, or records, at that place of every ek_gpu_run (offsetof). */
void ek_gpu_exchange_floats(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, int64_t ld, ek_gpu_range p, int n);
void ek_gpu_exchange_records(const ek_gpu_run *x, ek_gpu_exchange *e, size_t place, const ek_gpu_input *in,
                             ek_gpu_range p);
void ek_gpu_write_exchange(ek_gpu_writer *w, ek_gpu_exchange *e);

/* Few rows go in words (cuda/words_args.h): a line of a kernel that takes words itself, whose arguments begin with w.
 */
ek_cuda_words ek_gpu_words(ek_gpu_writer *w);
#define EK_GPU_WRITE_WORDS(writer, kernel, grid, args)     \
    do {                                                   \
        EK_GPU_WRITE(writer, kernel, grid, args);          \
        (writer)->line[(writer)->n_lines - 1].puts = true; \
    } while (0)

/* The rows of hidden_size at x->y, of which each device has its outputs: at once, or, where they are few, left to the
 * kernel that reads them, which is next. That one takes them itself (false: they are there), or they are settled in
 * front of it. */
void ek_gpu_write_exchange_y(ek_gpu_writer *w, int n);
/* Whether n rows of y may be computed whole on all devices instead, which is less work where they are few: then what
 * is exchanged in front and behind goes to landings of its own. */
bool ek_gpu_skips_exchange_y(ek_gpu_writer *w, int n);
bool ek_gpu_take_y(ek_gpu_writer *w, ek_cuda_words *words, ek_cuda_words_rows *rows);
void ek_gpu_settle_y(ek_gpu_writer *w);
/* The rows of logits. */
void ek_gpu_write_exchange_logits(ek_gpu_writer *w, int n);

#endif
