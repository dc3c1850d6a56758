/* The plan of the next step: which requests run, with which rows and draws. */
#ifndef EK_ENGINE_PLAN_H
#define EK_ENGINE_PLAN_H

#include "engine/state.h"

/* Moves requests from the wait queue into slots, in order of arrival, while there are pages for them. */
void ek_plan_admit(ek_engine *e);
/* Lists the rows and draws of the next step, preempting the youngest where pages run out. */
void ek_plan_make(ek_engine *e);

#endif
