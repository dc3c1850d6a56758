/* cache/shared: pages by a real server come back as they were, or not at all, and never late; whatever a server does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/redis.h"
#include "base/clock.h"
#include "base/hash/rng.h"
#include "base/log.h"
#include "bed.h"
#include "cache/store.h"

static const bool both[EK_KIND_COUNT] = {true, true};

static ek_store_backend open_shared(const ek_shared_opts *o, const char *what)
{
    ek_store_backend b;
    assert_int_equal(ek_store_shared_open(&b, o, what, &bed_layout), EK_OK);
    return b;
}

/* A backend with both of its connections. */
static ek_store_backend open_connected(const ek_shared_opts *o, const char *what)
{
    ek_store_backend b = open_shared(o, what);
    for (double end = ek_now() + 5; atomic_load(&b.shared->connected) < 2 && ek_now() < end;) usleep(1000);
    assert_int_equal(atomic_load(&b.shared->connected), 2);
    return b;
}

static ek_store_backend open_at(const char *url)
{
    const ek_shared_opts o = {.url = url, .max_bytes = 1e8};
    return open_connected(&o, "a model");
}

static void settle(ek_store_backend *b)
{
    uint64_t n = b->queued(b->arg);
    for (double end = ek_now() + 10; !b->is_written(b->arg, n) && ek_now() < end;) usleep(1000);
    assert_true(b->is_written(b->arg, n));
}

static void write_n(ek_store_backend *b, uint64_t seed, int n)
{
    for (int i = 0; i < n; i++) {
        ek_store_page page, *one = &page;
        bed_fill(&page, seed, i);
        b->write(b->arg, &one, 1);
    }
    settle(b);
}

/* How many of n pages of a prompt are there, in both kinds; whatever is there must be right. */
static int read_n(ek_store_backend *b, uint64_t seed, int n, bool ahead)
{
    int good = 0;
    if (ahead) b->ahead(b->arg, NULL, NULL);
    for (int i = 0; i < n && ahead; i++) {
        ek_store_page p;
        bed_fill(&p, seed, i);
        p.bytes[0] = p.bytes[1] = NULL;
        b->ahead(b->arg, &p, both);
    }
    for (int i = 0; i < n; i++) good += bed_read(b, seed, i);
    return good;
}

static void close_it(ek_store_backend *b)
{
    b->close(b->arg);
}

/* --- a real server --- */

static void pages_go_from_one_to_another(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    ek_store_backend a = open_at(r.url), b = open_at(r.url);
    assert_int_equal(read_n(&b, 1, 3, true), 0);
    write_n(&a, 1, 20);
    write_n(&a, 3, 4); /* with contents */
    write_n(&b, 1, 5); /* they are there */
    assert_int_equal(atomic_load(&a.shared->written), 48);
    assert_int_equal(atomic_load(&b.shared->written), 0);
    assert_int_equal(atomic_load(&b.shared->known), 10);
    for (int ahead = 0; ahead < 2; ahead++) {
        assert_int_equal(read_n(&b, 1, 22, ahead), 40);
        assert_int_equal(read_n(&b, 3, 6, ahead), 8);
        assert_int_equal(read_n(&b, 2, 6, ahead), 0);
    }
    assert_int_equal(atomic_load(&b.shared->hits), 96);
    assert_int_equal(atomic_load(&b.shared->misses), 6 + 2 * (4 + 4 + 12));
    assert_true(atomic_load(&b.shared->read_bytes) > 2 * 24 * 56384);
    const ek_shared_opts o = {.url = r.url, .max_bytes = 1e8};
    ek_store_backend other = open_connected(&o, "another model");
    assert_int_equal(read_n(&other, 1, 5, true), 0); /* of a name of its own */
    close_it(&other);
    int n;
    char *about = redis_keys(&r, "evenkeel:about:1:", &n);
    assert_int_equal(n, 1);
    char command[256];
    snprintf(command, sizeof command, "GET %s", about);
    assert_string_equal(redis_do(&r, command), "a model");
    free(about);
    close_it(&a);
    close_it(&b);
    redis_end(&r);
}

/* Refuted pages are deleted, and not read again from a server that keeps them all the same. */
static void a_refuted_page_is_not_used_again(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    ek_store_backend a = open_at(r.url), b = open_at(r.url);
    write_n(&a, 1, 3);
    ek_store_page p, *one = &p;
    bed_fill(&p, 1, 1);
    p.has[0] = p.has[1] = false;
    b.write(b.arg, &one, 1);
    settle(&b);
    assert_int_equal(read_n(&a, 1, 3, true), 4); /* it was deleted */
    assert_int_equal(atomic_load(&b.shared->wrong), 1);
    write_n(&a, 1, 3);
    assert_int_equal(read_n(&a, 1, 3, true), 6);
    assert_int_equal(read_n(&b, 1, 3, true), 4); /* it is there again, whoever wrote it */
    close_it(&a);
    close_it(&b);
    redis_end(&r);
}

/* Every stored value changed in one way: nothing of it is used, each is counted and deleted, and written anew. */
static void what_lies_is_not_believed(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    ek_store_backend a = open_at(r.url);
    for (int way = 0; way < 5; way++) {
        int n, found;
        write_n(&a, 1, 4);
        char *keys = redis_keys(&r, "evenkeel:page:1:", &n), *first = NULL;
        assert_int_equal(n, 8);
        unsigned char *held = NULL;
        size_t held_n = 0;
        for (char *at = keys, *key; (key = strtok_r(at, " ", &at)) != NULL;) {
            size_t size;
            unsigned char *value = redis_get(&r, key, &size);
            if (way == 0) value[ek_mix64((uint64_t)size) % size] ^= 0x10;
            else if (way == 1) size /= 2;
            else if (way == 2) size = 0;
            else if (way == 3) value[size - 1] ^= 1;
            if (way < 4) redis_set(&r, key, value, size);
            if (way == 4 && first) { /* each gets the value of the one before it */
                redis_set(&r, key, held, held_n);
            }
            if (way == 4 && !first) first = key;
            free(held);
            held = value, held_n = size;
        }
        if (way == 4) redis_set(&r, first, held, held_n);
        free(held);
        free(keys);
        unsigned long long wrong = atomic_load(&a.shared->wrong);
        found = read_n(&a, 1, 4, way % 2);
        assert_int_equal(found, 0);
        assert_int_equal(atomic_load(&a.shared->wrong) - wrong, 8);
        settle(&a);
        free(redis_keys(&r, "evenkeel:page:1:", &n));
        assert_int_equal(n, 0);
        write_n(&a, 1, 4);
        assert_int_equal(read_n(&a, 1, 4, true), 8);
        redis_do(&r, "FLUSHALL");
    }
    assert_int_equal(read_n(&a, 1, 4, true), 0);
    close_it(&a);
    redis_end(&r);
}

/* A key that holds no bytes is a refusal: replies that were on their way behind it are no replies to what is asked
 * next, no page is called wrong for it, and when the key is gone everything is found. */
static void a_key_of_another_kind_costs_time_only(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    ek_store_backend a = open_at(r.url);
    for (int place = 0; place < 8; place += 3) {
        int n;
        write_n(&a, 1, 4);
        assert_int_equal(read_n(&a, 1, 4, true), 8);
        char *keys = redis_keys(&r, "evenkeel:page:1:", &n), *at = keys, *key = NULL, command[256];
        assert_int_equal(n, 8);
        for (int i = 0; i <= place; i++) key = strtok_r(at, " ", &at);
        snprintf(command, sizeof command, "DEL %s", key);
        redis_do(&r, command);
        snprintf(command, sizeof command, "RPUSH %s a b", key);
        redis_do(&r, command);
        unsigned errors = (unsigned)atomic_load(&a.shared->errors);
        int found = 0;
        for (int i = 0; i < 3; i++) found = read_n(&a, 1, 4, true);
        assert_true(found < 8);
        assert_true(atomic_load(&a.shared->errors) > errors);
        snprintf(command, sizeof command, "DEL %s", key);
        redis_do(&r, command);
        free(keys);
        for (double end = ek_now() + 20; found < 8 && ek_now() < end; usleep(20000)) {
            write_n(&a, 1, 4);
            found = read_n(&a, 1, 4, true);
        }
        assert_int_equal(found, 8);
        assert_int_equal(atomic_load(&a.shared->wrong), 0);
    }
    close_it(&a);
    redis_end(&r);
}

/* Full: refused pages are dropped and counted; it goes on when that is over. */
static void a_full_server_drops_pages_and_nothing_else(void **state)
{
    (void)state;
    redis_server r;
    static const char *const small[] = {"--maxmemory", "3mb", "--maxmemory-policy", "noeviction", NULL};
    if (!redis_start(&r, small)) skip();
    ek_store_backend a = open_at(r.url);
    for (uint64_t s = 1; s <= 20; s++) write_n(&a, s, 4);
    for (double end = ek_now() + 20; atomic_load(&a.shared->waiting_bytes) > 0 && ek_now() < end;) usleep(5000);
    assert_true(atomic_load(&a.shared->dropped) > 50);
    assert_true(atomic_load(&a.shared->errors) > 0);
    int found = 0;
    for (uint64_t s = 1; s <= 20; s++) found += read_n(&a, s, 4, true);
    assert_true(found > 4 && found < 160);
    redis_do(&r, "CONFIG SET maxmemory 100mb");
    for (double end = ek_now() + 20; found < 160 && ek_now() < end; usleep(20000)) { /* a page may be written twice */
        for (uint64_t s = 1; s <= 20; s++) write_n(&a, s, 4);
        found = 0;
        for (uint64_t s = 1; s <= 20; s++) found += read_n(&a, s, 4, true);
    }
    assert_int_equal(found, 160);
    close_it(&a);
    redis_end(&r);
}

static void a_server_may_go_and_come(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    ek_store_backend a = open_at(r.url);
    write_n(&a, 1, 4);
    assert_int_equal(read_n(&a, 1, 4, true), 8);
    for (int round = 0; round < 2; round++) {
        redis_stop(&r);
        double begin = ek_now();
        assert_int_equal(read_n(&a, 1, 4, true), 0);
        for (uint64_t s = 10; s < 14; s++) write_n(&a, s, 4);
        for (int i = 0; i < 100; i++) assert_int_equal(read_n(&a, 1, 4, i % 2), 0);
        assert_true(ek_now() - begin < 3);
        redis_again(&r, NULL);
        for (double end = ek_now() + 20; atomic_load(&a.shared->connected) < 2 && ek_now() < end;) usleep(5000);
        assert_int_equal(atomic_load(&a.shared->connected), 2);
        write_n(&a, 1, 4);
        assert_int_equal(read_n(&a, 1, 4, true), 8);
    }
    redis_do(&r, "CLIENT KILL TYPE normal"); /* as one does that was idle too long: at once again */
    assert_int_equal(read_n(&a, 1, 4, true), 8);
    close_it(&a);
    redis_end(&r);
}

static void who_may_not_enter_has_no_pages(void **state)
{
    (void)state;
    redis_server r;
    static const char *const secret[] = {"--requirepass", "pa ss", NULL};
    if (!redis_start(&r, NULL)) skip();
    redis_stop(&r);
    redis_again(&r, secret);
    static const struct {
        const char *user;
        int good;
    } as[] = {{":pa%20ss@", 8}, {"default:pa%20ss@", 8}, {":wrong@", 0}, {"nobody:pa%20ss@", 0}, {"", 0}};
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        char url[128];
        snprintf(url, sizeof url, "redis://%s127.0.0.1:%d/2", as[i].user, r.port);
        const ek_shared_opts o = {.url = url, .max_bytes = 1e8};
        ek_store_backend a = open_shared(&o, "a model");
        for (double end = ek_now() + 5; ek_now() < end;) {
            if (atomic_load(&a.shared->connected) == 2 || atomic_load(&a.shared->errors) >= 2) break;
            usleep(1000);
        }
        write_n(&a, 1, 4);
        assert_int_equal(read_n(&a, 1, 4, true), as[i].good);
        assert_int_equal(atomic_load(&a.shared->errors) > 0, as[i].good == 0);
        close_it(&a);
    }
    redis_end(&r);
}

/* Bytes per second and in flight are bounds. */
static void the_bounds_hold(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    const ek_shared_opts slow = {.url = r.url, .max_bytes = 200000, .rate = 300000};
    ek_store_backend a = open_connected(&slow, "a model");
    double begin = ek_now();
    for (int i = 0; i < 20; i++) {
        ek_store_page page, *one = &page;
        bed_fill(&page, 1, i);
        a.write(a.arg, &one, 1);
        assert_true(atomic_load(&a.shared->waiting_bytes) <= 200000);
    }
    assert_true(atomic_load(&a.shared->dropped) > 10);
    settle(&a);
    double sent = (double)atomic_load(&a.shared->written_bytes);
    assert_true(sent > 0 && sent < 300000 * (ek_now() - begin) + 100000);
    begin = ek_now();
    double before = (double)atomic_load(&a.shared->read_bytes);
    for (int i = 0; i < 10; i++) read_n(&a, 1, 20, true);
    assert_true((double)atomic_load(&a.shared->read_bytes) - before < 300000 * (ek_now() - begin) + 200000);
    close_it(&a);
    redis_end(&r);
}

/* Behind host memory: what was read is kept there, and asked for once. */
static void memory_before_a_server(void **state)
{
    (void)state;
    redis_server r;
    if (!redis_start(&r, NULL)) skip();
    ek_store_backend a = open_at(r.url), below = open_at(r.url), b;
    write_n(&a, 1, 8);
    assert_int_equal(ek_store_memory_open(&b, &bed_layout, 1e9, &below), EK_OK);
    assert_false(b.fleeting);
    for (int round = 0; round < 3; round++) assert_int_equal(read_n(&b, 1, 8, true), 16);
    assert_int_equal(atomic_load(&b.shared->hits), 16);
    assert_int_equal(atomic_load(&b.host->read), 32);
    close_it(&a);
    close_it(&b);
    redis_end(&r);
}

int main(void)
{
    ek_log_set(EK_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_go_from_one_to_another),
        cmocka_unit_test(a_refuted_page_is_not_used_again),
        cmocka_unit_test(what_lies_is_not_believed),
        cmocka_unit_test(a_key_of_another_kind_costs_time_only),
        cmocka_unit_test(a_full_server_drops_pages_and_nothing_else),
        cmocka_unit_test(a_server_may_go_and_come),
        cmocka_unit_test(who_may_not_enter_has_no_pages),
        cmocka_unit_test(memory_before_a_server),
        cmocka_unit_test(the_bounds_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
