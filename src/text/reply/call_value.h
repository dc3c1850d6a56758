/* Unquoted values in a tool call, and their types by the tool's JSON schema. Inside src/text. */
#ifndef EK_TEXT_CALL_VALUE_H
#define EK_TEXT_CALL_VALUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "text/reply/call_names.h"

/* Schema look-up. Results are borrowed; NULL where nothing is known, also for a NULL argument. */
const json_t *ek_schema_of_tool(const json_t *tools, const char *name); /* the function's parameters */
const json_t *ek_schema_property(const json_t *schema, const char *key, size_t n);
const json_t *ek_schema_items(const json_t *schema); /* of all items */

/* True if the word is a value as it stands: a JSON or Python literal, or, where the schema wants a number, a
 * number in a spelling that JSON lacks. */
bool ek_bare_is_literal(const char *s, size_t n, const json_t *schema);
/* Appends the word to out as JSON: a literal, else a string. An empty word becomes null, or an empty string where
 * the schema wants a string. */
void ek_bare_value(ek_buf *out, const char *s, size_t n, const json_t *schema);
/* Length in bytes of the word at s, in text that is complete: up to a comma that a key follows (in a list: any
 * comma), or up to a closer that the word did not open. names: keys that are known. */
size_t ek_bare_extent(const char *s, size_t n, bool in_list, bool in_call, const ek_call_names *names);
/* For a <|"|> that comes after the held text s: true if it opens a new string (the text is bare words and syntax),
 * false if it closes the present one. */
bool ek_bare_opens_text(const char *s, size_t n, const ek_call_names *names);

#endif
