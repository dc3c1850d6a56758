/* Is this server fit to be sent requests? A canary, a short fixed prompt, is answered by the engine beside everything
 * else, and its digest has to be the same every time; a watchdog notices steps that do not end. Event loop's thread. */
#ifndef EK_SERVE_READY_H
#define EK_SERVE_READY_H

#include "engine/engine.h"

struct ek_server;

typedef struct ek_canary ek_canary;

typedef enum ek_readiness {
    EK_READY,
    EK_READY_STARTING, /* the canary has not been answered twice */
    EK_READY_STALLED,  /* no step ended for a while, though requests run */
    EK_READY_WRONG,    /* a canary's digest was another one: until the process ends */
    EK_READY_STOPPING
} ek_readiness;

ek_readiness ek_ready(const struct ek_server *s);
const char *ek_ready_name(ek_readiness r);

/* Starts the canary; call when the engine's thread runs. */
void ek_ready_start(struct ek_server *s);
/* Several times a second: the watchdog, answers of the canary, the next one. */
void ek_ready_tick(struct ek_server *s);
/* After the engine has stopped. */
void ek_ready_close(struct ek_server *s);

#endif
