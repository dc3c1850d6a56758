/* The arguments of the kernels that exchange what devices have computed (kernels/rows/exchange.cu), under the rules of
 * cuda/args.h. Every one of `ranks` devices makes a part of some rows, stores it into the others' memory, and then
 * waits for theirs. No kernel waits for another block of its own device, and all blocks of one that waits run at once,
 * so what it waits for runs or has run. */
#ifndef EK_CUDA_EXCHANGE_ARGS_H
#define EK_CUDA_EXCHANGE_ARGS_H

#include "cuda/args.h"

enum {
    EK_CUDA_EXCHANGE_RANKS = 8,
    EK_CUDA_EXCHANGE_PIECES = 2, /* buffers of an exchange, */
    EK_CUDA_EXCHANGE_SPANS = 4,  /* what of a row of each: of a record codes and scales of both limbs */
    EK_CUDA_EXCHANGE_BLOCKS = 64
};

/* Bytes [from, from + bytes) of rows of ld bytes: this device's part. Multiples of 4; bytes 0: no such span. */
typedef struct ek_cuda_exchange_span {
    int32_t from, bytes;
} ek_cuda_exchange_span;

typedef struct ek_cuda_exchange_piece {
    ek_cuda_ptr at[EK_CUDA_EXCHANGE_RANKS]; /* where each device has the rows */
    ek_cuda_ptr first;                      /* bytes in front of the first row */
    int64_t ld;
    ek_cuda_exchange_span span[EK_CUDA_EXCHANGE_SPANS];
} ek_cuda_exchange_piece;

/* What a device has for exchanges, zeros at first. arrived[r][b]: how many exchanges block b of device r has stored
 * for; done: how many this one has ended; lost: another one did not come, and nothing waits any more. */
typedef struct ek_cuda_exchange_control {
    uint32_t done, lost, unused[14];
    uint32_t arrived[EK_CUDA_EXCHANGE_RANKS][EK_CUDA_EXCHANGE_BLOCKS];
} ek_cuda_exchange_control;

/* ek_exchange_put: grid (blocks, ranks - 1), 256 threads. ek_exchange_take, behind it: a block of 256 threads, which
 * waits for `limit` nanoseconds at most. */
typedef struct ek_cuda_exchange_args {
    ek_cuda_exchange_piece piece[EK_CUDA_EXCHANGE_PIECES];
    ek_cuda_ptr control[EK_CUDA_EXCHANGE_RANKS]; /* of each device */
    uint64_t limit;
    int32_t rows[EK_CUDA_EXCHANGE_PIECES]; /* 0: no such piece */
    int32_t ranks, rank, blocks, unused;
} ek_cuda_exchange_args;

#endif
