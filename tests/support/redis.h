/* A real server of Redis' protocol for a test, on a free port of 127.0.0.1, and commands to it. */
#ifndef EK_TESTS_SUPPORT_REDIS_H
#define EK_TESTS_SUPPORT_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct redis_server {
    pid_t pid;
    int port;
    char url[64];
    char *dir;
} redis_server;

/* option: more arguments of the server, NULL at the end, or NULL. False if this machine has none, or a client is not
 * built in: the caller skips. It must answer within seconds, or the test fails. */
bool redis_start(redis_server *r, const char *const *option);
/* Ends it at once; everything it held is gone. */
void redis_stop(redis_server *r);
void redis_end(redis_server *r); /* and removes its folder */
/* Begins it again on the same port. */
void redis_again(redis_server *r, const char *const *option);

/* One command, words with spaces between. Returns the reply as text, "" for none; valid until the next call. */
const char *redis_do(const redis_server *r, const char *command);
/* The names of all keys that begin so, with spaces between; to be freed. *n: how many. */
char *redis_keys(const redis_server *r, const char *begin, int *n);
/* The bytes of a key, to be freed; sets them. */
unsigned char *redis_get(const redis_server *r, const char *key, size_t *n);
void redis_set(const redis_server *r, const char *key, const unsigned char *bytes, size_t n);

#endif
