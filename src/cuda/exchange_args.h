/* The arguments of the kernels that exchange what devices have computed (kernels/rows/exchange.cu), under the rules of
 * cuda/args.h. Every one of `ranks` devices makes a part of some rows, says when it is there, and takes the others'
 * parts from their memory. It writes nothing there: a kernel that stores into another device's memory ends only when
 * that has said that it came, and what is behind it waits so long (docs/log/2026-11-28-exchanges.md).
 *
 * ek_exchange_words: of few rows. A word of 4 bytes lies beside the number of its exchange, both stored at once, in the
 * landing of the device that made it; who wants it reads until the number is there. ek_exchange_rows: of any rows. A
 * device says behind all of them that they are there, and they are read where they lie.
 *
 * So what lies in a landing, or in rows of ek_exchange_rows, may be written again behind the next exchange, not before:
 * who has taken that knows that the others have begun it, so that they have taken what was in front.
 *
 * No block waits for another one of its own device, and in the order of blocks those that leave words of a span, or say
 * that rows are there, come before all that wait for that span: so what is waited for runs or has run, however many
 * blocks run at once. */
#ifndef EK_CUDA_EXCHANGE_ARGS_H
#define EK_CUDA_EXCHANGE_ARGS_H

#include "cuda/args.h"

enum {
    EK_CUDA_EXCHANGE_RANKS = 8,
    EK_CUDA_EXCHANGE_PIECES = 2, /* buffers of an exchange, */
    EK_CUDA_EXCHANGE_SPANS = 6,  /* spans of rows of both: of a record codes of each limb, and scales */
    EK_CUDA_EXCHANGE_BLOCKS = 64,
    EK_CUDA_EXCHANGE_THREADS = 256,
    EK_CUDA_EXCHANGES = 4096,        /* of a step, at most */
    EK_CUDA_EXCHANGE_STEPS = 1 << 19 /* are counted; then landings and controls are zeroed, and they begin at 0 */
};

enum {
    EK_CUDA_WORDS_ROWS = 4,         /* of a step that go in words at most (docs/CUDA.md) */
    EK_CUDA_LANDINGS = 5,           /* of exchanges of a layer in turns; the last is of logits */
    EK_CUDA_LANDING_BYTES = 8 << 20 /* of one, at most */
};

/* What a device has for exchanges, zeros at first. ready: the number of the last exchange for which its rows are there;
 * lost: another one did not come, and nothing waits any more. */
typedef struct ek_cuda_exchange_control {
    uint32_t ready, lost, unused[14];
} ek_cuda_exchange_control;

/* Rows of ld bytes each, of which every device has room for all. */
typedef struct ek_cuda_exchange_piece {
    ek_cuda_ptr at[EK_CUDA_EXCHANGE_RANKS]; /* on each device */
    ek_cuda_ptr first;                      /* bytes in front of the first row */
    int64_t ld;
    int32_t rows;
    int32_t place; /* of the first row in a landing, in words */
} ek_cuda_exchange_piece;

/* Of each row of a piece the bytes [from, from + bytes) that each device makes: multiples of 4. */
typedef struct ek_cuda_exchange_span {
    int32_t piece;
    int32_t from[EK_CUDA_EXCHANGE_RANKS], bytes[EK_CUDA_EXCHANGE_RANKS];
    int32_t unused;
} ek_cuda_exchange_span;

enum { EK_CUDA_PUT = 1, EK_CUDA_TAKE = 2 };

/* Grid (up to EK_CUDA_EXCHANGE_BLOCKS, ranks - 1, spans), EK_CUDA_EXCHANGE_THREADS threads. The exchange's number is
 * EK_CUDA_EXCHANGES times its step's, plus index. Waits for `limit` nanoseconds at most. */
typedef struct ek_cuda_exchange_args {
    ek_cuda_ptr landing[EK_CUDA_EXCHANGE_RANKS], control[EK_CUDA_EXCHANGE_RANKS]; /* of each device */
    ek_cuda_ptr step; /* uint64: the step's number in its lower half */
    uint64_t limit;
    int32_t ranks, rank, index; /* index: from 1 */
    int32_t half;               /* 0: both; the emulated device launches a kernel twice, by these */
    ek_cuda_exchange_piece piece[EK_CUDA_EXCHANGE_PIECES];
    ek_cuda_exchange_span span[EK_CUDA_EXCHANGE_SPANS];
} ek_cuda_exchange_args;

#endif
