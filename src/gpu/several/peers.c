#include "gpu/several/state.h"

#include <sched.h>
#include <stdio.h>

#include "cuda/exchange_args.h"

/* Asks all devices in turn, because a device that waits for a failed one never ends by itself. */
static ek_err poll(ek_gpu_run *const *x, int n, uint64_t step)
{
    for (int left = n; left;) {
        left = 0;
        for (int i = 0; i < n; i++) {
            bool there;
            EK_TRY(ek_cuda_enter(x[i]->g->c));
            EK_TRY(ek_cuda_event_there(x[i]->g->c, ek_gpu_ended(&x[i]->flights, step), &there));
            left += !there;
        }
        if (left) sched_yield();
    }
    return EK_OK;
}

/* The error of a device for which another one waited until it gave up. */
static ek_err check_came(const ek_gpu_run *x, uint64_t step)
{
    const int32_t *control = x->flights.flight[step % (uint64_t)x->flights.n_flights].result + 4 * x->z.max_logits;
    if (!control[1]) return EK_OK;
    return ek_fail(EK_EINTERNAL, "%s:%d waited for what another device computes, which did not come",
                   ek_cuda_maker(x->g->c), ek_cuda_ordinal(x->g->c));
}

static bool any_broken(ek_gpu_run *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (ek_cuda_broken(x[i]->g->c)) return true;
    return false;
}

/* If this fails, waiting kernels give up by themselves later. */
static void let_go(ek_gpu_run *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i]->exchange.control && ek_cuda_enter(x[i]->g->c) == EK_OK)
            ek_cuda_fill_beside(x[i]->g->c, x[i]->exchange.control + offsetof(ek_cuda_exchange_control, lost), 0xff,
                                sizeof(uint32_t));
}

static ek_err clear(ek_gpu_run *x)
{
    EK_TRY(ek_cuda_enter(x->g->c));
    return ek_cuda_fill_beside(x->g->c, x->exchange.control, 0, sizeof(ek_cuda_exchange_control));
}

void ek_gpu_fail_later(ek_gpu_run *x, ek_err err, const char *why)
{
    if (!err || x->pending) return;
    x->pending = err;
    const bool broken = ek_cuda_broken(x->g->c);
    snprintf(x->pending_text, sizeof x->pending_text, "%s%s%s", ek_err_text(), broken ? "" : "; ", broken ? "" : why);
}

/* If a device's exchanges cannot be cleared, it would take earlier numbers for later ones: none of its steps begins any
 * more. */
static void begin_anew(ek_gpu_run *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (ek_cuda_enter(x[i]->g->c) == EK_OK) ek_cuda_sync(x[i]->g->c);
    for (int i = 0; i < n; i++) {
        const ek_err err = x[i]->exchange.control ? clear(x[i]) : EK_OK;
        ek_gpu_fail_later(x[i], err, "what devices wait for could not be cleared");
    }
}

void ek_gpu_release(ek_gpu_run *const *x, int n)
{
    if (n > 1) {
        for (uint64_t step = x[0]->flights.n_ended; step < x[0]->flights.n_begun && !any_broken(x, n); step++)
            if (poll(x, n, step)) break;
        let_go(x, n);
    }
    begin_anew(x, n);
}

/* Zeroes the words, so that no word has the number of a later exchange. */
static ek_err zero_landings(ek_gpu_run *const *x, int n)
{
    for (int i = 0; i < n; i++) {
        EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(ek_cuda_sync(x[i]->g->c));
    }
    for (int i = 0; i < n; i++) {
        EK_TRY(ek_cuda_enter(x[i]->g->c));
        EK_TRY(ek_cuda_fill_beside(x[i]->g->c, x[i]->exchange.landing, 0,
                                   EK_CUDA_LANDINGS * x[i]->exchange.landing_bytes));
        EK_TRY(clear(x[i]));
    }
    return EK_OK;
}

ek_err ek_gpu_number(ek_gpu_run *const *x, int n)
{
    if (x[0]->exchange.n_exchanged == EK_CUDA_EXCHANGE_STEPS) {
        EK_TRY(zero_landings(x, n));
        for (int i = 0; i < n; i++) x[i]->exchange.n_exchanged = 0;
    }
    for (int i = 0; i < n; i++) x[i]->exchange.n_exchanged++;
    return EK_OK;
}

ek_err ek_gpu_await(ek_gpu_run *const *x, int n, uint64_t step)
{
    char text[512];
    ek_err err = poll(x, n, step);
    for (int i = 0; i < n && !err; i++) err = check_came(x[i], step);
    if (!err) return EK_OK;
    snprintf(text, sizeof text, "%s", ek_err_text());
    let_go(x, n);
    begin_anew(x, n);
    return ek_fail(err, "%s", text);
}
