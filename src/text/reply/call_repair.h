/* The arguments of a call as clients send them back: JSON that was cut off, or written by a model that does not write
 * JSON well. Inside src/text and src/serve. */
#ifndef EK_TEXT_CALL_REPAIR_H
#define EK_TEXT_CALL_REPAIR_H

#include <jansson.h>

#include "text/json/json_scan.h"

/* What ek_call_repair builds of this text at most; linear time. */
void ek_call_repair_scan(ek_json_size *out, const char *text, size_t n);
/* Reads text that is nearly a JSON object, or one written as a JSON string: ends where the text is cut, in a string, a
 * number or a word too; commas before a closer; quotes '…' and quotes inside quotes; words of Python; keys and words
 * without quotes; values that are missing (null); closers that are missing, wrong or too many. The escapes are the
 * lenient reader's (json.h). A new reference to an object, or NULL where the meaning is not clear: a text that does not
 * begin with a brace, a key without a value, something behind the object, nesting beyond EK_JSON_DEPTH. Linear time. */
json_t *ek_call_repair(const char *text, size_t n);

#endif
