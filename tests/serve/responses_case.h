/* Requests and replies of the Responses API without a server, for tests. */
#ifndef EK_TESTS_SERVE_RESPONSES_CASE_H
#define EK_TESTS_SERVE_RESPONSES_CASE_H

#include "reply_case.h"
#include "serve/store/response_store.h"

extern uint64_t responses_owner; /* of the requests that follow */

ek_err parse(ek_api_request *r, ek_response_store *store, const char *body);
/* What the template gets of a body with these members; fails the test unless it is want. */
void gives(ek_response_store *store, const char *members, const char *want);

/* A reply that has begun. */
void open_reply(scene *t, ek_response_store *store, const char *id, const char *body, bool stream);

#endif
