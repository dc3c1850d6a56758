#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reply_case.h"

void open_scene(scene *t, const ek_dialect *d, const char *body, const ek_api_limits *limits, const char *id,
                bool stream)
{
    *t = (scene){.d = d};
    if (ek_api_parse(&t->req, d, body, strlen(body), limits)) fail_msg("%s in %s", ek_err_text(), body);
    t->choices[0] = &t->result;
    t->r = (ek_api_reply){.id = id,
                          .model = "m",
                          .fingerprint = "f",
                          .created = 17,
                          .stream = stream,
                          .n = 1,
                          .n_prompts = 1,
                          .choices = t->choices,
                          .own = t->req.own,
                          .turn = &t->req.turn};
}

void say_event(scene *t, const ek_reply_event *e)
{
    ek_reply_collect(&t->result.answer, e);
    if (t->r.stream) t->d->event(&t->out, &t->r, 0, e);
}

void say(scene *t, ek_reply_kind kind, const char *text, int call)
{
    say_event(t, &(ek_reply_event){.kind = kind, .text = text, .n = strlen(text), .call = call});
}

void say_call(scene *t, const char *name, const char *arguments, int call)
{
    say(t, EK_REPLY_CALL_START, name, call);
    say(t, EK_REPLY_CALL_ARGS, arguments, call);
    say(t, EK_REPLY_CALL_END, "", call);
}

void end_scene(scene *t, ek_turn_end end)
{
    t->result.end = end;
    if (t->r.stream) t->d->finish(&t->out, &t->r, 0);
    t->d->end(&t->out, &t->r);
}

void close_scene(scene *t)
{
    ek_buf_fini(&t->out);
    ek_answer_fini(&t->result.answer);
    ek_api_request_fini(&t->req);
}
