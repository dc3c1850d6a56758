#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/hash/rng.h"
#include "heard.h"

static void hear(void *arg, const ek_event *e)
{
    heard *h = arg;
    h->events++;
    if (e->token >= 0 && h->tokens++ == 0) h->first = e->token;
    h->n_cached = e->n_cached;
    h->finish = e->finish;
}

ek_request_opts ask_for(const int32_t *tokens, int n, int max, heard *h)
{
    *h = (heard){0};
    return (ek_request_opts){.tokens = tokens,
                             .n_tokens = n,
                             .max_tokens = max,
                             .sampling = ek_sampling_greedy(),
                             .ignore_eos = true,
                             .prompt_logits_from = n,
                             .sink = hear,
                             .arg = h};
}

typedef struct reader {
    const int32_t *next;
    int n;
} reader;

static void compare(void *arg, const ek_event *e)
{
    reader *r = arg;
    if (e->token >= 0) assert_int_equal(e->token, r->next[r->n++]);
}

void continue_text(ek_engine *e, const int32_t *text, int n_prompt, int n)
{
    heard unused;
    reader r = {.next = text + n_prompt};
    ek_request_opts o = ask_for(text, n_prompt, n, &unused);
    o.sink = compare, o.arg = &r;
    assert_int_equal(ek_engine_submit(e, &o, NULL), EK_OK);
    while (ek_engine_step(e)) continue;
    assert_int_equal(r.n, n);
}

void fill(int32_t *token, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) token[i] = (int32_t)(ek_mix64(seed * 7919 + (uint64_t)i) % 90);
}

/* --- a gate --- */

static void gate_write(void *arg, ek_store_page *const *page, int n)
{
    gate *g = arg;
    (void)page;
    while (atomic_load(&g->shut)) usleep(500);
    atomic_fetch_add(&g->writes, n);
}

static void gate_read(void *arg, ek_store_page *page, const bool want[EK_KIND_COUNT])
{
    gate *g = arg;
    (void)page, (void)want;
    atomic_fetch_add(&g->reads, 1);
}

static void gate_close(void *arg)
{
    (void)arg;
}

ek_engine *open_with(fake *f, const ek_store_backend *b, int requests, double audit)
{
    ek_engine *e;
    ek_engine_opts o = ek_engine_defaults();
    ek_executor on = fake_executor(f, 64, 64);
    o.max_requests = requests, o.max_queue = 8, o.chunk = 90, o.cache_store = b, o.cache_audit = audit;
    assert_int_equal(ek_engine_open_on(&e, &on, &o), EK_OK);
    return e;
}

ek_store_backend gate_of(gate *g)
{
    return (ek_store_backend){
        .arg = g, .write = gate_write, .read = gate_read, .close = gate_close, .counts = &g->counts};
}
