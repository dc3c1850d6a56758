/* Calls of one message that share an id, in a request as the chat template takes it. */
#ifndef EK_CHAT_SAME_IDS_H
#define EK_CHAT_SAME_IDS_H

#include <jansson.h>

/* The template gives a result the name of the last call of its id; the server gives results to such calls in turn
 * (chat/order.h). Returns the request with an id of its own for each such call and its results, which pairs them as the
 * server does; NULL if no message has two calls of one id or without one, or if a result there answers no call: the
 * request is then what the template takes it for. The caller owns the result. n log n for n calls and results. */
json_t *ek_same_ids_apart(const json_t *request);

#endif
