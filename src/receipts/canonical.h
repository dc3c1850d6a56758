/* Canonical JSON: each value has one form, so a signed text has one reading. It is RFC 8785 restricted to objects,
 * lists, texts, booleans and integers of magnitude below 2^53, without blanks, with ASCII keys sorted by bytes. Other
 * numbers are texts: a float as 8 hexadecimal digits, a 64-bit integer as decimal digits. */
#ifndef EK_RECEIPTS_CANONICAL_H
#define EK_RECEIPTS_CANONICAL_H

#include "text/json/json.h"

/* Appends v. EFORMAT for null, for other numbers, and for a key with other bytes than those from blank to tilde. */
ek_err ek_canonical_write(ek_buf *out, const json_t *v);
/* Reads n bytes that ek_canonical_write wrote; *out is a new reference. EFORMAT for any other bytes, such as double
 * keys, blanks, 1.0 or a needless escape. Allocates nothing for a text deeper than 8 or with more than max values. */
ek_err ek_canonical_read(json_t **out, const char *text, size_t n, size_t max);

#endif
