/* Who shares the next step. */
#ifndef EK_ENGINE_PLAN_H
#define EK_ENGINE_PLAN_H

#include "engine/state.h"

/* Gives slots to the wait queue in order of arrival, as far as pages go. */
void ek_plan_admit(ek_engine *e);
/* Lists the rows and draws of the next step, preempting the youngest where pages run out. */
void ek_plan_make(ek_engine *e);

#endif
