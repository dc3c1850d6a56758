/* A process that hangs in its event thread ends at the second signal, and some seconds after the first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/server.h"

static void hear(int number)
{
    (void)number;
}

static bool closing; /* what hangs is the end of the process, which may take longer after one signal */

/* Seconds until a process that does nothing ends after so many signals. */
static double ends_after(int signals, double seconds, int *status)
{
    int p[2];
    char ready = 0;
    assert_int_equal(pipe(p), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGTERM, hear);
        ek_last_signal_watch(seconds);
        if (write(p[1], "x", 1) != 1) _exit(1);
        for (;;) {
            pause();
            if (closing) ek_last_signal_within(100);
        }
    }
    assert_int_equal(read(p[0], &ready, 1), 1);
    const double begun = ek_now();
    for (int i = 0; i < signals; i++) {
        kill(pid, SIGTERM);
        usleep(100000);
    }
    assert_int_equal(waitpid(pid, status, 0), pid);
    close(p[0]), close(p[1]);
    return ek_now() - begun;
}

static void the_second_ends_it(void **state)
{
    int status;
    (void)state;
    for (int i = 0; i < 2; i++) {
        closing = i == 1;
        assert_true(ends_after(2, 100, &status) < 0.95);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    }
    closing = false;
}

static void the_third_ends_it_at_once(void **state)
{
    int status;
    (void)state;
    ends_after(3, 100, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
}

static void the_first_ends_it_in_time(void **state)
{
    int status;
    (void)state;
    const double took = ends_after(1, 2.5, &status);
    assert_true(took > 2 && took < 8);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_second_ends_it),
                                       cmocka_unit_test(the_third_ends_it_at_once),
                                       cmocka_unit_test(the_first_ends_it_in_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
