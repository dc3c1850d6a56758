/* The arguments of kernels that exchange what devices have computed in words, of rows that are few, under the rules of
 * cuda/args.h.
 *
 * A word of 4 bytes travels beside the number of its exchange, both by one store, to a landing, where nobody else
 * writes; who wants it reads until the number is there. So nothing has to be said behind the data, and a kernel that
 * reads rows may take them itself. A landing is written again after an exchange in another one at the earliest, whose
 * words a device sends when it has taken all of the one in front. */
#ifndef EK_CUDA_WORDS_ARGS_H
#define EK_CUDA_WORDS_ARGS_H

#include "cuda/exchange_args.h"
#include "cuda/model_args.h"

enum {
    EK_CUDA_WORDS_ROWS = 4,          /* of a step that go in words at most: with 8 that is slower (docs/CUDA.md) */
    EK_CUDA_LANDINGS = 5,            /* of exchanges of a layer in turns; the last is of logits */
    EK_CUDA_LANDING_BYTES = 8 << 20, /* of one, at most */
    EK_CUDA_EXCHANGES = 4096,        /* of a step, at most */
    EK_CUDA_EXCHANGE_STEPS = 1 << 19 /* steps are counted so far; then landings are zeroed and they begin at 0 */
};

enum { EK_CUDA_PUT = 1, EK_CUDA_TAKE = 2 };

/* The first member of the arguments of every kernel whose name ends in _words. number of an exchange: EK_CUDA_EXCHANGES
 * times its step's, plus index. */
typedef struct ek_cuda_words {
    ek_cuda_ptr at[EK_CUDA_EXCHANGE_RANKS]; /* the landing of each device */
    ek_cuda_ptr control, step;              /* of this device; uint64: the step's number in its lower half */
    uint64_t limit;
    int32_t ranks, rank, index; /* index: from 1 */
    int32_t half;               /* 0; the emulated device launches a kernel twice, by these */
} ek_cuda_words;

/* Rows here: what of them is this device's goes from them to the landings of the others, and the rest from the landing
 * to them. */
typedef struct ek_cuda_words_piece {
    ek_cuda_ptr rows, first; /* bytes in front of the first row */
    int64_t ld;
    int32_t n_rows; /* 0: no such piece */
    int32_t place;  /* of the first row in a landing: words */
    ek_cuda_exchange_span span[EK_CUDA_EXCHANGE_SPANS], whole[EK_CUDA_EXCHANGE_SPANS]; /* here; of all devices */
} ek_cuda_words_piece;

/* ek_exchange_words: grid (up to EK_CUDA_EXCHANGE_BLOCKS), 256 threads. */
typedef struct ek_cuda_exchange_words_args {
    ek_cuda_words w;
    ek_cuda_words_piece piece[EK_CUDA_EXCHANGE_PIECES];
} ek_cuda_exchange_words_args;

/* Rows of n floats, of which elements [first, first + here) are this device's, in a landing from word `place` on. */
typedef struct ek_cuda_words_rows {
    int32_t place, first, here, n;
} ek_cuda_words_rows;

/* ek_stage_words, ek_experts_inputs_words: those kernels, which take rows of y themselves, for each row by its block,
 * or for three by the first of them; the second up to EK_CUDA_EXPERTS_WIDTH. */
typedef struct ek_cuda_stage_words_args {
    ek_cuda_words w;
    ek_cuda_words_rows y;
    ek_cuda_stage_args s;
} ek_cuda_stage_words_args;

typedef struct ek_cuda_inputs_words_args {
    ek_cuda_words w;
    ek_cuda_words_rows y;
    ek_cuda_inputs_args s;
} ek_cuda_inputs_words_args;

#endif
