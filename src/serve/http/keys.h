/* API keys, and the paths that need none. Event loop's thread. */
#ifndef EK_SERVE_KEYS_H
#define EK_SERVE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_keys ek_keys;

/* given: keys separated by commas, or NULL. path: a file with one key per line (empty lines and lines that start with #
 * are skipped), or NULL. EINVAL for a key with characters that a header cannot hold and for a file without a key;
 * ENOTFOUND, EIO. */
ek_err ek_keys_open(ek_keys **out, const char *given, const char *path);
/* Reads the file again; an error changes nothing. */
ek_err ek_keys_reload(ek_keys *k);
int ek_keys_count(const ek_keys *k);
/* Whether this is a key; NULL is none. The time depends on the length of `key` only, not on the number of right
 * bytes. */
bool ek_keys_allow(const ek_keys *k, const char *key);
/* A number for a valid key, the same in every process, never 0; separates data that keys must not share. */
uint64_t ek_keys_identity(const char *key);
void ek_keys_close(ek_keys *k); /* NULL is fine */

/* --- paths that need no key, from --open-paths; health is always open --- */

#define EK_OPEN_PATHS_DEFAULT "/metrics,/load,/version,loopback"

typedef struct ek_open_paths {
    unsigned everybody; /* a bit for each path that is open to everybody */
    bool loopback; /* this machine may use all paths that can be opened, except the models, by which clients find out
                      whether a key is valid */
} ek_open_paths;

/* Paths separated by commas, and the word loopback; "" or "none": no path. EINVAL names an unknown item. */
ek_err ek_open_paths_parse(ek_open_paths *out, const char *text);
/* Whether the path can be opened; it may lack its /v1, or have one too many. */
bool ek_open_paths_knows(const char *path);
bool ek_open_paths_to_all(const ek_open_paths *o, const char *path);
bool ek_open_paths_to_loopback(const ek_open_paths *o, const char *path);

#endif
