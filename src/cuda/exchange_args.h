/* The arguments of the kernels that exchange results between devices (kernels/rows/exchange.cu), under the rules of
 * cuda/args.h. Each of `ranks` devices computes a part of some rows, announces it, and reads the others' parts from
 * their memory. It writes nothing there, because a kernel that stores into another device's memory ends only when that
 * device has confirmed it, and later work waits for that (docs/log/2026-11-28-exchanges.md).
 *
 * ek_exchange_words, for few rows: each word of 4 bytes is stored together with the number of its exchange, in the
 * landing of the device that computed it; readers poll until the number is there. ek_exchange_rows, for any rows: a
 * device announces all its rows at once, and they are read in place.
 *
 * A landing, or rows of ek_exchange_rows, may be overwritten after the next exchange, not before: a device that has
 * read an exchange knows that the others have begun it, and so have read the previous one.
 *
 * No block waits for another block of its own device. In the order of blocks, those that write a span's words, or
 * announce rows, come before all that wait for that span. So a block only waits for blocks that run or have run,
 * however many blocks run at once. */
#ifndef EK_CUDA_EXCHANGE_ARGS_H
#define EK_CUDA_EXCHANGE_ARGS_H

#include "cuda/args.h"

enum {
    EK_CUDA_EXCHANGE_RANKS = 8,
    EK_CUDA_EXCHANGE_PIECES = 2, /* buffers of an exchange */
    EK_CUDA_EXCHANGE_SPANS = 6, /* spans of rows of both buffers: of a record, the codes of each limb, and the scales */
    EK_CUDA_EXCHANGE_BLOCKS = 64,
    EK_CUDA_EXCHANGE_THREADS = 256,
    EK_CUDA_EXCHANGES = 4096,        /* maximum per step */
    EK_CUDA_EXCHANGE_STEPS = 1 << 19 /* number of counted steps; then all restarts at 0 */
};

enum {
    EK_CUDA_WORDS_ROWS = 4,         /* maximum rows of a step that are exchanged in words (docs/CUDA.md) */
    EK_CUDA_LANDINGS = 5,           /* landings of a layer's exchanges, used in turn; the last one is for logits */
    EK_CUDA_LANDING_BYTES = 8 << 20 /* maximum bytes of a landing */
};

/* A device's state for exchanges, initially zeros. ready: the number of the latest exchange whose rows the device has
 * announced. lost: another device's rows did not arrive, and no exchange waits any more. */
typedef struct ek_cuda_exchange_control {
    uint32_t ready, lost, unused[14];
} ek_cuda_exchange_control;

/* Rows of ld bytes; every device has memory for all of them. */
typedef struct ek_cuda_exchange_piece {
    ek_cuda_ptr at[EK_CUDA_EXCHANGE_RANKS]; /* on each device */
    ek_cuda_ptr first;                      /* bytes before the first row */
    int64_t ld;
    int32_t rows;
    int32_t place; /* offset of the first row in a landing, in words */
} ek_cuda_exchange_piece;

/* The bytes [from, from + bytes) of each row of a piece that each device computes; multiples of 4. */
typedef struct ek_cuda_exchange_span {
    int32_t piece;
    int32_t from[EK_CUDA_EXCHANGE_RANKS], bytes[EK_CUDA_EXCHANGE_RANKS];
    int32_t unused;
} ek_cuda_exchange_span;

enum { EK_CUDA_PUT = 1, EK_CUDA_TAKE = 2 };

/* Grid (up to EK_CUDA_EXCHANGE_BLOCKS, ranks - 1, spans), EK_CUDA_EXCHANGE_THREADS threads. The exchange's number is
 * EK_CUDA_EXCHANGES times its step's number, plus index. Waits for at most `limit` nanoseconds. */
typedef struct ek_cuda_exchange_args {
    ek_cuda_ptr landing[EK_CUDA_EXCHANGE_RANKS], control[EK_CUDA_EXCHANGE_RANKS]; /* of each device */
    ek_cuda_ptr step; /* uint64: the step's number in its lower half */
    uint64_t limit;
    int32_t ranks, rank, index; /* index: from 1 */
    int32_t half;               /* 0: both halves; the emulated device launches a kernel twice, once per half */
    ek_cuda_exchange_piece piece[EK_CUDA_EXCHANGE_PIECES];
    ek_cuda_exchange_span span[EK_CUDA_EXCHANGE_SPANS];
} ek_cuda_exchange_args;

#endif
