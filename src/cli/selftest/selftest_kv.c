#include "cli/selftest/selftest.h"

#include <stdio.h>

#include "base/hash/rng.h"
#include "engine/trace.h"

enum { N = 2, LONG = 290, SHORT = 70, REPLY = 6, CTX = 512 };

typedef struct kv_row {
    int32_t token[N][LONG];
    ek_ask ask[N];
    ek_config config;
    const char *format; /* for messages */
    int start;
    char *where;
    size_t room;
} kv_row;

static bool fail(const kv_row *k, const char *what, const char *why)
{
    snprintf(k->where, k->room, "--kv %s%s, %s: %.120s", k->format, k->start ? " --kv-start 256" : "", what, why);
    return false;
}

/* Runs request `which`, or all of them if it is negative, `times` times in one engine; the last time counts. */
static ek_err run(const kv_row *k, ek_model *m, int which, int chunk, int times, ek_trace *out)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    o.max_requests = N;
    o.chunk = chunk;
    o.ctx_tokens = CTX;
    o.kv_bytes = 64 << 20;
    EK_TRY(ek_engine_open(&e, m, &o));
    ek_ask ask[N];
    int n = which < 0 ? N : 1;
    ek_err err = EK_OK;
    for (int t = 0; t < times && !err; t++) {
        for (int i = 0; i < n; i++) {
            if (t > 0) ek_trace_fini(&out[i]);
            ask[i] = k->ask[which < 0 ? i : which];
            if (t > 0) ask[i].prompt_logits_from = ask[i].n_tokens;
        }
        err = ek_trace_run(e, ask, n, out);
    }
    ek_engine_close(e);
    return err;
}

static bool agree(const kv_row *k, ek_model *m, const char *what, int chunk, int times, const ek_trace *want)
{
    char why[160];
    ek_trace got[N] = {0};
    bool good = run(k, m, -1, chunk, times, got) == EK_OK || fail(k, what, ek_err_text());
    for (int i = 0; i < N && good; i++) good = ek_trace_same(&want[i], &got[i], why, sizeof why) || fail(k, what, why);
    if (good && times > 1 && got[0].n_cached < LONG - 1) good = fail(k, what, "the prompt was not cached");
    for (int i = 0; i < N; i++) ek_trace_fini(&got[i]);
    return good;
}

/* The short request, computed by the plain definition. */
static bool as_defined(const kv_row *k, ek_model_opts o, const ek_trace *want)
{
    char why[160];
    ek_model *m = NULL;
    ek_trace got = {0};
    o.cpu = 0;
    bool good = ek_model_synthetic(&m, &k->config, 0, 1, &o) == EK_OK || fail(k, "scalar", ek_err_text());
    if (good) good = run(k, m, 1, CTX, 1, &got) == EK_OK || fail(k, "scalar", ek_err_text());
    if (good) good = ek_trace_same(want, &got, why, sizeof why) || fail(k, "scalar", why);
    ek_trace_fini(&got);
    ek_model_close(m);
    return good;
}

static bool check_format(kv_row *k, ek_model_opts o)
{
    ek_trace want[N] = {0};
    ek_model *m = NULL;
    bool good = ek_model_synthetic(&m, &k->config, 0, 1, &o) == EK_OK || fail(k, "alone", ek_err_text());
    for (int i = 0; i < N && good; i++)
        good = run(k, m, i, CTX, 1, &want[i]) == EK_OK || fail(k, "alone", ek_err_text());
    if (good) good = agree(k, m, "together in chunks", 37, 1, want);
    if (good) good = agree(k, m, "over cached pages", CTX, 2, want);
    if (good && o.cpu) good = as_defined(k, o, &want[1]);
    for (int i = 0; i < N; i++) ek_trace_fini(&want[i]);
    ek_model_close(m);
    return good;
}

bool ek_selftest_kv_formats(unsigned cpu, char *did, char *where, size_t room)
{
    kv_row k = {.where = where, .room = room};
    int formats = 0, starts = 0;
    if (ek_config_tiny(&k.config, "T2") != EK_OK) return fail(&k, "configuration", ek_err_text());
    k.config.max_position_embeddings = CTX;
    for (int i = 0; i < N; i++) {
        int n = i ? SHORT : LONG;
        for (int t = 0; t < n; t++)
            k.token[i][t] = (int32_t)(ek_mix64((uint64_t)(i * LONG + t)) % (uint64_t)k.config.vocab_size);
        k.ask[i] = (ek_ask){.tokens = k.token[i],
                            .n_tokens = n,
                            .max_tokens = REPLY,
                            .ignore_eos = true,
                            .sampling = ek_sampling_greedy()};
    }
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        for (int start = 0; start < 2; start++) {
            ek_kv_format format = (ek_kv_format)f;
            if (start && ek_kv_start_format(format) == format) continue;
            k.format = ek_kv_format_name(format);
            k.start = start * EK_SEGMENT;
            ek_model_opts o = {.cpu = cpu, .k_format = format, .v_format = format, .kv_start = k.start};
            if (!check_format(&k, o)) return false;
            formats += !start, starts += start;
        }
    snprintf(did, room, "%d formats, %d with --kv-start", formats, starts);
    return true;
}
