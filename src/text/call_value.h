/* Values without quotes in a tool call, and what the tool's schema says about them. Inside
 * src/text. */
#ifndef EK_TEXT_CALL_VALUE_H
#define EK_TEXT_CALL_VALUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

/* NULL in, NULL out: nothing is known. */
const json_t *ek_schema_of_tool(const json_t *tools, const char *name); /* its parameters */
const json_t *ek_schema_property(const json_t *schema, const char *key, size_t n);
const json_t *ek_schema_items(const json_t *schema);

/* Is the word a value as it stands: a JSON or Python literal, or a number in a spelling that
 * JSON lacks where the schema wants a number? */
bool ek_bare_is_literal(const char *s, size_t n, const json_t *schema);
/* Appends the word as JSON: a literal, or else a string. Nothing at all is null, or an empty
 * string where the schema wants a string. */
void ek_bare_value(ek_buf *out, const char *s, size_t n, const json_t *schema);
/* How far a word reaches in text that is complete: to a comma that a key follows (in a list: to
 * any comma), or to a closer it did not open. */
size_t ek_bare_extent(const char *s, size_t n, bool in_list, bool in_call);
/* A <|"|> comes after this held text: does it open a new string (the text is bare words and
 * syntax) rather than close this one? */
bool ek_bare_opens_text(const char *s, size_t n);

#endif
