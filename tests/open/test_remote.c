/* Drafts from another server, where there is none: what fails is answered with nothing, and rests are as long as one
 * failure asks for. A server that answers: tests/e2e/drafter_url.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "hub/curl.h"
#include "open/remote.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char logged[1 << 14]; /* under the lock: the thread writes into it */

static void keep_log(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    pthread_mutex_lock(&lock);
    const size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

static int lines(const char *with)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (const char *p = logged; (p = strstr(p, with)) != NULL; p++) n++;
    pthread_mutex_unlock(&lock);
    return n;
}

/* A port that was bound and is none any more: who connects is refused. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static ek_remote *open_remote(ek_proposer *p)
{
    char url[64];
    ek_remote *r;
    const ek_remote_opts o = {.url = url, .vocabulary = "0123456789abcdef", .n_vocab = 100, .max_ctx = 64};
    snprintf(url, sizeof url, "http://127.0.0.1:%d", free_port());
    *logged = '\0';
    if (ek_remote_open(&r, &o)) fail_msg("%s", ek_err_text());
    *p = ek_remote_proposer(r);
    return r;
}

static bool ask(const ek_proposer *p, uint64_t request)
{
    static const int32_t tokens[] = {1, 2, 3};
    return p->ask(p->arg, request, 0, tokens, 3, 4);
}

/* Within some seconds, with nothing in it. */
static bool is_answered(const ek_proposer *p, uint64_t request)
{
    int32_t token[EK_DRAFT_MAX];
    ek_proposal out = {.token = token, .n = -1};
    const double until = ek_now() + 5;
    while (!p->answer(p->arg, request, &out))
        if (ek_now() > until) return false;
        else p->wait(p->arg, 0.05);
    return out.n == 0;
}

static void failures_at_once_are_one(void **state)
{
    (void)state;
    ek_proposer p;
    ek_remote *r = open_remote(&p);
    const double began = ek_now();
    int n = 0;
    for (uint64_t i = 0; i < EK_REMOTE_QUESTIONS; i++) n += ask(&p, i);
    for (int i = 0; i < n; i++) assert_true(is_answered(&p, (uint64_t)i));
    for (int i = 0; ek_now() < began + 0.9; i++) usleep(50000);
    assert_int_equal(lines("no drafts from it for 1 s"), 1);
    assert_int_equal(lines("no drafts from it"), 1);
    while (!ask(&p, 0) && ek_now() < began + 5) usleep(20000); /* a second later it is asked again */
    assert_true(ek_now() < began + 5);
    ek_remote_close(r);
}

static CURL *no_easy(void)
{
    return NULL;
}

static CURLMcode no_room(CURLM *multi, CURL *easy)
{
    (void)multi, (void)easy;
    return CURLM_OUT_OF_MEMORY;
}

/* A request for which libcurl has no memory is answered like any that fails, and its place is free again. */
static void a_question_that_cannot_be_sent_is_answered(void **state)
{
    (void)state;
    ek_curl *lib = (ek_curl *)(uintptr_t)ek_curl_lib(), was = *lib;
    for (int i = 0; i < 2; i++) {
        ek_proposer p;
        if (i == 0) lib->easy_init = no_easy;
        else lib->multi_add_handle = no_room;
        ek_remote *r = open_remote(&p);
        assert_true(ask(&p, 1));
        assert_true(is_answered(&p, 1));
        ek_remote_close(r);
        *lib = was;
    }
}

static CURLMcode no_poll(CURLM *multi, struct curl_waitfd *fds, unsigned n, int ms, int *ready)
{
    (void)multi, (void)fds, (void)n, (void)ms, (void)ready;
    return CURLM_INTERNAL_ERROR;
}

/* Said once, and nothing is asked of nobody. */
static void a_thread_that_ends_says_so(void **state)
{
    (void)state;
    ek_curl *lib = (ek_curl *)(uintptr_t)ek_curl_lib(), was = *lib;
    ek_proposer p;
    lib->multi_poll = no_poll;
    ek_remote *r = open_remote(&p);
    for (int i = 0; i < 500 && lines("any more") == 0; i++) usleep(10000);
    assert_int_equal(lines("any more"), 1);
    assert_false(ask(&p, 1));
    ek_remote_close(r);
    *lib = was;
}

int main(void)
{
    if (ek_curl_load()) {
        printf("skipped: %s\n", ek_err_text());
        return 0;
    }
    ek_log_sink *log = ek_log_sink_open(keep_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_at_once_are_one),
        cmocka_unit_test(a_question_that_cannot_be_sent_is_answered),
        cmocka_unit_test(a_thread_that_ends_says_so),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ek_log_sink_close(log);
    return failed;
}
