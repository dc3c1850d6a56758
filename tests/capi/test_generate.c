/* The library's requests of tokens: what they say, what they refuse, and that masks, resumption and company change
 * nothing that they should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <evenkeel.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static evenkeel *engine;
static const int32_t prompt[] = {2, 105, 2364, 107, 3689, 563};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, ROOM = 64 };

typedef struct answer {
    int32_t tokens[ROOM];
    uint64_t rows[ROOM];
    int n;
    evenkeel_event end; /* its texts are gone */
    char said[200];
} answer;

static evenkeel_request asking(void)
{
    return (evenkeel_request){.size = sizeof(evenkeel_request),
                              .tokens = prompt,
                              .n_tokens = N_PROMPT,
                              .max_tokens = 20,
                              .ignore_eos = 1,
                              .digest = 1};
}

static void read_all(evenkeel_queue *q, answer *a)
{
    evenkeel_event *e;
    while ((e = evenkeel_next(q, -1))) {
        if (e->kind == EVENKEEL_TOKEN) {
            assert_true(a->n < ROOM);
            a->tokens[a->n] = e->token;
            a->rows[a->n++] = e->digest;
        } else {
            a->end = *e;
            snprintf(a->said, sizeof a->said, "%s", e->text);
        }
        evenkeel_event_free(e);
    }
}

static void run(const evenkeel_request *r, answer *a)
{
    evenkeel_queue *q;
    memset(a, 0, sizeof *a);
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_generate(q, r, NULL), EK_DONE);
    read_all(q, a);
    assert_int_equal(evenkeel_pending(q), 0);
    evenkeel_queue_close(q);
}

static void a_reply_has_its_counts(void **state)
{
    answer a;
    evenkeel_request r = asking();
    (void)state;
    run(&r, &a);
    assert_int_equal(a.n, 20);
    assert_int_equal(a.end.finish, EVENKEEL_LENGTH);
    assert_int_equal(a.end.status, EK_DONE);
    assert_int_equal(a.end.prompt_tokens, N_PROMPT);
    assert_int_equal(a.end.tokens, 20);
    assert_true(a.end.digest != 0 && a.end.request != 0);
}

/* In any place of a reply it goes on with the same tokens, rows and digest. */
static void a_resumed_reply_is_the_same(void **state)
{
    answer whole, rest;
    evenkeel_request r = asking();
    int32_t tokens[N_PROMPT + ROOM];
    (void)state;
    r.temperature = 0.9f;
    r.seed = 7;
    r.repetition_penalty = 1.1f;
    run(&r, &whole);
    for (int at = 1; at < 20; at += 6) {
        memcpy(tokens, prompt, sizeof prompt);
        memcpy(tokens + N_PROMPT, whole.tokens, (size_t)at * sizeof *tokens);
        r.tokens = tokens;
        r.n_tokens = (size_t)(N_PROMPT + at);
        r.n_replied = at;
        run(&r, &rest);
        assert_int_equal(rest.n, 20 - at);
        assert_memory_equal(rest.tokens, whole.tokens + at, (size_t)rest.n * sizeof *tokens);
        assert_memory_equal(rest.rows, whole.rows + at, (size_t)rest.n * sizeof *whole.rows);
        assert_true(rest.end.digest == whole.end.digest);
        assert_int_equal(rest.end.tokens, 20);
        assert_int_equal(rest.end.prompt_tokens, N_PROMPT);
    }
}

/* A prompt is cached for its own salt alone, and answers do not depend on it. */
static void salts_share_nothing(void **state)
{
    static int32_t many[200];
    answer a, other, again;
    evenkeel_request r = asking();
    (void)state;
    for (int i = 0; i < 200; i++) many[i] = i ? 1000 + 7 * i : 2;
    r.tokens = many;
    r.n_tokens = 200;
    r.cache_salt = 5;
    run(&r, &a);
    r.cache_salt = 6;
    r.client = 9;
    run(&r, &other);
    r.cache_salt = 5;
    run(&r, &again);
    assert_int_equal(a.end.cached_tokens, 0);
    assert_int_equal(other.end.cached_tokens, 0);
    assert_true(again.end.cached_tokens > 0);
    assert_true(a.end.digest == other.end.digest && a.end.digest == again.end.digest);
}

/* Even tokens after an even number of them, odd ones after an odd number. */
static int even_odd(void *arg, const int32_t *tokens, int n, uint64_t *allowed)
{
    int *calls = arg;
    ++*calls;
    for (int i = 0; i < n; i++)
        if (tokens[i] % 2 != i % 2) return 0; /* a guess, or a wrong history */
    for (int id = n % 2; id < evenkeel_vocab(engine); id += 2) allowed[id / 64] |= (uint64_t)1 << (id % 64);
    return 1;
}

static void a_mask_holds(void **state)
{
    answer a, again;
    int calls = 0;
    evenkeel_request r = asking();
    (void)state;
    r.mask = even_odd;
    r.mask_arg = &calls;
    run(&r, &a);
    assert_int_equal(a.n, 20);
    assert_true(calls >= 20);
    for (int i = 0; i < a.n; i++) assert_int_equal(a.tokens[i] % 2, i % 2);

    int32_t tokens[N_PROMPT + 9];
    memcpy(tokens, prompt, sizeof prompt);
    memcpy(tokens + N_PROMPT, a.tokens, 9 * sizeof *tokens);
    r.tokens = tokens;
    r.n_tokens = N_PROMPT + 9;
    r.n_replied = 9;
    run(&r, &again);
    assert_memory_equal(again.tokens, a.tokens + 9, 11 * sizeof *tokens);
    assert_true(again.end.digest == a.end.digest);
}

/* One token after another, the same three again and again, and then another one: drafts guess that they go on. */
static int in_turn(void *arg, const int32_t *tokens, int n, uint64_t *allowed)
{
    static const int32_t three[] = {1001, 1002, 1003};
    const int32_t id = n < 15 ? three[n % 3] : 1500 + n;
    int *wrong = arg;
    for (int i = 0; i < n; i++) *wrong += tokens[i] != (i < 15 ? three[i % 3] : 1500 + i);
    allowed[id / 64] |= (uint64_t)1 << (id % 64);
    return 1;
}

static void a_mask_meets_guesses(void **state)
{
    answer a;
    evenkeel_request r = asking();
    (void)state;
    int wrong = 0;
    r.mask = in_turn;
    r.mask_arg = &wrong;
    run(&r, &a);
    assert_int_equal(wrong, 0);
    assert_int_equal(a.n, 20);
    for (int i = 0; i < 20; i++) assert_int_equal(a.tokens[i], i < 15 ? 1001 + i % 3 : 1500 + i);
}

static int nothing(void *arg, const int32_t *tokens, int n, uint64_t *allowed)
{
    (void)arg, (void)tokens, (void)allowed;
    return n >= 3;
}

static void a_mask_of_nothing_is_an_error(void **state)
{
    answer a;
    evenkeel_request r = asking();
    (void)state;
    r.mask = nothing;
    run(&r, &a);
    assert_int_equal(a.n, 3);
    assert_int_equal(a.end.finish, EVENKEEL_ERROR);
    assert_true(a.end.status != EK_DONE && a.said[0]);
}

static int32_t best[ROOM];
static int n_rows, first_row;

static void keep_best(void *arg, int position, const float *row)
{
    int at = 0;
    (void)arg;
    for (int i = 1; i < evenkeel_vocab(engine); i++)
        if (row[i] > row[at]) at = i;
    if (n_rows == 0) first_row = position;
    assert_int_equal(position, first_row + n_rows);
    best[n_rows++] = at;
}

static void rows_of_logits_are_those_of_the_tokens(void **state)
{
    answer a;
    evenkeel_request r = asking();
    (void)state;
    r.logits = keep_best;
    n_rows = 0;
    run(&r, &a);
    assert_int_equal(n_rows, 20);
    assert_int_equal(first_row, N_PROMPT);
    int same = 0;
    for (int i = 0; i < 20; i++) same += best[i] == a.tokens[i];
    assert_true(same >= 19); /* suppressed ids aside */
    n_rows = 0;
    r.prompt_logits_from = -1;
    run(&r, &a);
    assert_int_equal(first_row, 1);
    assert_int_equal(n_rows, N_PROMPT - 1 + 20);
}

static void the_descriptor_says_when_events_wait(void **state)
{
    evenkeel_queue *q;
    evenkeel_request r = asking();
    (void)state;
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    struct pollfd p = {.fd = evenkeel_fd(q), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_null(evenkeel_next(q, 0));
    assert_null(evenkeel_next(q, -1)); /* no request is left */
    assert_int_equal(evenkeel_generate(q, &r, NULL), EK_DONE);
    assert_int_equal(evenkeel_pending(q), 1);
    int n = 0;
    while (evenkeel_pending(q) > 0) {
        assert_int_equal(poll(&p, 1, 10000), 1);
        for (evenkeel_event *e; (e = evenkeel_next(q, 0)); n++) evenkeel_event_free(e);
    }
    assert_int_equal(n, 21);
    assert_int_equal(poll(&p, 1, 0), 0);
    evenkeel_queue_close(q);
}

static void a_closed_queue_cancels(void **state)
{
    evenkeel_queue *q;
    evenkeel_request r = asking();
    (void)state;
    r.max_tokens = 0;
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    for (int i = 0; i < 8; i++) assert_int_equal(evenkeel_generate(q, &r, NULL), EK_DONE);
    evenkeel_event_free(evenkeel_next(q, -1));
    evenkeel_queue_close(q);
    answer a;
    r.max_tokens = 20;
    run(&r, &a); /* nothing is left in the way */
    assert_int_equal(a.n, 20);
}

static void refused(const evenkeel_request *r, ek_status want, const char *text)
{
    evenkeel_queue *q;
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_generate(q, r, NULL), want);
    if (!strstr(ek_last_error(), text)) fail_msg("no \"%s\" in: %s", text, ek_last_error());
    assert_int_equal(evenkeel_pending(q), 0);
    evenkeel_queue_close(q);
}

static void wrong_requests_are_refused(void **state)
{
    static int32_t many[5000];
    struct {
        evenkeel_request known;
        int more;
    } later = {asking(), 0};
    (void)state;
    evenkeel_request r = asking();
    r.size = 0;
    refused(&r, EK_BAD_ARGUMENT, "sizeof(evenkeel_request)");
    later.known.size = sizeof later;
    later.more = 1;
    refused(&later.known, EK_NOT_SUPPORTED, "evenkeel_request: byte");
    r = asking();
    r.n_tokens = 0;
    refused(&r, EK_BAD_ARGUMENT, "at least");
    r = asking();
    r.tokens = many;
    r.n_tokens = 5000;
    refused(&r, EK_TOO_LONG, "5000");
    r = asking();
    r.n_replied = N_PROMPT;
    refused(&r, EK_BAD_ARGUMENT, "n_replied is 6");
    r = asking();
    r.temperature = -1;
    refused(&r, EK_BAD_ARGUMENT, "temperature");
    r = asking();
    r.max_tokens = -1;
    refused(&r, EK_BAD_ARGUMENT, "max_tokens");
    r = asking();
    r.n_bias = 1;
    refused(&r, EK_BAD_ARGUMENT, "bias is NULL");
    r = asking();
    r.n_stop = 2;
    refused(&r, EK_BAD_ARGUMENT, "stop is NULL");
    const int32_t wrong[] = {1 << 30};
    r = asking();
    r.tokens = wrong;
    r.n_tokens = 1;
    refused(&r, EK_BAD_ARGUMENT, "1073741824");
}

static void a_longer_struct_of_zeros_is_fine(void **state)
{
    struct {
        evenkeel_request known;
        char more[40];
    } later = {.known = asking()};
    answer a, b;
    (void)state;
    evenkeel_request r = asking();
    run(&r, &a);
    later.known.size = sizeof later;
    run(&later.known, &b);
    assert_true(a.end.digest == b.end.digest);
}

static void a_forked_child_is_refused(void **state)
{
    evenkeel_queue *q;
    int status;
    evenkeel_request r = asking();
    (void)state;
    r.max_tokens = 0;
    assert_int_equal(evenkeel_queue_open(&q, engine), EK_DONE);
    assert_int_equal(evenkeel_generate(q, &r, NULL), EK_DONE);
    const pid_t child = fork();
    if (child == 0) {
        evenkeel_queue *other;
        const char *digest;
        size_t n;
        bool good = evenkeel_generate(q, &r, NULL) == EK_BAD_ARGUMENT;
        good &= strstr(ek_last_error(), "opened by process") != NULL;
        good &= evenkeel_chat(q, "{}", 2, NULL, NULL) == EK_BAD_ARGUMENT && !evenkeel_next(q, -1);
        good &= evenkeel_queue_open(&other, engine) == EK_BAD_ARGUMENT;
        good &= evenkeel_digest(engine, &digest) == EK_BAD_ARGUMENT && !*digest;
        good &= evenkeel_chat_tokens(engine, "{}", 2, NULL, 0, &n) == EK_BAD_ARGUMENT;
        good &= strstr(ek_last_error(), "opened by process") != NULL;
        evenkeel_queue_close(q);
        evenkeel_close(engine);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    evenkeel_queue_close(q);
}

static void wrong_options_are_refused(void **state)
{
    evenkeel *e = engine;
    evenkeel_options o = {.size = sizeof o, .model = "/nowhere"};
    (void)state;
    assert_int_equal(evenkeel_open(&e, &o), EK_NOT_FOUND);
    assert_null(e);
    o = (evenkeel_options){.size = sizeof o, .model = "models/pocket", .device = "fpga"};
    assert_int_equal(evenkeel_open(&e, &o), EK_BAD_ARGUMENT);
    assert_non_null(strstr(ek_last_error(), "fpga"));
    /* Each field arrives where it belongs. */
    const evenkeel_options wrong[] = {
        {.weights = "9"},    {.kv = "x"},           {.kv_start = 7},  {.activations = "9"},
        {.split = "x"},      {.threads = -1},       {.isa = "x"},     {.chunk = -1},
        {.max_gap = 100},    {.draft = "x"},        {.context = -1},  {.max_requests = -1},
        {.max_waiting = -1}, {.cache_shared = "x"}, {.kv_bytes = -1}, {.context = 1},
    };
    static const char *const said[] = {
        "weights", "kv",    "kv_start", "activations",  "split",       "threads",      "isa",      "chunk",
        "max_gap", "draft", "context",  "max_requests", "max_waiting", "cache_shared", "kv_bytes", "context is 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = wrong[i];
        o.size = sizeof o;
        o.model = "models/pocket";
        o.device = "cpu";
        assert_int_equal(evenkeel_open(&e, &o), EK_BAD_ARGUMENT);
        if (!strstr(ek_last_error(), said[i])) fail_msg("no %s in: %s", said[i], ek_last_error());
    }
    o = (evenkeel_options){.size = 0};
    assert_int_equal(evenkeel_open(&e, &o), EK_BAD_ARGUMENT);
    assert_int_equal(evenkeel_open(&e, NULL), EK_BAD_ARGUMENT);
}

static void text_becomes_tokens_and_back(void **state)
{
    const char text[] = "<start_of_turn>The weather in Troms\xc3\xb8";
    int32_t ids[sizeof text];
    char back[2 * sizeof text];
    (void)state;
    size_t n = evenkeel_tokenize(engine, text, strlen(text), 0, ids, sizeof ids / sizeof *ids);
    assert_true(n > 0 && n <= strlen(text));
    assert_int_equal(evenkeel_tokenize(engine, text, strlen(text), 0, NULL, 0), n);
    assert_int_equal(evenkeel_detokenize(engine, ids, n, 1, back, sizeof back), strlen(text));
    assert_memory_equal(back, text, strlen(text));
    size_t bytes = 0, k;
    for (size_t i = 0; i < n; i++) evenkeel_token(engine, ids[i], &k), bytes += k;
    assert_int_equal(bytes, strlen(text));
    assert_int_equal(evenkeel_tokenize(engine, "<turn|>", 7, 1, ids, 1), 1);
    assert_int_equal(evenkeel_detokenize(engine, ids, 1, 0, back, sizeof back), 0);
    assert_string_equal(evenkeel_token(engine, -5, &k), "");
}

/* Lines of one engine's log. */
typedef struct heard {
    atomic_int lines, shared; /* of all, those of a thread that finds no page server */
} heard;

static void hear(void *arg, int level, const char *line)
{
    heard *h = arg;
    if (level < 0 || !line[0] || strchr(line, '\n')) return;
    atomic_fetch_add(&h->lines, 1);
    if (strstr(line, "Connection refused")) atomic_fetch_add(&h->shared, 1);
}

static ek_status open_heard(evenkeel **out, heard *h, const char *cache_shared)
{
    const evenkeel_options o = {.size = sizeof o,
                                .model = "models/pocket",
                                .device = "cpu",
                                .threads = 2,
                                .context = 512,
                                .no_media = 1,
                                .cache_shared = cache_shared,
                                .log = h ? hear : NULL,
                                .log_arg = h};
    return evenkeel_open(out, &o);
}

/* A thread of the first engine finds no server; a line of the process is everybody's. */
static void each_engine_has_its_own_log(void **state)
{
    static heard a, b;
    evenkeel *first, *second;
    (void)state;
    assert_int_equal(open_heard(&second, &b, NULL), EK_DONE);
    assert_int_equal(open_heard(&first, &a, "redis://127.0.0.1:1/0"), EK_DONE);
    for (int i = 0; i < 1000 && atomic_load(&a.shared) == 0; i++) usleep(10000);
    assert_true(atomic_load(&a.shared) > 0);
    assert_int_equal(atomic_load(&b.shared), 0);
    const int was_a = atomic_load(&a.lines), was_b = atomic_load(&b.lines);
    ek_log(EK_LOG_WARN, "two\nlines");
    assert_true(atomic_load(&a.lines) > was_a);
    assert_int_equal(atomic_load(&b.lines), was_b + 1);
    evenkeel_close(first);
    const int closed = atomic_load(&a.lines);
    ek_log(EK_LOG_WARN, "after its end");
    assert_int_equal(atomic_load(&a.lines), closed);
    assert_int_equal(atomic_load(&b.lines), was_b + 2);
    evenkeel_close(second);
}

/* Standard error of further engines' whole lives. */
static void nothing_is_written_to_standard_error(void **state)
{
    static heard h;
    int ends[2], was = dup(2);
    char text[64];
    evenkeel *e;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], 2);
    close(ends[1]);
    ek_log(EK_LOG_ERROR, "nobody asked");
    const ek_status first = open_heard(&e, &h, "redis://127.0.0.1:1/0");
    ek_progress("a thing", 1, 2);
    for (int i = 0; i < 1000 && atomic_load(&h.shared) == 0; i++) usleep(10000);
    evenkeel_close(e);
    const ek_status second = open_heard(&e, NULL, "redis://127.0.0.1:1/0");
    usleep(50000);
    evenkeel_close(e);
    ek_log(EK_LOG_WARN, "nobody asks any more");
    dup2(was, 2);
    close(was);
    assert_int_equal(read(ends[0], text, sizeof text), 0);
    close(ends[0]);
    assert_true(first == EK_DONE && second == EK_DONE && atomic_load(&h.shared) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_has_its_counts),
        cmocka_unit_test(a_resumed_reply_is_the_same),
        cmocka_unit_test(salts_share_nothing),
        cmocka_unit_test(a_mask_holds),
        cmocka_unit_test(a_mask_meets_guesses),
        cmocka_unit_test(a_mask_of_nothing_is_an_error),
        cmocka_unit_test(rows_of_logits_are_those_of_the_tokens),
        cmocka_unit_test(the_descriptor_says_when_events_wait),
        cmocka_unit_test(a_closed_queue_cancels),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(a_longer_struct_of_zeros_is_fine),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(text_becomes_tokens_and_back),
        cmocka_unit_test(each_engine_has_its_own_log),
        cmocka_unit_test(nothing_is_written_to_standard_error),
    };
    evenkeel_options o = {.size = sizeof o, .model = "models/pocket", .device = "cpu", .threads = 2, .context = 512};
    if (evenkeel_open(&engine, &o) != EK_DONE) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    evenkeel_close(engine);
    return failed;
}
