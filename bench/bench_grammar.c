/* Masks of structured output: bench_grammar TOKENIZER.json
 *
 * Replies are made by random choice among the allowed tokens, as if a model wrote texts of some words, eight at a time.
 * For each form: what a row costs, what the rows of eight replies cost together, and how often the cache had one; first
 * with the cache as it fills, then as it is for later requests with the same form. Then the same by kind of state.
 *
 * At last the same replies in an engine whose step keeps one processor busy for 2 ms, as one that waits for a device
 * does: what eight masks add to a step if it waits for their rows first, and if they are made beside it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/hash/rng.h"
#include "chat/bounds.h"
#include "engine/executor.h"
#include "text/json/json.h"
#include "text/utf8.h"
#include "text/grammar/vocab_data.h"

enum { REPLIES = 24, BATCH = 8, MAX_TOKENS = 400 };
enum { RUNS = 16, RUN_TOKENS = 150, MAX_STEPS = RUNS * RUN_TOKENS }; /* in an engine */
#define STEP_SECONDS 2e-3

static uint64_t seed;

static uint32_t roll(uint32_t n)
{
    return (uint32_t)(ek_mix64(++seed) >> 33) % n;
}

/* A random token of a row; in long texts now and then the quote that ends them. */
static int32_t choose(const uint64_t *row, int n_words, const int32_t *closers, int n_closers)
{
    for (int i = 0; i < n_closers && roll(12) == 0; i++)
        if (closers[i] >= 0 && row[closers[i] / 64] >> closers[i] % 64 & 1) return closers[i];
    int first = (int)roll((uint32_t)n_words);
    for (int i = 0; i < n_words; i++) {
        int w = (first + i) % n_words;
        if (!row[w]) continue;
        uint64_t bits = row[w];
        for (uint32_t skip = roll((uint32_t)__builtin_popcountll(bits)); skip > 0; skip--) bits &= bits - 1;
        return w * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

/* What a row cost, by the kind of state that it was made for and by whether the cache had it. */
enum { KINDS = 12 };
static const char *const kinds[KINDS] = {
    "thought", "free or done", "between calls", "name of a call", "enum or key", "string", "string at its limit",
    "pattern", "escape",       "number",        "object",         "array"};
typedef struct tally {
    double sum, limit;
    int n;
} tally;
static tally by_kind[KINDS][2];

static void count(tally *t, double took)
{
    t->sum += took;
    t->n++;
    if (took > t->limit) t->limit = took;
}

static int kind_of(const ek_grammar_state *s)
{
    const ek_frame *f = &s->frame[s->tops.at[0]];
    if (f->node < 0)
        return f->state == EK_AT_THOUGHT                          ? 0
               : f->state == EK_AT_FREE || f->state == EK_AT_DONE ? 1
               : f->state == EK_AT_NAME                           ? 3
                                                                  : 2;
    const ek_node *n = &s->g->graph.nodes[f->node];
    switch ((ek_node_kind)n->kind) {
    case EK_NODE_TEXTS: return 4;
    case EK_NODE_STRING:
        if (f->state >= EK_IN_ESCAPE) return 8;
        if (n->pattern >= 0) return 7;
        return n->max != UINT32_MAX && n->max - f->a < EK_VOCAB_CHARS ? 6 : 5;
    case EK_NODE_NUMBER: return 9;
    case EK_NODE_OBJECT: return f->state == EK_OBJECT_KEY || f->state == EK_OBJECT_OTHER ? 4 : 10;
    default: return 11;
    }
}

static void print_kinds(void)
{
    printf("\n%-20s %8s %10s %8s %8s %10s\n", "kind of state", "cached", "mean us", "new", "mean us", "slowest us");
    for (int k = 0; k < KINDS; k++) {
        const tally *hit = &by_kind[k][0], *miss = &by_kind[k][1];
        if (hit->n + miss->n == 0) continue;
        printf("%-20s %8d %10.2f %8d %8.1f %10.1f\n", kinds[k], hit->n, hit->n ? hit->sum / hit->n * 1e6 : 0, miss->n,
               miss->n ? miss->sum / miss->n * 1e6 : 0, miss->limit * 1e6);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_alone(const char *name, ek_vocab *v, const ek_tokenizer *t, const ek_reply_form *form,
                      const json_t *tools, bool thinking)
{
    ek_grammar *g;
    int n_words = (ek_tokenizer_size(t) + 63) / 64;
    uint64_t *row = calloc((size_t)n_words, sizeof *row);
    double compile = ek_now();
    if (ek_grammar_open(&g, v, form, tools, true)) {
        printf("%s: %s\n", name, ek_err_text());
        exit(1);
    }
    compile = ek_now() - compile;
    ek_marks m;
    ek_marks_find(&m, t);
    int32_t closers[] = {ek_tokenizer_id(t, "\""), m.id[EK_MARK_QUOTE], m.id[EK_MARK_CHANNEL_CLOSE],
                         ek_tokenizer_id(t, "}"), m.id[EK_MARK_TURN_CLOSE]};
    ek_vocab_stats before = ek_vocab_stats_of(v);
    tally rows = {0}, steps = {0}, batches = {0};
    static double batch[REPLIES / BATCH * MAX_TOKENS];
    for (int i = 0; i < REPLIES; i += BATCH) {
        ek_grammar_state *s[BATCH];
        bool live[BATCH];
        for (int r = 0; r < BATCH; r++) s[r] = ek_grammar_state_open(g, v, NULL, 0, thinking), live[r] = true;
        for (int k = 0, n_live = BATCH; k < MAX_TOKENS && n_live > 0; k++) {
            double sum = 0;
            for (int r = 0; r < BATCH; r++) {
                bool all;
                if (!live[r]) continue;
                uint64_t misses = ek_vocab_stats_of(v).misses;
                double at = ek_thread_time();
                ek_grammar_look(s[r], NULL, 0, n_words, row, &all);
                double took = ek_thread_time() - at;
                sum += took;
                count(&rows, took);
                count(&by_kind[kind_of(s[r])][ek_vocab_stats_of(v).misses > misses], took);
                int32_t id = choose(row, n_words, closers, 5);
                at = ek_thread_time();
                if (id >= 0) ek_grammar_accept(s[r], id);
                count(&steps, ek_thread_time() - at);
                live[r] = id >= 0 && id != m.id[EK_MARK_TURN_CLOSE] && id != m.id[EK_MARK_EOS] &&
                          id != m.id[EK_MARK_RESPONSE_OPEN];
                n_live -= !live[r];
            }
            batch[batches.n] = sum;
            count(&batches, sum);
        }
        for (int r = 0; r < BATCH; r++) ek_grammar_state_close(s[r]);
    }
    qsort(batch, (size_t)batches.n, sizeof *batch, ascending);
    ek_vocab_stats after = ek_vocab_stats_of(v);
    double hits = (double)(after.hits - before.hits), misses = (double)(after.misses - before.misses);
    printf("%-14s %6d  %7.1f %8.1f  %7.1f %7.1f %8.1f  %6.2f  %5.1f %%  %6.2f\n", name, rows.n, rows.sum / rows.n * 1e6,
           rows.limit * 1e6, batches.sum / batches.n * 1e6, batch[batches.n * 99 / 100] * 1e6, batches.limit * 1e6,
           steps.sum / steps.n * 1e6, 100 * hits / (hits + misses), compile * 1e3);
    ek_grammar_close(g);
    free(row);
}

/* --- in an engine --- */

typedef struct device {
    ek_config config;
    ek_kv_layout layout;
    int32_t closers[5];
    double busy; /* of the step: the device and the choice of tokens */
} device;

static ek_err open_device(void *arg, const ek_executor_sizes *sizes)
{
    (void)arg, (void)sizes;
    return EK_OK;
}

static ek_err step_device(void *arg, const ek_step *s)
{
    device *d = arg;
    double begin = ek_now();
    while (ek_now() - begin < STEP_SECONDS) continue;
    double ready = ek_now();
    ek_masks_wait(s->masks);
    double draws = ek_now();
    for (int i = 0; i < s->n_draws; i++)
        s->draw[i].token = s->draw[i].allowed
                               ? choose(s->draw[i].allowed, ek_mask_words(d->config.vocab_size), d->closers, 5)
                               : (int32_t)(1000 + roll(1000));
    d->busy = ready - begin + (ek_now() - draws);
    return EK_OK;
}

static const float *logits_device(void *arg, int row)
{
    (void)arg, (void)row;
    return NULL;
}

static void close_device(void *arg)
{
    (void)arg;
}

typedef struct engine_run {
    ek_bounds bounds;
    ek_request_id id;
} engine_run;

/* What a step of eight takes beyond the device's time. */
static void run_engine(const char *name, ek_vocab *v, const ek_tokenizer *t, const ek_reply_form *form,
                       const json_t *tools, bool thinking, bool beside)
{
    static double added[MAX_STEPS];
    ek_chat_model m = {.vocab = v};
    ek_marks_find(&m.marks, t);
    device d = {.layout = {.page_bytes = {[EK_FULL] = 64}},
                .closers = {ek_tokenizer_id(t, "\""), m.marks.id[EK_MARK_QUOTE], m.marks.id[EK_MARK_CHANNEL_CLOSE],
                            ek_tokenizer_id(t, "}"), m.marks.id[EK_MARK_TURN_CLOSE]}};
    d.config = (ek_config){.vocab_size = ek_tokenizer_size(t), .hidden_size = 1, .max_position_embeddings = 4096};
    d.config.stop[0] = m.marks.id[EK_MARK_TURN_CLOSE], d.config.stop[1] = m.marks.id[EK_MARK_RESPONSE_OPEN];
    d.config.n_stop = 2;
    ek_executor x = {.config = &d.config,
                     .layout = &d.layout,
                     .leaves_host = beside,
                     .arg = &d,
                     .open = open_device,
                     .step = step_device,
                     .logits = logits_device,
                     .close = close_device,
                     .n_pages = {[EK_FULL] = 1024}};
    ek_engine_opts o = ek_engine_defaults();
    o.max_requests = BATCH, o.cache_bytes = 0;
    ek_engine *e;
    ek_grammar *g = NULL;
    engine_run run[RUNS];
    if (ek_engine_open_on(&e, &x, &o) || (form && ek_grammar_open(&g, v, form, tools, true))) {
        printf("%s: %s\n", name, ek_err_text());
        exit(1);
    }
    for (int i = 0; i < RUNS; i++) {
        ek_bounds_init(&run[i].bounds, &m, g, 0, NULL, 0, thinking);
        run[i].bounds.n_vocab = d.config.vocab_size;
        ek_mask mask = ek_bounds_mask(&run[i].bounds);
        if (!beside) mask.peek = NULL;
        int32_t prompt = 2;
        ek_request_opts r = {.tokens = &prompt,
                             .n_tokens = 1,
                             .max_tokens = RUN_TOKENS,
                             .sampling = ek_sampling_greedy(),
                             .mask = g ? &mask : NULL};
        if (ek_engine_submit(e, &r, &run[i].id)) exit(1);
    }
    int n = 0;
    double sum = 0;
    for (double at = ek_now(); ek_engine_step(e) && n < MAX_STEPS; at = ek_now()) {
        added[n] = ek_now() - at - d.busy;
        sum += added[n++];
    }
    qsort(added, (size_t)n, sizeof *added, ascending);
    printf("%-14s %-8s %6d  %8.1f %8.1f %8.1f %8.1f  %6.2f %%\n", name, beside ? "beside" : "before", n, sum / n * 1e6,
           added[n / 2] * 1e6, added[n * 99 / 100] * 1e6, added[n - 1] * 1e6, sum / n / STEP_SECONDS * 100);
    ek_engine_close(e);
    for (int i = 0; i < RUNS; i++) ek_bounds_fini(&run[i].bounds);
    ek_grammar_close(g);
}

static void run_before(const char *name, ek_vocab *v, const ek_tokenizer *t, const ek_reply_form *form,
                       const json_t *tools, bool thinking)
{
    run_engine(name, v, t, form, tools, thinking, false);
}

static void run_beside(const char *name, ek_vocab *v, const ek_tokenizer *t, const ek_reply_form *form,
                       const json_t *tools, bool thinking)
{
    run_engine(name, v, t, form, tools, thinking, true);
}

/* --- forms --- */

static json_t *json(const char *text)
{
    json_t *v;
    if (ek_json_read(&v, text, strlen(text), 0)) {
        printf("%s\n", ek_err_text());
        exit(1);
    }
    return v;
}

typedef void run_fn(const char *name, ek_vocab *v, const ek_tokenizer *t, const ek_reply_form *form,
                    const json_t *tools, bool thinking);

static void forms(run_fn *run, ek_vocab *v, const ek_tokenizer *t, json_t *record, json_t *forest, json_t *tools,
                  json_t *patterns, json_t *counted, json_t *nested, json_t *choices)
{
    run("record", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = record}, NULL, false);
    run("tree", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = forest}, NULL, false);
    run("any object", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_OBJECT}, NULL, true);
    run("patterns", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = patterns}, NULL, false);
    run("counted", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = counted}, NULL, false);
    run("nested", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = nested}, NULL, false);
    run("5000 choices", v, t, &(ek_reply_form){.text = EK_TEXT_JSON_SCHEMA, .schema = choices}, NULL, false);
    run("calls", v, t, &(ek_reply_form){.calls_required = true}, tools, true);
}

int main(int argc, char **argv)
{
    ek_buf file = {0};
    ek_tokenizer *t;
    setvbuf(stdout, NULL, _IOLBF, 0);
    ek_log_set(EK_LOG_WARN);
    if (argc != 2 || ek_file_read(&file, argv[1], (size_t)1 << 30) || ek_tokenizer_parse(&t, file.data, file.len)) {
        printf("usage: bench_grammar TOKENIZER.json (%s)\n", ek_err_text());
        return 1;
    }
    ek_vocab *v = ek_vocab_open(t);
    double at = ek_thread_time();
    if (ek_vocab_ready(v)) return 1;
    printf("%d tokens: tables of %.1f MiB in %.0f ms\n", ek_tokenizer_size(t),
           (double)ek_vocab_stats_of(v).bytes / 1048576, (ek_thread_time() - at) * 1e3);
    json_t *record = json(
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
        "\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},\"maxItems\":4},"
        "\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":200},\"score\":{\"type\":\"number\"}},"
        "\"required\":[\"name\",\"age\",\"tags\",\"note\",\"score\"]}");
    json_t *forest = json(
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"anyOf\":[{\"type\":\"string\"},"
        "{\"type\":\"number\"},{\"const\":\"x\"}]},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"},\"maxItems\":3}},"
        "\"required\":[\"v\",\"kids\"]}}}");
    json_t *tools = json(
        "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
        "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]}},"
        "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"edit\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"path\":{\"type\":\"string\"},\"text\":{\"type\":\"string\",\"maxLength\":4000}},\"required\":[\"path\","
        "\"text\"]}}}]");
    json_t *patterns = json(
        "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"name\":{\"type\":\"string\","
        "\"pattern\":\"^[a-z][a-z0-9_-]{2,29}$\"},\"mail\":{\"type\":\"string\",\"pattern\":\"^[^\\\\s@]+@[^\\\\s@]+\\\\.[a-z]{2,}$\","
        "\"maxLength\":80},\"note\":{\"type\":\"string\",\"pattern\":\"\\\\S\"}},\"required\":[\"id\",\"name\",\"mail\",\"note\"]}");
    json_t *counted = json(
        "{\"type\":\"object\",\"properties\":{\"slug\":{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9-]{2,62}$\"},"
        "\"line\":{\"type\":\"string\",\"pattern\":\"^[^<>]*$\",\"maxLength\":60},\"code\":{\"type\":\"string\","
        "\"pattern\":\"^[A-Z]{2,8}-[0-9]{3,12}$\"},\"words\":{\"type\":\"string\",\"pattern\":\"^(\\\\w+ ){2,9}\\\\w+$\"}},"
        "\"required\":[\"slug\",\"line\",\"code\",\"words\"]}");
    json_t *nested = json(
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[{\"$ref\":"
        "\"#/$defs/n\"},{\"type\":\"object\",\"properties\":{\"in\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"in\"]},"
        "{\"type\":\"string\",\"maxLength\":9}]}}}}");
    json_t *list = json_array(), *names = json_object();
    for (int i = 0; i < 5000; i++) {
        size_t n;
        char text[64];
        const char *bytes = ek_tokenizer_bytes(t, (int32_t)(i * 50 % ek_tokenizer_size(t)), &n);
        snprintf(text, sizeof text, "%.*s %d", n < 40 && ek_utf8_valid(bytes, n) ? (int)n : 0, bytes, i);
        json_array_append_new(list, json_string(text));
    }
    json_object_set_new(names, "enum", list);
    json_t *choices = json_pack("{s:s,s:{s:O,s:O},s:[s,s]}", "type", "object", "properties", "a", names, "b", names,
                                "required", "a", "b");
    for (int warm = 0; warm < 2; warm++) {
        printf("\n%s, microseconds of CPU\n%-14s %6s  %16s  %24s  %6s  %7s  %6s\n",
               warm ? "again, as later requests see it" : "first", "form", "tokens", "row: mean  max",
               "eight: mean  99 %   max", "step", "cached", "compiled in ms");
        forms(run_alone, v, t, record, forest, tools, patterns, counted, nested, choices);
    }
    print_kinds();
    printf("\na step of eight, microseconds beyond its %g ms\n%-14s %-8s %6s  %8s %8s %8s %8s\n", STEP_SECONDS * 1e3,
           "form", "masks", "steps", "mean", "50 %", "99 %", "max");
    run_engine("none", v, t, NULL, NULL, false, false);
    for (int warm = 0; warm < 4; warm++) { /* a vocabulary of its own for each: first requests, then later ones */
        ek_vocab *own = warm % 2 ? v : ek_vocab_open(t);
        if (ek_vocab_ready(own)) return 1;
        printf("%s\n", warm % 2 ? "later requests" : "first requests");
        forms(warm < 2 ? run_before : run_beside, own, t, record, forest, tools, patterns, counted, nested, choices);
        if (own != v) ek_vocab_close(own);
    }
    return 0;
}
