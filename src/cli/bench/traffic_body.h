/* What the requests of a traffic say, and when they begin: pure functions of it. */
#ifndef EK_CLI_TRAFFIC_BODY_H
#define EK_CLI_TRAFFIC_BODY_H

#include "base/buf.h"
#include "cli/bench/traffic.h"

enum { EK_TRAFFIC_REPEATED = UINT32_MAX }; /* number of the request that is sent again and again */

/* Of a client's request i. */
uint32_t ek_traffic_number(const ek_traffic *t, int client, int i);
/* The text of its only message. */
void ek_traffic_prompt(ek_buf *out, const ek_traffic *t, uint32_t number);
/* Seconds before its first request. */
double ek_traffic_delay(const ek_traffic *t, int client);

#endif
