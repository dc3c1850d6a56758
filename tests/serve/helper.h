/* A server in this process and its client, for tests. */
#ifndef EK_TESTS_SERVE_HELPER_H
#define EK_TESTS_SERVE_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "serve/server.h"

/* Opens a server on a free port of 127.0.0.1 and runs it in a thread of its own. opts: without http, but for
 * max_body. One server at a time. */
ek_server *start_server(ek_engine *engine, const ek_server_opts *opts);
/* Ends it with SIGTERM and closes it; fails the test unless it ended without an error. Returns the longest turn of its
 * event loop. */
ek_err await_server(void); /* until it ends by itself: what ek_server_run returned */
double stop_server(void);

/* A random model that reads with the tokenizer of models/pocket; a context of 512 tokens. */
ek_model *tiny_model(void);

/* A server over that model on an engine of its own. opts: without model. Logs errors alone. */
ek_server *start_tiny(int max_requests, int max_queue, ek_server_opts opts);
void stop_tiny(void);

int connect_to(int port); /* the socket */
void send_all(int fd, const char *bytes, size_t n);

/* Sends a POST whose reply ends the connection; returns the socket. */
int post_to(int port, const char *path, const char *body);
/* The whole reply, head included; to be freed with ek_buf_fini. Closes fd. */
ek_buf reply_of(int fd);

/* The whole reply of the server that runs. headers: further lines, each with its end. */
ek_buf ask_server(const char *method, const char *path, const char *headers, const char *body);
/* Fails the test unless the reply has this status and contains `says`. */
void check_server(const char *method, const char *path, const char *headers, const char *body, int status,
                  const char *says);

/* The tiny model, and an engine over it, for tests that open several servers. */
void open_tiny_engine(ek_model **model, ek_engine **engine, int max_requests, int max_queue);
/* stop_tiny, as a teardown. */
int close_tiny(void **state);

#endif
