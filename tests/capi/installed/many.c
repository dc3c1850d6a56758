/* Sixty-four requests in random order from four threads on one engine, and as many that are cancelled: built by
 * check_library.sh against the installed headers alone. Prints the model's tokens, then per request its number, tokens
 * and digest. Usage: many MODEL SEED [DEVICE] */
#include <evenkeel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 64, THREADS = 4, PROMPT = 40 };

static evenkeel *engine;
static evenkeel_queue *queue;
static int order[N];
static unsigned seed;
static struct result {
    int tokens;
    uint64_t digest;
} results[N];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_cancelled, n_wrong;

static void ask(int i, int doomed, evenkeel_id *id)
{
    int32_t tokens[PROMPT] = {2};
    evenkeel_request r = {.size = sizeof r, .tokens = tokens, .digest = 1};
    r.n_tokens = (size_t)(2 + i % (PROMPT - 1));
    for (size_t j = 1; j < r.n_tokens; j++)
        tokens[j] = (int32_t)(300 + (size_t)(i * 7919 + (int)j * 104729) % (size_t)(evenkeel_vocab(engine) - 300));
    r.max_tokens = doomed ? 0 : 3 + i % 14;
    r.ignore_eos = doomed;
    r.temperature = i % 3 ? 0.8f : 0;
    r.seed = (uint64_t)i;
    r.user = doomed ? NULL : &results[i];
    if (evenkeel_generate(queue, &r, id) == EK_DONE) return;
    fprintf(stderr, "request %d: %s\n", i, ek_last_error());
    exit(1);
}

static void take(evenkeel_event *e)
{
    struct result *r = e->user;
    if (e->kind == EVENKEEL_END) {
        pthread_mutex_lock(&lock);
        if (r) *r = (struct result){e->tokens, e->digest};
        n_cancelled += e->finish == EVENKEEL_CANCELLED;
        n_wrong += e->finish == EVENKEEL_ERROR || (r && e->finish == EVENKEEL_CANCELLED);
        pthread_mutex_unlock(&lock);
    }
    evenkeel_event_free(e);
}

static void *run(void *arg)
{
    const int first = (int)(intptr_t)arg * N / THREADS;
    unsigned at = seed + (unsigned)first;
    for (int k = first; k < first + N / THREADS; k++) {
        evenkeel_id doomed;
        ask(order[k], 0, NULL);
        ask(order[k], 1, &doomed);
        for (int n = rand_r(&at) % 8; n > 0; n--) {
            evenkeel_event *e = evenkeel_next(queue, 0.01);
            if (e) take(e);
        }
        evenkeel_cancel(engine, doomed);
    }
    for (evenkeel_event *e; (e = evenkeel_next(queue, -1));) take(e);
    return NULL;
}

int main(int argc, char **argv)
{
    evenkeel_options o = {.size = sizeof o, .threads = 2, .context = 256, .no_media = 1};
    pthread_t thread[THREADS];
    o.model = argc > 1 ? argv[1] : NULL;
    o.device = argc > 3 ? argv[3] : "cpu";
    seed = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    if (evenkeel_open(&engine, &o) != EK_DONE || evenkeel_queue_open(&queue, engine) != EK_DONE) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    for (int i = 0; i < N; i++) { /* a shuffle */
        const int j = rand_r(&seed) % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (intptr_t t = 0; t < THREADS; t++) pthread_create(&thread[t], NULL, run, (void *)t);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    printf("%d\n", evenkeel_vocab(engine));
    for (int i = 0; i < N; i++) printf("%d %d %016llx\n", i, results[i].tokens, (unsigned long long)results[i].digest);
    fprintf(stderr, "%d cancelled, %d wrong\n", n_cancelled, n_wrong);
    evenkeel_close(engine);
    return n_wrong != 0;
}
