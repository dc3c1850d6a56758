/* The engine on a model: the one place that calls the forward pass. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/log.h"
#include "engine/state.h"

struct on_model {
    ek_model *model;
    ek_scratch *scratch;
};

static ek_err open_scratch(void *arg, int max_rows, int max_logits, int max_ctx)
{
    struct on_model *on = arg;
    return ek_scratch_open(&on->scratch, on->model, max_rows, max_logits, max_ctx);
}

static ek_err forward(void *arg, const ek_row *rows, int n_rows, const ek_seq *seqs, int n_seqs, float *logits,
                      ptrdiff_t ld)
{
    struct on_model *on = arg;
    return ek_model_forward(on->model, on->scratch, rows, n_rows, seqs, n_seqs, logits, ld);
}

static void close_scratch(void *arg)
{
    struct on_model *on = arg;
    if (on->scratch) ek_scratch_close(on->scratch);
    free(on);
}

ek_backend ek_backend_model(ek_model *m)
{
    struct on_model *on = ek_alloc(sizeof *on);
    on->model = m;
    return (ek_backend){.config = ek_model_config(m),
                        .layout = ek_model_kv_layout(m),
                        .cpu = ek_cpu_detect(),
                        .pool = ek_model_pool(m),
                        .arg = on,
                        .open = open_scratch,
                        .forward = forward,
                        .close = close_scratch};
}

ek_err ek_engine_open(ek_engine **out, ek_model *model, const ek_engine_opts *opts)
{
    ek_backend on = ek_backend_model(model);
    EK_TRY(ek_engine_open_on(out, &on, opts));
    (*out)->model = model;
    return EK_OK;
}
