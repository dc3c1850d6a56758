/* Stored replies on a real server of Redis' protocol, on a loopback address; skipped where there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/redis.h"
#include "base/clock.h"
#include "replies/backends.h"

enum { VOCAB = 500 };

static redis_server server;
static bool has_server;

static ek_reply_key numbered(int i)
{
    ek_reply_key k = {{0}};
    k.h[0] = (uint8_t)i;
    k.h[31] = 1;
    return k;
}

static ek_reply_record *record_of(int key, int n, int first)
{
    const ek_reply_key k = numbered(key);
    ek_reply_draft d = {0};
    for (int i = 0; i < n; i++) ek_reply_draft_add(&d, (first + i) % VOCAB, 1000u * (uint64_t)(first + i), NULL);
    return ek_reply_record_make(&k, &d, NULL, 0);
}

/* Of a process: with a connection, if there is a server. */
static ek_replies *open_store(const char *identity, ek_reply_backend *b)
{
    ek_replies *r;
    const ek_replies_opts o = {.identity = identity, .n_vocab = VOCAB, .max_bytes = 1e6};
    const ek_reply_shared_opts s = {.url = server.url, .identity = identity, .n_vocab = VOCAB};
    assert_int_equal(ek_replies_open(&r, &o), EK_OK);
    assert_int_equal(ek_reply_shared_open(b, &s), EK_OK);
    ek_replies_add(r, b);
    for (double end = ek_now() + 5; !ek_reply_shared_is_up(b) && ek_now() < end;) usleep(1000);
    return r;
}

static int found(ek_replies *r, int key)
{
    const ek_reply_key k = numbered(key);
    ek_reply_record *record = ek_replies_find(r, &k, &k, 0);
    const int n = record ? ek_reply_record_tokens(record) : 0;
    if (record)
        assert_true(ek_reply_record_origin(record) == EK_REPLY_SHARED ||
                    ek_reply_record_origin(record) == EK_REPLY_COMPUTED);
    ek_reply_record_release(record);
    return n;
}

static void need_server(void)
{
    if (!has_server) skip();
}

static void another_process_finds_them(void **state)
{
    (void)state;
    need_server();
    ek_reply_backend b;
    ek_replies *one = open_store("model 1", &b);
    for (int i = 0; i < 20; i++) ek_replies_put(one, 0, record_of(i, 1 + i, 3));
    ek_replies_flush(one);
    ek_replies *two = open_store("model 1", &b), *other = open_store("model 2", &b);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(found(two, i), 1 + i);
        assert_int_equal(found(other, i), 0);
    }
    assert_int_equal(found(two, 77), 0);
    ek_replies_stats st;
    ek_replies_stats_read(two, &st);
    assert_int_equal(st.from[EK_REPLY_SHARED], 20);
    assert_int_equal(st.damaged, 0);
    ek_replies_close(one);
    ek_replies_close(two);
    ek_replies_close(other);
}

static void damaged_ones_are_deleted(void **state)
{
    (void)state;
    need_server();
    ek_reply_backend b;
    ek_replies *one = open_store("model 3", &b);
    for (int i = 0; i < 8; i++) ek_replies_put(one, 0, record_of(i, 5, 3));
    ek_replies_close(one);
    int n;
    char *keys = redis_keys(&server, "evenkeel:reply:1:", &n), *at = keys, *key;
    int changed = 0;
    while ((key = strtok_r(at, " ", &at)) != NULL) {
        size_t size;
        unsigned char *value = redis_get(&server, key, &size);
        value[(size_t)(changed * 37) % size] ^= 4;
        redis_set(&server, key, value, changed % 3 == 2 ? size / 2 : size);
        changed++;
        free(value);
    }
    free(keys);
    one = open_store("model 3", &b);
    for (int i = 0; i < 8; i++) assert_int_equal(found(one, i), 0);
    ek_replies_stats st;
    ek_replies_stats_read(one, &st);
    assert_int_equal(st.damaged, 8);
    for (int i = 0; i < 8; i++) ek_replies_put(one, 0, record_of(i, 5, 3)); /* and computed, they are good again */
    ek_replies_close(one);
    one = open_store("model 3", &b);
    for (int i = 0; i < 8; i++) assert_int_equal(found(one, i), 5);
    ek_replies_close(one);
}

static void a_server_that_lied_is_not_asked_again(void **state)
{
    (void)state;
    need_server();
    ek_reply_backend b;
    ek_replies *liar = open_store("model 4", &b), *one;
    for (int i = 0; i < 4; i++) ek_replies_put(liar, 0, record_of(i, 5, 50));
    ek_replies_close(liar);
    one = open_store("model 4", &b);
    assert_int_equal(found(one, 0), 5);
    ek_replies_put(one, 0, record_of(0, 5, 3)); /* computed, and not what was found */
    for (int i = 1; i < 4; i++) assert_int_equal(found(one, i), 0);
    assert_int_equal(found(one, 0), 5);
    ek_replies_stats st;
    ek_replies_stats_read(one, &st);
    assert_int_equal(st.wrong, 1);
    ek_replies_close(one);
}

static void a_server_that_goes_costs_little(void **state)
{
    (void)state;
    need_server();
    ek_reply_backend b;
    ek_replies *one = open_store("model 5", &b);
    redis_stop(&server);
    const double begin = ek_now();
    for (int i = 0; i < 50; i++) {
        assert_int_equal(found(one, 100 + i), 0);
        ek_replies_put(one, 0, record_of(i, 5, 3));
    }
    if (ek_now() - begin > 3) fail_msg("50 lookups took %.1f s", ek_now() - begin);
    for (int i = 0; i < 50; i++) assert_int_equal(found(one, i), 5); /* in memory */
    redis_again(&server, NULL);
    for (double end = ek_now() + 20; !ek_reply_shared_is_up(&b) && ek_now() < end; usleep(10000)) found(one, 120);
    assert_true(ek_reply_shared_is_up(&b));
    ek_replies_close(one);
}

static int n_keys(void)
{
    int n;
    free(redis_keys(&server, "evenkeel:reply:1:", &n));
    return n;
}

/* What was wrong is deleted once the server can be asked, though it was away when the lookup came. */
static void one_that_cannot_be_deleted_is_deleted_later(void **state)
{
    (void)state;
    need_server();
    int n;
    size_t size;
    ek_reply_backend b;
    const ek_reply_key wrong = numbered(1);
    redis_stop(&server); /* nothing else in it */
    redis_again(&server, NULL);
    ek_replies *one = open_store("model 7", &b);
    ek_replies_put(one, 0, record_of(1, 5, 3));
    ek_replies_flush(one);
    char *key = redis_keys(&server, "evenkeel:reply:1:", &n);
    assert_int_equal(n, 1);
    unsigned char *value = redis_get(&server, key, &size);
    redis_stop(&server);
    b.forget(b.arg, &wrong);
    assert_int_equal(found(one, 100), 0);
    redis_again(&server, NULL);
    redis_set(&server, key, value, size);
    for (double end = ek_now() + 20; n_keys() > 0 && ek_now() < end; usleep(10000)) found(one, 120);
    assert_int_equal(n_keys(), 0);
    free(key), free(value);
    ek_replies_close(one);
}

typedef struct many {
    ek_replies *r;
    int first;
} many;

static void *put_and_find(void *arg)
{
    const many *m = arg;
    for (int i = 0; i < 200; i++) {
        const int key = (m->first + i) % 40;
        ek_replies_put(m->r, 0, record_of(key, 1 + i % 9, key));
        const int n = found(m->r, (key + 7) % 40);
        assert_true(n >= 0 && n <= 9);
    }
    return NULL;
}

static void many_threads_and_two_processes(void **state)
{
    (void)state;
    need_server();
    ek_reply_backend b;
    ek_replies *r[2] = {open_store("model 6", &b), open_store("model 6", &b)};
    pthread_t thread[4];
    many m[4];
    for (int i = 0; i < 4; i++) {
        m[i] = (many){r[i % 2], 10 * i};
        assert_int_equal(pthread_create(&thread[i], NULL, put_and_find, &m[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    ek_replies_stats st;
    ek_replies_stats_read(r[0], &st);
    assert_int_equal(st.wrong, 0);
    ek_replies_close(r[0]);
    ek_replies_close(r[1]);
}

static void bad_urls_say_so(void **state)
{
    (void)state;
    ek_reply_backend b;
    const ek_reply_shared_opts s = {.url = "http://x", .identity = "a", .n_vocab = VOCAB};
    assert_int_equal(ek_reply_shared_open(&b, &s), EK_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_finds_them),
        cmocka_unit_test(damaged_ones_are_deleted),
        cmocka_unit_test(a_server_that_lied_is_not_asked_again),
        cmocka_unit_test(many_threads_and_two_processes),
        cmocka_unit_test(a_server_that_goes_costs_little),
        cmocka_unit_test(one_that_cannot_be_deleted_is_deleted_later),
        cmocka_unit_test(bad_urls_say_so),
    };
    has_server = redis_start(&server, NULL);
    const int status = cmocka_run_group_tests(tests, NULL, NULL);
    if (has_server) redis_end(&server);
    return status;
}
