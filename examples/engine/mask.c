/* A mask of one's own: the reply is a date, DDDD-DD-DD, whatever the model would say. A token is allowed if its text
 * goes on as the form does. Usage: mask [MODEL] [QUESTION], which
 * stands in JSON as it is. */
#include <evenkeel.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char form[] = "dddd-dd-dd";

/* Bytes of the form that a text takes from position at on; -1: it does not fit. */
static int fits(int at, const char *text, size_t n)
{
    size_t i;
    if (n == 0 || (size_t)at + n > sizeof form - 1) return -1;
    for (i = 0; i < n; i++)
        if (form[at + (int)i] == 'd' ? !isdigit((unsigned char)text[i]) : text[i] != '-') return -1;
    return (int)n;
}

/* evenkeel_mask_fn: a pure function of the reply so far. */
static int allow(void *arg, const int32_t *tokens, int n, uint64_t *allowed)
{
    const evenkeel *engine = arg;
    int i, id, at = 0;
    size_t k;
    for (i = 0; i < n; i++) {
        evenkeel_token(engine, tokens[i], &k);
        at += (int)k;
    }
    for (id = 0; id < evenkeel_vocab(engine); id++) {
        const char *text = evenkeel_token(engine, id, &k);
        if (fits(at, text, k) > 0) allowed[id / 64] |= (uint64_t)1 << (id % 64);
    }
    return (size_t)at < sizeof form - 1; /* a whole date: anything, and the loop below ends it */
}

int main(int argc, char **argv)
{
    evenkeel_options options = {.size = sizeof options};
    evenkeel_request request = {.size = sizeof request};
    evenkeel *engine;
    evenkeel_queue *queue;
    evenkeel_event *e;
    evenkeel_id id;
    char body[1024];
    int32_t tokens[2048];
    size_t n = 0;
    options.model = argc > 1 ? argv[1] : NULL;
    if (evenkeel_open(&engine, &options) || evenkeel_queue_open(&queue, engine)) goto wrong;
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%.900s\"}]}",
             argc > 2 ? argv[2] : "When did the boat leave?");
    if (evenkeel_chat_tokens(engine, body, strlen(body), tokens, 2048, &request.n_tokens)) goto wrong;
    request.tokens = tokens;
    request.mask = allow;
    request.mask_arg = engine;
    if (evenkeel_generate(queue, &request, &id)) goto wrong;
    while ((e = evenkeel_next(queue, -1)) != NULL) {
        if (e->kind == EVENKEEL_TOKEN && n < sizeof form - 1) {
            printf("%s", e->text);
            n += e->n;
            if (n == sizeof form - 1) evenkeel_cancel(engine, id);
        }
        if (e->kind == EVENKEEL_END && e->finish == EVENKEEL_ERROR) fprintf(stderr, "%s\n", e->text);
        evenkeel_event_free(e);
    }
    printf("\n");
    evenkeel_close(engine);
    return 0;
wrong:
    fprintf(stderr, "%s\n", ek_last_error());
    return 1;
}
