/* The log of a server whose standard error nobody reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

enum { LINES = 20000, THREADS = 2, PATIENCE = 30 };

static int old, pipe_fd[2], n_threads;

static int count_threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* Standard error is a pipe; a test that blocks ends by the alarm. */
static int open_pipe(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    n_threads = count_threads();
    old = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipe_fd), 0);
    assert_true(dup2(pipe_fd[1], STDERR_FILENO) >= 0);
    close(pipe_fd[1]);
    alarm(PATIENCE);
    return 0;
}

/* A writer that ek_log_stop left waiting ends with the pipe. Until then standard error stays: the writer would put the
 * rest of a line into the next test's pipe. */
static int close_pipe(void **state)
{
    (void)state;
    close(pipe_fd[0]);
    while (count_threads() > n_threads) usleep(1000);
    alarm(0);
    dup2(old, STDERR_FILENO);
    close(old);
    return 0;
}

static void *say_much(void *arg)
{
    for (int i = 0; i < LINES; i++) ek_log(EK_LOG_INFO, "thread=%d line=%d", (int)(intptr_t)arg, i);
    return NULL;
}

/* All that comes until the other end closes. */
static void *read_all(void *arg)
{
    FILE *text = arg;
    char part[4096];
    for (ssize_t n; (n = read(pipe_fd[0], part, sizeof part)) > 0;) fwrite(part, 1, (size_t)n, text);
    return NULL;
}

static void nobody_reads_for_a_while(void **state)
{
    (void)state;
    pthread_t writer[THREADS], reader;
    uint64_t before = ek_log_lost();
    ek_log_start();
    for (int i = 0; i < THREADS; i++) pthread_create(&writer[i], NULL, say_much, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(writer[i], NULL); /* returns although nothing is read */
    uint64_t lost = ek_log_lost() - before;
    assert_true(lost > 0 && lost < THREADS * LINES);
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    pthread_create(&reader, NULL, read_all, f);
    usleep(200000);
    ek_log(EK_LOG_INFO, "the end");
    ek_log_stop(10);
    dup2(old, STDERR_FILENO); /* the reader ends */
    pthread_join(reader, NULL);
    fclose(f);
    int next[THREADS] = {0};
    uint64_t reported = 0, came = 0, k;
    bool ended = false;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        int thread, number;
        if (sscanf(line, "evenkeel: warning: event=log_lost lines=%lu", &k) == 1) {
            reported += k;
        } else if (sscanf(line, "evenkeel: thread=%d line=%d", &thread, &number) == 2) {
            assert_true(number >= next[thread]); /* in order */
            next[thread] = number + 1;
            came++;
        } else {
            assert_string_equal(line, "evenkeel: the end");
            ended = true;
        }
    }
    assert_true(ended);
    assert_int_equal(reported, lost);
    assert_int_equal(came + lost, THREADS * LINES);
    free(text);
}

static void nobody_ever_reads(void **state)
{
    (void)state;
    ek_log_start();
    for (int i = 0; i < LINES; i++) ek_log(EK_LOG_INFO, "line %d of a log that nobody reads", i);
    double begin = ek_now();
    ek_log_stop(0.3);
    assert_true(ek_now() - begin < 5);
    static const char words[] = "the last words\n";
    ek_log_last_words(words, sizeof words - 1); /* they are given up */
    assert_true(ek_now() - begin < 10);
}

/* The seconds that a child takes to end by a broken promise. */
static double break_promise(bool much)
{
    double begin = ek_now();
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        ek_log_start();
        for (int i = 0; much && i < LINES; i++) ek_log(EK_LOG_INFO, "line %d", i);
        ek_log(EK_LOG_INFO, "what came before");
        EK_ASSERT(!"this holds");
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return ek_now() - begin;
}

static void last_words_come_out(void **state)
{
    (void)state;
    break_promise(false);
    char text[4096] = "";
    assert_true(read(pipe_fd[0], text, sizeof text - 1) > 0);
    const char *before = strstr(text, "evenkeel: what came before\n"), *words = strstr(text, "this holds");
    assert_non_null(before);
    assert_true(words > before);
    assert_true(break_promise(true) < 10); /* nobody reads: it ends all the same */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(last_words_come_out, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(nobody_ever_reads, open_pipe, close_pipe),
        cmocka_unit_test_setup_teardown(nobody_reads_for_a_while, open_pipe, close_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
