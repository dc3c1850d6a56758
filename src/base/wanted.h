/* Whether anybody still waits for what a thread computes: who gives it work says so, and work that takes long asks
 * between its stages, so that what nobody waits for ends soon. */
#ifndef EK_BASE_WANTED_H
#define EK_BASE_WANTED_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"

/* Of this thread, from now on: true in *dropped, by any thread, says that nobody waits any more. NULL: somebody
 * always does, as at first. */
void ek_wanted_until(const atomic_bool *dropped);
bool ek_is_wanted(void);
ek_err ek_wanted_check(void); /* ECANCELLED where it is not */

#endif
