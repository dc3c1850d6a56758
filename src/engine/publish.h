/* Last events that wait until pages can be read by other processes: for who is about to ask another one for the rest.
 * Engine's thread. */
#ifndef EK_ENGINE_PUBLISH_H
#define EK_ENGINE_PUBLISH_H

#include "engine/state.h"

/* The request, which has left the engine, and its last event, if that has to wait: both are the list's then. */
bool ek_publish_holds(ek_engine *e, ek_request *r, const ek_event *event);
/* The next whose time has come, of all of them with `now`: its event is to be sent, and both freed by ek_publish_end.
 * NULL: none. */
struct ek_leaving *ek_publish_next(ek_engine *e, bool now);
const ek_request *ek_publish_request(const struct ek_leaving *l);
const ek_event *ek_publish_event(const struct ek_leaving *l);
void ek_publish_end(struct ek_leaving *l);

#endif
