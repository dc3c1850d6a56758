/* What the tests of this layer share. Programs run in the root of the tree. */
#ifndef EK_TESTS_CHAT_HELPER_H
#define EK_TESTS_CHAT_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "chat/turn.h"

/* The bundled model's, opened once. */
const ek_chat_model *pocket(void);
/* Ids of text in which control tokens are spelled out; free with ek_ids_fini. */
ek_ids ids_of(const char *text);

/* Appends messages and blocks; the pointers are valid until the next one. */
ek_message *add_text(ek_conversation *c, ek_role role, const char *text);
ek_block *add_call(ek_message *m, const char *id, const char *name, const char *arguments);

/* Compares and frees got. */
void check_buf(ek_buf *got, const char *want, const char *file, int line);
#define same_text(got, want) check_buf((got), (want), __FILE__, __LINE__)

#endif
