/* Pages for the server: a queue within a bound, and a thread that sends what the server does not have. Inside
 * src/cache/shared. */
#ifndef EK_CACHE_SHARED_WRITES_H
#define EK_CACHE_SHARED_WRITES_H

#include "cache/shared/line.h"

typedef struct ek_shared_writes ek_shared_writes;

ek_err ek_shared_writes_open(ek_shared_writes **out, ek_shared *s);
/* Sends what waits, for at most so many seconds, and only while that works. NULL is allowed. */
void ek_shared_writes_close(ek_shared_writes *w, double seconds);

/* --- the store's thread */

/* A page is copied to the queue; one for which there is no room, also after a moment, is dropped and counted. */
void ek_shared_writes_put(ek_shared_writes *w, const ek_store_page *p, int kind);
/* The key is to be deleted. */
void ek_shared_writes_drop(ek_shared_writes *w, const ek_chain *chain, int kind);

/* --- any thread */

/* Things put into the queue so far, and whether the first n of them have left it, or cannot now. */
uint64_t ek_shared_writes_given(ek_shared_writes *w);
bool ek_shared_writes_settled(ek_shared_writes *w, uint64_t n);

#endif
