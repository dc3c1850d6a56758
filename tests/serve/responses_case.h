/* Requests and replies of the Responses API without a server, for tests. */
#ifndef EK_TESTS_SERVE_RESPONSES_CASE_H
#define EK_TESTS_SERVE_RESPONSES_CASE_H

#include "serve/api/dialect.h"
#include "serve/store/response_store.h"

extern uint64_t responses_owner; /* of the requests that follow */

ek_err parse(ek_api_request *r, ek_response_store *store, const char *body);
/* What the template gets of a body with these members; fails the test unless it is want. */
void gives(ek_response_store *store, const char *members, const char *want);

/* A reply on its way; out is what a client has so far. */
typedef struct scene {
    ek_api_request req;
    ek_turn_result result;
    const ek_turn_result *choices[1];
    ek_api_reply r;
    ek_buf out;
} scene;

void open_reply(scene *t, ek_response_store *store, const char *id, const char *body, bool stream);
void say(scene *t, ek_reply_kind kind, const char *text, int call);
void close_reply(scene *t);

#endif
