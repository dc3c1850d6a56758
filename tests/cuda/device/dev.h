/* What the tests on a device share. A failure of the driver ends the program; a difference of bits is
 * printed, counted and makes it exit 1. */
#ifndef EK_TESTS_CUDA_DEV_H
#define EK_TESTS_CUDA_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine/pool.h"
#include "cuda/args.h"
#include "cuda/attn_work.h"
#include "cuda/driver.h"
#include "cuda/memory.h"

typedef struct dev {
    ek_cuda *c;
    ek_pool *pool; /* for references */
    bool quick;    /* few small cases: for compute-sanitizer */
    bool few;      /* and of them one or two of each family of kernels: for `make check` */
    int passed, failed;
} dev;

/* Of so many cases. */
static inline int cases(const dev *d, int few, int quick, int all)
{
    return d->few ? few : d->quick ? quick : all;
}

void must(ek_err err); /* prints the sentence and exits 2 */

/* Device memory, NULL from: filled with 0xff bytes (NaN), so that what nobody wrote shows. */
CUdeviceptr up(dev *d, const void *from, size_t bytes);
void *down(dev *d, CUdeviceptr p, size_t bytes); /* malloc'ed */
void drop(dev *d, CUdeviceptr p);

ek_cuda_kernel find(dev *d, const char *name, size_t shared);
void launch(dev *d, const ek_cuda_kernel *k, ek_cuda_grid g, const void *args);

/* Counts a pass or a failure; frees got. floats: NaN equals NaN. */
__attribute__((format(printf, 6, 7))) bool same(dev *d, const void *want, void *got, size_t bytes, bool floats,
                                                const char *what, ...);

/* Median microseconds of queue(arg) captured `times` times into a graph. */
double time_us(dev *d, void (*queue)(void *arg, int i), void *arg, int times);

extern double stream_gbs; /* the read stream of this machine, from speed_stream */

float uniform(uint64_t seed, uint64_t i);                /* in [-1, 1) */
float *uniforms(size_t n, uint64_t seed, float largest); /* largest times n of them; malloc'ed */

void test_math(dev *d);
void test_rows(dev *d);
void test_pass(dev *d);
void test_pass_experts(dev *d);
void test_kv(dev *d);
void test_attn(dev *d);
void test_attn_int(dev *d);
void test_attn_whole(dev *d);
void test_sample(dev *d);
void test_linear(dev *d);
void test_gate(dev *d);
void test_heads(dev *d);
void test_image(dev *d);
void test_layer_end(dev *d);
void test_experts(dev *d);
void test_jobs(dev *d);
void test_planes(dev *d);
void test_sounds(dev *d); /* the towers of sounds, of test_tower */
void test_tower(dev *d);
void test_tensors_int(dev *d); /* large pictures, of test_tower */
void speed_layer_end(dev *d);
void speed_linear(dev *d);
void speed_floats(dev *d);
void speed_tower(dev *d);
void speed_tensors_int(dev *d, int heads, int rows, int dim);
void speed_choice(dev *d);
void speed_planes(dev *d);
void speed_stream(dev *d);
void speed_attn(dev *d);
void speed_attn_int(dev *d);
void speed_piece(dev *d);
void speed_prompt(dev *d);
void speed_sample(dev *d);
void speed_shallow(dev *d);

/* Runs the command, NULL at its end, while all but so many GiB of the device are taken; its exit status. Closes d. */
int hold_memory(dev *d, double left_gb, char **command);

/* Two products of a layer of E2B that read their weights from memory: what runs between two calls of attention. */
void open_among(dev *d, int rows);
void queue_among(int i);
void close_among(dev *d);

#endif
