/* A reply of a dialect on its way, without a server, for tests. */
#ifndef EK_TESTS_SERVE_REPLY_CASE_H
#define EK_TESTS_SERVE_REPLY_CASE_H

#include "serve/api/dialect.h"

typedef struct scene {
    const ek_dialect *d;
    ek_api_request req;
    ek_turn_result result;
    const ek_turn_result *choices[1];
    ek_api_reply r;
    ek_buf out; /* what a client has so far */
} scene;

/* Of the request that d reads in body; a body that it refuses fails the test. Nothing is written yet. */
void open_scene(scene *t, const ek_dialect *d, const char *body, const ek_api_limits *limits, const char *id,
                bool stream);
void say_event(scene *t, const ek_reply_event *e);
void say(scene *t, ek_reply_kind kind, const char *text, int call);
void say_call(scene *t, const char *name, const char *arguments, int call); /* whole */
void end_scene(scene *t, ek_turn_end end);
void close_scene(scene *t);

#endif
