/* A hundred prompts at once, with progress: each is handed over, and replies are taken as they end. The last line is
 * the same on every machine, however the replies ran together. Usage: prompts [MODEL] */
#include <evenkeel.h>
#include <stdio.h>
#include <string.h>

enum { N = 100 };

int main(int argc, char **argv)
{
    static uint64_t digest[N];
    evenkeel_options options = {.size = sizeof options};
    evenkeel *engine;
    evenkeel_queue *queue;
    evenkeel_event *e;
    uint64_t all = 0;
    int i, n_done = 0, n_tokens = 0, n_wrong = 0;
    options.model = argc > 1 ? argv[1] : NULL;
    if (evenkeel_open(&engine, &options) || evenkeel_queue_open(&queue, engine)) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    for (i = 0; i < N; i++) {
        char body[256];
        sprintf(
            body,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"What is %d plus %d?\"}],\"temperature\":0,\"max_tokens\":24,"
            "\"evenkeel\":{\"digest\":true}}",
            i, 3 * i + 1);
        if (evenkeel_chat(queue, body, strlen(body), &digest[i], NULL)) fprintf(stderr, "%s\n", ek_last_error());
    }
    while ((e = evenkeel_next(queue, -1)) != NULL) {
        if (e->kind == EVENKEEL_END) {
            *(uint64_t *)e->user = e->digest;
            n_tokens += e->tokens;
            n_wrong += e->finish == EVENKEEL_ERROR;
            fprintf(stderr, "\r%d of %d, %d tokens", ++n_done, N, n_tokens);
        }
        evenkeel_event_free(e);
    }
    for (i = 0; i < N; i++) all = all * 0x9e3779b97f4a7c15u + digest[i];
    printf("\n%d replies, %d wrong, %d tokens, all digests together %016llx\n", n_done, n_wrong, n_tokens,
           (unsigned long long)all);
    evenkeel_close(engine);
    return n_wrong != 0;
}
