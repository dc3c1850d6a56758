/* What a request whose reply is not stored differs in from the nearest one whose reply is: the one whose prompt is
 * equal for the longest, and of these the one with the fewest other differences. For a sentence; keys decide. */
#ifndef EK_REPLIES_NEAREST_H
#define EK_REPLIES_NEAREST_H

#include "base/buf.h"
#include "replies/key.h"

/* Requests: 4 bytes for each token of a prompt, and some 200. */
typedef struct ek_reply_requests ek_reply_requests;

ek_reply_requests *ek_reply_requests_open(void);
void ek_reply_requests_close(ek_reply_requests *r); /* NULL is allowed */
/* Copies what is asked; key: of ask. Not beside any other call. */
void ek_reply_requests_add(ek_reply_requests *r, const ek_reply_key *key, const ek_reply_ask *ask);
/* Once all are added. */
void ek_reply_requests_sort(ek_reply_requests *r);
size_t ek_reply_requests_count(const ek_reply_requests *r);

/* Appends "KEY: DIFFERENCE; …" of the nearest one; nothing where there is none. Any thread. Two lookups among n
 * prompts, and 1,024 comparisons of options at most. */
void ek_reply_nearest(ek_buf *out, const ek_reply_requests *r, const ek_reply_ask *ask);

#endif
