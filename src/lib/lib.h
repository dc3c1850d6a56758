/* Code that all operators of the library share: the call (threads, working memory, instruction set) and its views in a
 * checked form. Internal to src/lib. */
#ifndef EK_LIB_LIB_H
#define EK_LIB_LIB_H

#include <stdalign.h>

#include "base/err.h"
#include "ops/attn/attn_rows.h"
#include "ops/convert.h"
#include "ops/linear/decoded.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_b.h"
#include "ops/rows/rows.h"

#include <evenkeel_ops.h>

/* One operator call. Working memory lives until lib_leave and is reused by the next call. */
typedef struct lib_call {
    unsigned cpu;
    int n_workers; /* tasks that may run at the same moment, at least 1 */
    struct lib_blocks *memory;
    struct lib_blocks *own; /* used if another thread's call has the pool */
    bool alone;             /* the pool is busy: everything runs on this thread */
} lib_call;

/* Begins a call: takes the pool if it is free. EUNSUPPORTED if the machine does not compute in IEEE binary32. Every
 * successful lib_enter needs a lib_leave. */
ek_err lib_enter(lib_call *c);
void lib_leave(lib_call *c);

/* The status of an operator: e, which yields an ek_err, within a call named c. */
#define LIB_OPERATE(c, e)             \
    ({                                \
        lib_call c;                   \
        ek_err err = lib_enter(&(c)); \
        if (!err) {                   \
            err = (e);                \
            lib_leave(&(c));          \
        }                             \
        lib_status(err);              \
    })

/* Returns n bytes of working memory, 64-byte aligned, not cleared, owned by the call; NULL (message set by ek_fail)
 * without memory. n = 0 is allowed. */
void *lib_take(lib_call *c, size_t n);
/* The same for count * size bytes; an overflow of the product counts as no memory. */
void *lib_take_array(lib_call *c, size_t count, size_t size);

/* Calls fn(arg, task, worker) for every task in [0, n_tasks), worker in [0, c->n_workers).
 * Each task runs in the floating-point environment that the arithmetic needs. Returns when all are done. */
typedef void lib_task(void *arg, int64_t task, int worker);
void lib_run(lib_call *c, lib_task *fn, void *arg, int64_t n_tasks);

/* Maps an internal result to the public status. */
ek_status lib_status(ek_err e);

/* For tests: sets the instruction sets (EK_CPU_*) that the library may use from now on. */
void lib_force_cpu(unsigned cpu);
unsigned lib_cpu(void);

/* --- views in the operators' form: checked once, strides in bytes --- */

/* The kernels that the library calls, one table per operator, and one set of tables per set of CPU flags. */

_Static_assert((int)EK_TYPE_F32 == (int)EK_F32 && (int)EK_TYPE_F16 == (int)EK_F16 && (int)EK_TYPE_BF16 == (int)EK_BF16,
               "the public types and the engine's count floats alike");

static inline ek_dtype lib_dtype(ek_type t) /* of a float type */
{
    return (ek_dtype)t;
}

static inline float lib_float_at(const uint8_t *from, ek_type t)
{
    return ek_load_float(from, lib_dtype(t));
}

typedef struct lib_kernels {
    ek_convert_ops convert;
    ek_decoded_ops product;
    ek_linear_ops linear;
    ek_linear_b_ops linear_b;
    ek_row_ops rows;
    ek_attn_rows_ops attn;
} lib_kernels;

/* Returns the kernel tables for the CPU flags cpu (EK_CPU_*): those of this machine or a subset. The tables are
 * filled once and never written again, so every core may keep a copy in its cache. The library owns them. */
const lib_kernels *lib_kernels_of(unsigned cpu);

typedef struct lib_view {
    uint8_t *data;
    ek_type type;
    int n_dims;
    int64_t dim[EK_VIEW_DIMS];
    int64_t stride[EK_VIEW_DIMS]; /* bytes */
    int64_t count;                /* elements */
} lib_view;

enum { LIB_SHAPE_TEXT = 192 };

/* Checks v and writes it to out. EINVAL; `what` names the view in the message. A checked view is small enough that
 * no later sum of sizes or offsets overflows. */
ek_err lib_view_check(lib_view *out, const ek_view *v, const char *what);
bool lib_is_float(ek_type t);
size_t lib_type_size(ek_type t);
const char *lib_shape(char text[LIB_SHAPE_TEXT], const lib_view *v); /* "[3, 256] of f32" */

static inline int64_t lib_dim(const lib_view *v, int from_end) /* 1 is the last */
{
    return v->dim[v->n_dims - from_end];
}
static inline int64_t lib_stride(const lib_view *v, int from_end)
{
    return v->stride[v->n_dims - from_end];
}

/* Byte offset of index combination i (row-major) over the first n_dims dims. */
int64_t lib_offset(const lib_view *v, int n_dims, int64_t i);

/* Numpy's rule over the first n_dims dims: v gets the n_lead leading dims lead[]; missing dims
 * and dims of 1 become stride 0. Returns false if they do not fit. The last n_tail dims stay as they are. */
bool lib_broadcast(lib_view *v, int n_lead, const int64_t *lead, int n_tail);
/* lead becomes the shape that lead and v's leading dims broadcast to. Returns false if they do not fit. */
bool lib_join(int *n_lead, int64_t *lead, const lib_view *v, int n_tail);

/* Replace v by a dense copy in working memory, as f32 or in its own type; dims of stride 0 keep stride 0. ENOMEM. */
ek_err lib_make_f32(lib_call *c, const lib_kernels *k, lib_view *v);
ek_err lib_make_dense(lib_call *c, lib_view *v);
/* Whether rows along the last dim can be read as float arrays. */
bool lib_rows_readable(const lib_view *v);

void lib_load(const lib_kernels *k, float *to, const uint8_t *from, ek_type t, int64_t stride, int64_t n);
void lib_store(const lib_kernels *k, uint8_t *to, ek_type t, int64_t stride, const float *from, int64_t n);

/* An output. EINVAL if its elements share memory. If it may share memory with an input, the operator
 * writes to working memory and lib_out_end copies the result. */
typedef struct lib_out {
    lib_view view; /* the memory to which the operator writes */
    lib_view final;
    bool staged;
} lib_out;
ek_err lib_out_check(const lib_view *y, const char *what);
ek_err lib_out_begin(lib_call *c, lib_out *o, const lib_view *y, int n_in, const lib_view *const *in);
void lib_out_end(lib_call *c, lib_out *o);
/* Copies from to to: any types of equal size, or floats of any type. */
void lib_copy(lib_call *c, const lib_kernels *k, const lib_view *to, const lib_view *from);

#endif
