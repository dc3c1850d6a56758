/* engine: an agents' day. Agents share a system text; each turn appends the reply and a tool's result to the prompt. A
 * turn computes what is new and nothing else, as long as the pages hold every agent's latest prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "asks.h"
#include "base/hash/rng.h"

enum {
    SYSTEM = 4000,
    TASK = 400,
    RESULT = 1450,
    REPLY = 40,
    AS_TEXT = 60, /* tokens of a reply in the next prompt, where it is tokenized again */
    TURNS = 4,
    AGENTS = 16,
    CTX = 16384,
    WINDOW = 1024,
    WINDOW_PAGES = WINDOW / EK_PAGE_TOKENS + 1
};

typedef struct agent {
    int32_t tokens[CTX];
    int n, turn, number;
    int rests; /* steps until it asks again; -1: it waits for a reply */
    int uncached;
} agent;

static agent agents[AGENTS + 1];

static void say(agent *a, uint64_t seed, int n)
{
    for (int i = 0; i < n; i++) a->tokens[a->n++] = (int32_t)(ek_mix64(seed * 100000 + (uint64_t)i) % 90);
}

static void on_token(void *arg, const ek_event *event)
{
    agent *a = arg;
    assert_true(event->finish == EK_FINISH_NONE || event->finish == EK_FINISH_LENGTH);
    if (event->n_tokens == 1) a->uncached = event->n_prompt - event->n_cached;
    if (!event->finish) return;
    a->rests = 2;
    a->turn++;
    say(a, (uint64_t)(a->number * TURNS + a->turn), AS_TEXT);
}

static void ask_next(ek_engine *e, agent *a)
{
    say(a, (uint64_t)(10000 + a->number * TURNS + a->turn), RESULT);
    const ek_request_opts r = {.tokens = a->tokens,
                               .n_tokens = a->n,
                               .max_tokens = REPLY,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .sink = on_token,
                               .arg = a,
                               .prompt_logits_from = a->n};
    a->rests = -1;
    assert_int_equal(ek_engine_submit(e, &r, NULL), EK_OK);
}

static void begin(ek_engine *e, int number)
{
    agent *a = &agents[number];
    *a = (agent){.number = number};
    say(a, 1, SYSTEM), say(a, (uint64_t)(1000 + number), TASK);
    ask_next(e, a);
}

static ek_engine *open(fake *f, int sliding)
{
    ek_engine *e;
    fake_init(f, WINDOW, true, true);
    f->config.max_position_embeddings = CTX;
    f->base_seconds = 0.004, f->row_seconds = 60e-6;
    ek_executor x = fake_executor(f, 3000, sliding);
    x.poison = false; /* which takes most of the time */
    ek_engine_opts o = ek_engine_defaults();
    o.chunk = 2048, o.max_gap = 0.06, o.max_requests = AGENTS;
    assert_int_equal(ek_engine_open_on(&e, &x, &o), EK_OK);
    return e;
}

/* Steps until all but the last have had their turns. */
static void run(ek_engine *e)
{
    for (int left = AGENTS; left > 0;) {
        ek_engine_step(e);
        left = 0;
        for (agent *a = agents; a < agents + AGENTS; a++) {
            left += a->turn < TURNS;
            if (a->turn < TURNS && a->rests >= 0 && a->rests-- == 0) ask_next(e, a);
        }
    }
}

/* Sliding pages for a window of each agent, two more of a reply's end, and the prompts that are read. */
static void every_turn_computes_what_is_new(void **state)
{
    (void)state;
    fake f;
    ek_engine *e = open(&f, AGENTS * (WINDOW_PAGES + 2) + 80);
    for (int i = 0; i < AGENTS; i++) begin(e, i);
    run(e);
    const uint64_t replies = (uint64_t)(AGENTS * TURNS * REPLY);
    const uint64_t prompts = SYSTEM + AGENTS * (TASK + TURNS * RESULT + (TURNS - 1) * AS_TEXT);
    assert_in_range(f.rows, prompts, prompts + replies);
    begin(e, AGENTS); /* one that comes late finds what all share, up to a page */
    while (agents[AGENTS].turn == 0) ek_engine_step(e);
    assert_in_range(agents[AGENTS].uncached, TASK + RESULT, TASK + RESULT + EK_PAGE_TOKENS);
    ek_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_turn_computes_what_is_new)};
    return cmocka_run_group_tests_name("agents", tests, NULL, NULL);
}
