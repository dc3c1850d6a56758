/* A turn whose reply another turn computes (replies/flight.h). It takes that turn's tokens as they arrive. If that turn
 * ends earlier, it computes the rest itself. */
#include <stdlib.h>
#include <string.h>

#include "chat/turn_state.h"

/* Runs on the leader's engine thread, so it only sends news. */
static void wake(void *arg)
{
    const ek_turn *t = arg;
    const ek_turn_news news = {.user = t->user, .token = -1, .wakes = true, .n_prompt = t->n_prompt};
    t->post(t->post_arg, &news);
}

static bool may_share(const ek_turn *t)
{
    const ek_turn_opts *o = &t->opts;
    return t->outcome == EK_REPLY_MISS && t->stored.keep && !t->stored.found && o->min_cached <= 0 && !o->receipt &&
           !o->publish && !t->shared_once;
}

bool ek_turn_share(ek_turn *t, const ek_turn_prompt *prompt)
{
    bool leads;
    if (!may_share(t)) return false;
    t->shared_once = true;
    t->follower = (ek_flight_follower){.wake = wake, .arg = t};
    t->limit = ek_turn_limit(t);
    if (t->limit < 1) return false; /* the engine reports the error */
    ek_flight *f = ek_flight_join(ek_replies_flights(t->stored.replies), &t->stored.key, t->opts.logprobs, &t->follower,
                                  &leads);
    if (!f) return false;
    if (leads) {
        t->leading = f;
        return false;
    }
    t->following = f;
    t->outcome = EK_REPLY_PART;
    ek_turn_keep_prompt(t, prompt);
    return true;
}

void ek_turn_unfollow(ek_turn *t)
{
    if (!t->following) return;
    ek_flight_leave(t->following, &t->follower);
    t->following = NULL;
}

/* Whether the turn's own end is among the present tokens. */
static bool ends_there(const ek_turn *t)
{
    int32_t token;
    uint64_t row;
    for (int i = t->n_out; ek_flight_get(t->following, i, &token, &row, NULL); i++)
        if (ek_turn_finish_at(t, i, token) != EK_FINISH_NONE) return true;
    return false;
}

static ek_err take_over(ek_turn *t)
{
    ek_reply_record *so_far;
    ek_flight *f = t->following;
    if (ek_flight_has_leader(f) || ends_there(t) || !ek_flight_claim(f, &t->follower, &so_far)) return EK_OK;
    t->following = NULL;
    t->leading = f;
    t->stored.found = so_far;
    ek_turn_go_on_behind(t, so_far ? ek_reply_record_tokens(so_far) : 0);
    return ek_turn_submit(t, t->engine, &t->prompt, t->post, t->post_arg, t->user);
}

ek_err ek_turn_awake(ek_turn *t)
{
    if (!t->following) {
        t->follower.pending = false;
        return EK_OK;
    }
    ek_flight_awake(t->following, &t->follower);
    return t->result.end == EK_END_NONE ? take_over(t) : EK_OK;
}
