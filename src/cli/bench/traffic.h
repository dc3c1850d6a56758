/* Traffic of chat clients against an OpenAI-compatible server: how fast replies come, and whether equal requests get
 * equal text. Every client is a thread that waits for its own reply (closed loop); the requests are a pure function of
 * ek_traffic, so that two servers get the same ones. Call ek_curl_load before. */
#ifndef EK_CLI_TRAFFIC_H
#define EK_CLI_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "chat/prompt.h"
#include "engine/engine.h"

typedef struct ek_traffic_server {
    char *base;      /* owned: its address, ends in /v1 */
    char *model;     /* owned: the first of its /v1/models */
    const char *key; /* bearer token, borrowed; NULL: none */
} ek_traffic_server;

/* url is http://HOST:PORT, with or without /v1. Asks for the server's models. EIO where it cannot be reached or
 * refuses, EFORMAT where the reply is no list of models. Close it also after a failure. */
ek_err ek_traffic_open(ek_traffic_server *s, const char *url, const char *key);
void ek_traffic_close(ek_traffic_server *s);

typedef struct ek_traffic {
    int clients;      /* that wait for a reply at the same time */
    int each;         /* requests of a client, one after the other */
    int prompt_words; /* of the repeated request; the others have half to one and a half times as many */
    int max_tokens;   /* of a reply */
    uint32_t seed;    /* of the other prompts and of the delays before the first requests */
    double max_delay; /* seconds: a client begins at a random time within */
    double timeout;   /* seconds for a whole reply */
} ek_traffic;

/* Times are seconds. Quantiles are over all replies or all gaps of the run. */
typedef struct ek_traffic_result {
    int requests, failed;
    char error[200];                  /* the first failure, "" if none */
    double seconds;                   /* from the first request to the last reply */
    int64_t prompt_tokens, tokens;    /* as the server counts them; pieces where it does not say */
    bool counted;                     /* the server said how many tokens all replies had */
    double first_p50, first_p95;      /* time to the first piece of text: median, 95 of 100 */
    double gap_p50, gap_p95, gap_max; /* between two pieces of one reply */
    uint64_t *text;                   /* hashes of the replies to the repeated request; owned */
    int repeated;                     /* how many */
} ek_traffic_result;

/* The largest number of equal hashes. */
int ek_traffic_agree(const uint64_t *text, int n);

/* Runs it once and waits for the end. EK_OK also when requests failed: `failed` counts them. ENOMEM when threads cannot
 * be started. Free out->text also then. */
ek_err ek_traffic_run(const ek_traffic_server *s, const ek_traffic *t, ek_traffic_result *out);
/* The same requests straight into an engine whose thread runs, with the tokens that m makes of them; no times but
 * `seconds`, no text. The errors of ek_turn_prompt_make. */
ek_err ek_traffic_run_engine(ek_engine *e, const ek_chat_model *m, const ek_traffic *t, ek_traffic_result *out);

#endif
