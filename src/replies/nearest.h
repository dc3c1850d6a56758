/* Finds the stored request nearest to a request without a stored reply, and names the differences. The nearest one has
 * the longest common beginning of the prompt and, among equals, the fewest other differences. It serves a message only.
 */
#ifndef EK_REPLIES_NEAREST_H
#define EK_REPLIES_NEAREST_H

#include "base/buf.h"
#include "replies/key.h"

/* A set of requests; each takes 4 bytes per prompt token and about 200 more. */
typedef struct ek_reply_requests ek_reply_requests;

ek_reply_requests *ek_reply_requests_open(void);
void ek_reply_requests_close(ek_reply_requests *r); /* NULL is allowed */
/* Copies ask; key: ask's. Not during any other call. */
void ek_reply_requests_add(ek_reply_requests *r, const ek_reply_key *key, const ek_reply_ask *ask);
/* Call it once, after all requests were added. */
void ek_reply_requests_sort(ek_reply_requests *r);
size_t ek_reply_requests_count(const ek_reply_requests *r);

/* Appends "KEY: DIFFERENCE; …" of the nearest request, or nothing if there is none. Any thread. Takes two lookups among
 * n prompts and at most 1,024 comparisons of options. */
void ek_reply_nearest(ek_buf *out, const ek_reply_requests *r, const ek_reply_ask *ask);

#endif
