/* What a program that is given a stranger's file cannot do, tried with a shell: its builtins need no other process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "make_video.h"
#include "media/locked/child.h"
#include "media/locked/lock.h"

typedef struct ran {
    ek_err err; /* of reading */
    ek_child_end end;
    char out[4096], says[512];
    double seconds;
} ran;

static ran run_argv(const char *const *argv, ek_child_opts o)
{
    ek_child c;
    ran r = {.err = EK_OK};
    size_t at = 0, n = 1;
    double begun = ek_now();
    o.argv = argv;
    if (!o.seconds) o.seconds = 20;
    if (!o.cpu_seconds) o.cpu_seconds = 20;
    if (!o.memory) o.memory = (size_t)1 << 30;
    if (ek_child_start(&c, &o)) fail_msg("%s", ek_err_text());
    while (!r.err && n > 0 && at + 1 < sizeof r.out) {
        r.err = ek_child_read(&c, r.out + at, sizeof r.out - 1 - at, &n);
        at += n;
    }
    r.end = ek_child_finish(&c, at + 1 == sizeof r.out);
    memcpy(r.says, c.says, sizeof r.says);
    r.seconds = ek_now() - begun;
    return r;
}

static ran run(const char *shell, const char *script, ek_child_opts o)
{
    const char *const argv[] = {shell, "-c", script, NULL};
    return run_argv(argv, o);
}

static ran sh(const char *script)
{
    return run("/bin/sh", script, (ek_child_opts){.input = -1});
}

static void it_reads_its_input_and_answers(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(write(p[1], "hello\n", 6), 6);
    close(p[1]);
    ran r = run("/bin/sh", "read a; echo got $a; echo why >&2; exit 3", (ek_child_opts){.input = p[0]});
    close(p[0]);
    assert_int_equal(r.err, EK_OK);
    assert_string_equal(r.out, "got hello\n");
    assert_string_equal(r.says, "why\n");
    assert_int_equal(r.end.status, 3);
    assert_string_equal(sh("read a || echo empty").out, "empty\n");
}

static void it_begins_with_nothing_of_ours(void **state)
{
    (void)state;
    int high = fcntl(1, F_DUPFD, 17); /* not closed by exec */
    assert_true(high >= 17);
    setenv("EK_SECRET", "yes", 1);
    char script[256];
    snprintf(script, sizeof script, "[ -e /proc/self/fd/%d ] && echo open; echo \"secret:$EK_SECRET:\"; echo $LC_ALL",
             high);
    ran r = sh(script);
    close(high);
    unsetenv("EK_SECRET");
    assert_string_equal(r.out, "secret::\nC\n");
}

static void it_writes_no_file(void **state)
{
    (void)state;
    char path[64], script[512];
    temp_name(path, sizeof path, "child");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    fchmod(fd, 0666);
    close(fd);
    snprintf(script, sizeof script,
             "echo x > %s || echo no; echo x >> %s || echo no; "
             "echo x > %s.new || echo no",
             path, path, path);
    ran r = sh(script);
    unlink(path);
    assert_string_equal(r.out, "no\nno\nno\n");
}

static void it_reads_no_file_that_is_not_its_own(void **state)
{
    (void)state;
    if (!ek_lock_landlock()) skip();
    char path[64], script[512];
    temp_name(path, sizeof path, "child");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "secret\n", 7), 7);
    fchmod(fd, 0666);
    close(fd);
    snprintf(script, sizeof script,
             "for f in %s /etc/passwd /proc/self/environ; do read a < $f && echo $a; "
             "done; echo end",
             path);
    ran r = sh(script);
    unlink(path);
    assert_string_equal(r.out, "end\n");
}

/* What draws texts reads the system's fonts, and nothing else of /etc. */
static void the_fonts_are_read_where_asked(void **state)
{
    (void)state;
    if (!ek_lock_landlock() || access("/etc/fonts/fonts.conf", R_OK)) skip();
    static const char script[] =
        "read a < /etc/fonts/fonts.conf && echo fonts; read a < /etc/passwd && echo passwd; echo end";
    assert_string_equal(run("/bin/sh", script, (ek_child_opts){.input = -1}).out, "end\n");
    assert_string_equal(run("/bin/sh", script, (ek_child_opts){.input = -1, .fonts = true}).out, "fonts\nend\n");
}

static void it_makes_no_process_and_no_socket(void **state)
{
    (void)state;
    ran r = sh("(echo child); echo \"after\"");
    assert_null(strstr(r.out, "child"));
    static const char perl[] = "/usr/bin/perl";
    if (access(perl, X_OK) == 0) { /* F_SETOWN: any signal to any process of this user */
        int p[2];
        static const char script[] = "print fcntl(STDOUT, 8, getppid) ? 'set' : 'denied'";
        assert_int_equal(pipe(p), 0);
        assert_int_equal(write(p[1], script, strlen(script)), (int)strlen(script));
        close(p[1]);
        r = run_argv((const char *const[]){perl, NULL}, (ek_child_opts){.input = p[0]});
        assert_string_equal(r.out, "denied");
        close(p[0]);
    }
    if (access("/bin/bash", X_OK)) return;
    r = run("/bin/bash", "{ echo x > /dev/tcp/127.0.0.1/1; } 2>&1; echo end", (ek_child_opts){.input = -1});
    assert_non_null(strstr(r.out, "denied"));
    assert_non_null(strstr(r.out, "end\n"));
}

static void it_has_so_much_time_and_memory(void **state)
{
    (void)state;
    ran r = run("/bin/sh", "trap 'exit 255' XCPU; while :; do :; done", (ek_child_opts){.input = -1, .cpu_seconds = 1});
    assert_int_equal(r.end.signal, SIGXCPU);
    assert_false(r.end.late);
    r = run("/bin/sh", "while :; do :; done", (ek_child_opts){.input = -1, .seconds = 0.3});
    assert_int_equal(r.err, EK_ETIMEOUT);
    assert_int_equal(r.end.signal, SIGKILL);
    assert_true(r.end.late && r.seconds < 5);
    r = run("/bin/sh", "exec >&-; while :; do :; done", (ek_child_opts){.input = -1, .seconds = 0.3});
    assert_true(r.end.late && r.seconds < 5);
    r = run("/bin/sh", "exec >&- 2>&-; while :; do :; done", (ek_child_opts){.input = -1, .seconds = 0.3});
    assert_true(r.end.late && r.seconds < 5);
    r = run("/bin/sh", "a=0123456789; while :; do a=$a$a; done",
            (ek_child_opts){.input = -1, .memory = (size_t)64 << 20});
    assert_true(r.end.status != 0 && r.seconds < 5);
}

static atomic_bool dropped;

static void *drop_soon(void *arg)
{
    usleep(200000);
    atomic_store(&dropped, true);
    return arg;
}

static void it_ends_with_who_wants_it(void **state)
{
    (void)state;
    pthread_t t;
    atomic_store(&dropped, false);
    ek_wanted_until(&dropped);
    pthread_create(&t, NULL, drop_soon, NULL);
    ran r = sh("while :; do :; done");
    pthread_join(t, NULL);
    ek_wanted_until(NULL);
    assert_int_equal(r.err, EK_ECANCELLED);
    assert_int_equal(r.end.signal, SIGKILL);
    assert_true(r.seconds < 3);
}

static void many_words_keep_nobody_waiting(void **state)
{
    (void)state;
    ran r = sh("i=0; while [ $i -lt 20000 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo end");
    assert_string_equal(r.out, "end\n");
    assert_int_equal(strlen(r.says), sizeof r.says - 1);
    assert_int_equal(r.end.status, 0);
}

static void what_is_no_program_is_refused_in_words(void **state)
{
    (void)state;
    const char *const argv[] = {"/usr/nothing", NULL};
    ek_child c;
    ek_child_opts o = {.argv = argv, .input = -1, .cpu_seconds = 1, .seconds = 1, .memory = (size_t)1 << 30};
    assert_int_equal(ek_child_start(&c, &o), EK_EIO);
    assert_non_null(strstr(ek_err_text(), "/usr/nothing cannot be started: No such file"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads_its_input_and_answers),
        cmocka_unit_test(it_begins_with_nothing_of_ours),
        cmocka_unit_test(it_writes_no_file),
        cmocka_unit_test(it_reads_no_file_that_is_not_its_own),
        cmocka_unit_test(the_fonts_are_read_where_asked),
        cmocka_unit_test(it_makes_no_process_and_no_socket),
        cmocka_unit_test(it_has_so_much_time_and_memory),
        cmocka_unit_test(it_ends_with_who_wants_it),
        cmocka_unit_test(many_words_keep_nobody_waiting),
        cmocka_unit_test(what_is_no_program_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
