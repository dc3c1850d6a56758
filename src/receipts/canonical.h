/* JSON in one form only, so that what is signed can be read in one way only: RFC 8785 restricted to objects, lists,
 * texts, booleans and integers of magnitude below 2^53, with keys of ASCII letters in the order of their bytes, without
 * blanks. Other numbers are texts: a float its 8 hexadecimal digits, a 64-bit integer its decimal ones. */
#ifndef EK_RECEIPTS_CANONICAL_H
#define EK_RECEIPTS_CANONICAL_H

#include "text/json/json.h"

/* Appends v. EFORMAT for null, for other numbers, and for a key with other bytes than those from blank to tilde. */
ek_err ek_canonical_write(ek_buf *out, const json_t *v);
/* Reads n bytes that ek_canonical_write wrote; *out is a new reference. EFORMAT for all others: double keys, blanks,
 * 1.0, an escape that is not needed. Nothing is allocated for what is deeper than 8 or has more than max values. */
ek_err ek_canonical_read(json_t **out, const char *text, size_t n, size_t max);

#endif
