/* A chat in a terminal: a line is a message, the reply is printed as it comes. Usage: chat [MODEL]
 *
 *   cc chat.c $(pkg-config --cflags --libs evenkeel) -o chat */
#include <evenkeel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *messages; /* a JSON list without its end */
static size_t length;

static void add(const char *role, const char *text, size_t n)
{
    size_t i;
    messages = realloc(messages, length + strlen(role) + 6 * n + 64);
    if (!messages) exit(1);
    length += (size_t)sprintf(messages + length, "%s{\"role\":\"%s\",\"content\":\"", length ? "," : "", role);
    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == '"' || c == '\\') length += (size_t)sprintf(messages + length, "\\u%04x", (unsigned)c);
        else messages[length++] = (char)c;
    }
    length += (size_t)sprintf(messages + length, "\"}");
}

static void answer(evenkeel_queue *queue)
{
    char *body = malloc(length + 64), text[65536];
    size_t n = 0;
    evenkeel_event *e;
    if (!body) exit(1);
    sprintf(body, "{\"temperature\":0,\"messages\":[%s]}", messages);
    if (evenkeel_chat(queue, body, strlen(body), NULL, NULL)) fprintf(stderr, "%s\n", ek_last_error());
    while ((e = evenkeel_next(queue, -1)) != NULL) {
        if (e->kind == EVENKEEL_TEXT) {
            printf("%s", e->text);
            fflush(stdout);
            if (n + e->n <= sizeof text) memcpy(text + n, e->text, e->n), n += e->n;
        }
        if (e->kind == EVENKEEL_END) printf("%s\n", e->finish == EVENKEEL_ERROR ? e->text : "");
        evenkeel_event_free(e);
    }
    add("assistant", text, n);
    free(body);
}

int main(int argc, char **argv)
{
    evenkeel_options options = {.size = sizeof options};
    evenkeel *engine;
    evenkeel_queue *queue;
    char line[8192];
    options.model = argc > 1 ? argv[1] : NULL;
    if (evenkeel_open(&engine, &options) || evenkeel_queue_open(&queue, engine))
        return fprintf(stderr, "%s\n", ek_last_error()), 1;
    while (fgets(line, sizeof line, stdin)) add("user", line, strcspn(line, "\n")), answer(queue);
    evenkeel_close(engine);
    free(messages);
    return 0;
}
