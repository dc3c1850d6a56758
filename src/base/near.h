/* How near a mistyped word is to one that exists. */
#ifndef EK_BASE_NEAR_H
#define EK_BASE_NEAR_H

#include <stddef.h>

/* Steps that make b of a: a letter more, less, another, or two neighbours exchanged; na and nb bytes, of which at most
 * 32 are looked at. */
int ek_distance(const char *a, size_t na, const char *b, size_t nb);

/* How far typed (n bytes) is from name: 0 is the same, EK_NOT_NEAR that it is not near. Near is within a third of
 * name's letters, or one of both begins with the other, three letters at least. */
enum { EK_NOT_NEAR = 32 };
int ek_near(const char *typed, size_t n, const char *name);

#endif
