/* A client for tests of a server in this process. */
#ifndef EK_TESTS_SERVE_HELPER_H
#define EK_TESTS_SERVE_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"

/* Sends a POST whose reply ends the connection; gives the socket. */
int post_to(int port, const char *path, const char *body);
/* The whole reply, head included; to be freed with ek_buf_fini. Closes fd. */
ek_buf reply_of(int fd);

#endif
