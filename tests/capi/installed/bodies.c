/* Chats whose bodies are the lines of standard input, all at once on one engine. Prints for each line, in their order,
 * how it ended, the tokens of prompt and reply, the digest, and the sentence of an error. Usage: bodies MODEL [DEVICE]
 */
#include <evenkeel.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 64, BYTES = 1 << 20 };

static char results[LINES][400];

int main(int argc, char **argv)
{
    static char line[BYTES];
    evenkeel_options o = {.size = sizeof o, .threads = 2, .context = 1024};
    evenkeel *engine;
    evenkeel_queue *queue;
    int n = 0;
    o.model = argc > 1 ? argv[1] : NULL;
    o.device = argc > 2 ? argv[2] : "cpu";
    if (evenkeel_open(&engine, &o) != EK_DONE || evenkeel_queue_open(&queue, engine) != EK_DONE) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    for (; n < LINES && fgets(line, sizeof line, stdin); n++)
        if (evenkeel_chat(queue, line, strlen(line), results[n], NULL) != EK_DONE) {
            fprintf(stderr, "line %d: %s\n", n + 1, ek_last_error());
            return 1;
        }
    for (evenkeel_event *e; (e = evenkeel_next(queue, -1)); evenkeel_event_free(e))
        if (e->kind == EVENKEEL_END)
            snprintf(e->user, sizeof *results, "%s %d %d %016" PRIx64 " %s",
                     e->finish == EVENKEEL_ERROR ? ek_status_name(e->status) : "done", e->prompt_tokens, e->tokens,
                     e->digest, e->finish == EVENKEEL_ERROR ? e->text : "");
    for (int i = 0; i < n; i++) puts(results[i]);
    fprintf(stderr, "on %s\n", evenkeel_device(engine));
    evenkeel_close(engine);
    return 0;
}
