/* Pages from the server: a thread of their own asks for several at a time, and the store's thread takes what came,
 * never waiting longer than a bound. Inside src/cache/shared. */
#ifndef EK_CACHE_SHARED_READS_H
#define EK_CACHE_SHARED_READS_H

#include "cache/shared/line.h"

typedef struct ek_shared_reads ek_shared_reads;

ek_err ek_shared_reads_open(ek_shared_reads **out, ek_shared *s);
/* s->stop is set before. NULL is allowed. */
void ek_shared_reads_close(ek_shared_reads *r);

/* --- the store's thread */

/* What was asked for so far is not wanted any more: it may be there by now. */
void ek_shared_reads_begin(ek_shared_reads *r);
/* A record of at most `bytes` will be taken; in the order of these calls. */
void ek_shared_reads_ask(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes);
/* The record, asked for before or now: n bytes, to be given back before the next is taken; more than `bytes` are not
 * there, whatever n says. NULL: the server has none, or is away, or does not answer in time. What was asked for before
 * it is not wanted any more. */
const uint8_t *ek_shared_reads_take(ek_shared_reads *r, const ek_chain *chain, int kind, size_t bytes, size_t *n);
void ek_shared_reads_give(ek_shared_reads *r, int kind, const uint8_t *data);

#endif
