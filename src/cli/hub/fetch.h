/* A model from the Hub into the cache, watched by a person: on a terminal a bar shows how far it is, elsewhere lines
 * do. */
#ifndef EK_CLI_HUB_FETCH_H
#define EK_CLI_HUB_FETCH_H

#include "cli/frame/cli.h"
#include "hub/name.h"

typedef struct ek_cli_fetch_opts {
    int connections, retries; /* as of pull */
    bool ask;                 /* says size and folder and waits for a yes; ECANCELLED without one */
} ek_cli_fetch_opts;

/* Appends the path of what can be opened. Ctrl-C ends it with ECANCELLED; what came is kept. */
ek_err ek_cli_fetch(ek_buf *path, const ek_cli_fetch_opts *o, const ek_hub_name *name);

/* Before a model is opened: fetches what --model names on the Hub and the cache has not, after a question, or without
 * one with --yes. EK_OK where there is nothing to fetch, and where nobody can be asked. */
ek_err ek_cli_fetch_missing(const ek_cli *cli);

/* The short name to begin with on this machine; NULL: none fits. */
const ek_hub_short *ek_cli_recommended(const ek_cli *cli);

/* For `run` without a model: offers the recommended one to a person at a terminal, by name and size. Returns its name
 * after a yes; NULL: the bundled model it is. Asks until there is an answer: a no is kept in evenkeel/bundled of
 * XDG_STATE_HOME. *said: NULL, or a line that is neither yes nor no, which was meant for the model; to be freed. */
const char *ek_cli_offer(const ek_cli *cli, char **said);

#endif
