/* Who may use what: API keys, and the paths that need none. Event loop's thread. */
#ifndef EK_SERVE_KEYS_H
#define EK_SERVE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ek_keys ek_keys;

/* given: keys with commas between, or NULL. path: a file with one key per line (empty lines and lines that start with
 * # do not count), or NULL. EINVAL for a key with characters that a header cannot hold or a file without a key;
 * ENOTFOUND, EIO. */
ek_err ek_keys_open(ek_keys **out, const char *given, const char *path);
/* Reads the file again; on failure everything stays as it was. */
ek_err ek_keys_reload(ek_keys *k);
int ek_keys_count(const ek_keys *k);
/* Is this a key? NULL is none. The time depends on the length of key alone, not on how much of it is right. */
bool ek_keys_allow(const ek_keys *k, const char *key);
/* A number that stands for a valid key, the same in every process, never 0; for what keys shall not share. */
uint64_t ek_keys_identity(const char *key);
void ek_keys_close(ek_keys *k); /* NULL is fine */

/* --- paths that need no key: what --open-paths says; health is always open --- */

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
