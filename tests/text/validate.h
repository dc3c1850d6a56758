/* A plain JSON schema validator, written from the specification (2020-12), for the keywords that random schemas of
 * the tests use. It shares nothing with the compiler under test. */
#ifndef EK_TESTS_TEXT_VALIDATE_H
#define EK_TESTS_TEXT_VALIDATE_H

#include <jansson.h>
#include <stdbool.h>

/* doc: where "#/$defs/NAME" and "#" point. *why gets a keyword that fails. */
bool is_valid(const json_t *doc, const json_t *schema, const json_t *value, const char **why);

#endif
