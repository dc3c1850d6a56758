/* An epoll loop: one thread waits for replies and for a clock at the same time, and nothing blocks it. Usage: loop
 * [MODEL] */
#include <evenkeel.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const char *const questions[] = {"What's the weather in Oslo?", "Set a timer for 12 minutes.", "Hello"};
enum { N = sizeof questions / sizeof *questions };

static char texts[N][4096];

/* All that waits. */
static void take(evenkeel_queue *queue)
{
    evenkeel_event *e;
    while ((e = evenkeel_next(queue, 0)) != NULL) {
        char *text = e->user;
        const size_t n = strlen(text);
        if (e->kind == EVENKEEL_TEXT && n + e->n < sizeof texts[0]) memcpy(text + n, e->text, e->n + 1);
        if (e->kind == EVENKEEL_END) printf("%s\n", e->finish == EVENKEEL_ERROR ? e->text : text);
        evenkeel_event_free(e);
    }
}

int main(int argc, char **argv)
{
    evenkeel_options options = {.size = sizeof options};
    const struct itimerspec every = {{0, 20000000}, {0, 20000000}};
    evenkeel *engine;
    evenkeel_queue *queue;
    int i, n, n_ticks = 0;
    options.model = argc > 1 ? argv[1] : NULL;
    if (evenkeel_open(&engine, &options) || evenkeel_queue_open(&queue, engine)) {
        fprintf(stderr, "%s\n", ek_last_error());
        return 1;
    }
    const int loop = epoll_create1(0), clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event replies = {.events = EPOLLIN, .data.fd = evenkeel_fd(queue)},
                       ticks = {.events = EPOLLIN, .data.fd = clock};
    timerfd_settime(clock, 0, &every, NULL);
    epoll_ctl(loop, EPOLL_CTL_ADD, replies.data.fd, &replies);
    epoll_ctl(loop, EPOLL_CTL_ADD, clock, &ticks);
    for (i = 0; i < N; i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "{\"temperature\":0,\"max_tokens\":40,\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                 questions[i]);
        if (evenkeel_chat(queue, body, strlen(body), texts[i], NULL)) fprintf(stderr, "%s\n", ek_last_error());
    }
    while (evenkeel_pending(queue) > 0) {
        struct epoll_event ready[2];
        n = epoll_wait(loop, ready, 2, -1);
        for (i = 0; i < n; i++) {
            uint64_t elapsed;
            if (ready[i].data.fd != clock) take(queue);
            else if (read(clock, &elapsed, sizeof elapsed) > 0) n_ticks += (int)elapsed;
        }
    }
    fprintf(stderr, "%d ticks meanwhile\n", n_ticks);
    evenkeel_close(engine);
    close(clock);
    close(loop);
    return 0;
}
