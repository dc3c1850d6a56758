/* The server's reports of itself: metrics and readiness. Event loop's thread. */
#ifndef EK_SERVE_STATUS_H
#define EK_SERVE_STATUS_H

#include "base/histogram.h"
#include "engine/engine.h"
#include "serve/http/http.h"

struct ek_server;

/* --- metrics: GET /metrics, Prometheus' text format; names: docs/DEPLOY.md --- */

/* The latest traced request of each histogram bin, for OpenMetrics. */
typedef struct ek_exemplar {
    char trace[33];
    double value, time; /* seconds since 1970; 0: none */
} ek_exemplar;

typedef struct ek_exemplars {
    ek_exemplar bin[EK_HISTOGRAM_BINS + 1];
} ek_exemplars;

typedef struct ek_exemplars_of {
    const char *name; /* name of the metric */
    const ek_exemplars *of;
} ek_exemplars_of;

/* Stores value, whose bin follows from `first`. trace: 32 hex digits, or "": none. */
void ek_exemplars_add(ek_exemplars *e, double first, double value, const char *trace);
/* Rewrites a text of Prometheus' format 0.0.4 as OpenMetrics, with exemplars. */
void ek_openmetrics_write(ek_buf *out, const char *text, size_t n, const ek_exemplars_of *of, int n_of);

typedef enum ek_outcome {
    EK_OUTCOME_DONE,
    EK_OUTCOME_REFUSED, /* with an HTTP status before anything was generated */
    EK_OUTCOME_FAILED,
    EK_OUTCOME_GONE, /* the client went away */
    EK_OUTCOME_TIMEOUT,
    EK_OUTCOME_CUT, /* the client did not read its stream */
    EK_OUTCOME_COUNT
} ek_outcome;

/* Counts of the server; the engine's counts are ek_engine_stats. */
typedef struct ek_metrics {
    uint64_t outcome[EK_OUTCOME_COUNT];
#define METRIC_COUNT(field, name, help) uint64_t field;
#define METRIC_TIMES(field, name, help) ek_histogram field;
#include "serve/metrics.def"
    struct {
        ek_exemplars prepare, first_token, whole;
    } traces;
    ek_buf text;      /* the latest reply */
    double text_made; /* ek_now() */
} ek_metrics;

const char *ek_outcome_name(ek_outcome o);
/* Appends the engine's metrics and those of the decoders. */
void ek_metrics_engine(ek_buf *out, const ek_engine_stats *st);
void ek_metrics_reply(struct ek_server *s, ek_exchange *x, const char *rest);

/* --- readiness --- */

/* The engine answers a short fixed prompt besides all requests. Its digest must be the same every time. A watchdog
 * notices steps that do not end. */
typedef struct ek_canary ek_canary;

typedef enum ek_readiness {
    EK_READY,
    EK_READY_STARTING, /* the canary has not been answered twice */
    EK_READY_STALLED,  /* no step ended for a while although requests run */
    EK_READY_WRONG,    /* a canary's digest differed; stays until the process ends */
    EK_READY_STOPPING
} ek_readiness;

ek_readiness ek_ready(const struct ek_server *s);
const char *ek_ready_name(ek_readiness r);

/* Starts the canary; call when the engine's thread runs. */
void ek_ready_start(struct ek_server *s);
/* Runs the watchdog, takes a canary's answer and submits the next canary. Call several times a second. */
void ek_ready_tick(struct ek_server *s);
/* Call after the engine has stopped. */
void ek_ready_close(struct ek_server *s);

#endif
