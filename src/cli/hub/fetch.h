/* Fetches a model from the Hub into the cache for a person: with a bar on a terminal, with lines elsewhere. */
#ifndef EK_CLI_HUB_FETCH_H
#define EK_CLI_HUB_FETCH_H

#include "cli/frame/cli.h"
#include "hub/name.h"

/* Fetches --model from the Hub before it is opened, if it is a name there and not in the cache. Asks first, or fetches
 * at once with --yes. EK_OK if nothing has to be fetched, or nobody can be asked. */
ek_err ek_cli_fetch_missing(const ek_cli *cli);

/* The recommended short name for this machine; NULL: none fits. */
const ek_hub_short *ek_cli_recommended(const ek_cli *cli);

/* For `run` without a model: offers the recommended model to a person at a terminal, by name and size. Returns its name
 * after a yes; NULL: the bundled model is used. Asks until there is an answer; a no is kept in evenkeel/bundled of
 * XDG_STATE_HOME. *said: NULL, or a line that is neither yes nor no and was meant for the model; the caller frees it.
 */
const char *ek_cli_offer(const ek_cli *cli, char **said);

#endif
