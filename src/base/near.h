/* The distance between a mistyped word and an existing one. */
#ifndef EK_BASE_NEAR_H
#define EK_BASE_NEAR_H

#include <stddef.h>

/* The number of edits that turn a into b. An edit inserts, deletes or replaces a letter, or exchanges two neighbours.
 * na and nb are bytes; only the first 32 count. */
int ek_distance(const char *a, size_t na, const char *b, size_t nb);

/* The distance of typed (n bytes) from name: 0 if equal, EK_NOT_NEAR if not near. Two words are near if their edit
 * distance is at most a third of name's letters, or if one begins with the other and has at least three letters. */
enum { EK_NOT_NEAR = 32 };
int ek_near(const char *typed, size_t n, const char *name);

#endif
