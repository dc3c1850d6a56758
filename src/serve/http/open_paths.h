/* Paths that need no API key: what --open-paths says. Health is open always. Pure. */
#ifndef EK_SERVE_OPEN_PATHS_H
#define EK_SERVE_OPEN_PATHS_H

#include <stdbool.h>

#include "base/err.h"

#define EK_OPEN_PATHS_DEFAULT "/metrics,/load,/version,loopback"

typedef struct ek_open_paths {
    unsigned everybody; /* bits of the paths that may be opened */
    bool loopback; /* all of them but the models, by which clients find out whether a key is valid, for this machine */
} ek_open_paths;

/* Paths with commas between, and the word loopback; "" or none: none. EINVAL names what is none of them. */
ek_err ek_open_paths_parse(ek_open_paths *out, const char *text);
/* Whether it is one of those that may be opened; a path may leave /v1 out, or have it too much. */
bool ek_open_paths_knows(const char *path);
bool ek_open_paths_to_all(const ek_open_paths *o, const char *path);
bool ek_open_paths_to_loopback(const ek_open_paths *o, const char *path);

#endif
