/* JSON read into jansson values, and strict compact JSON out.
 *
 * There are two readers. The strict one accepts what Python's json.loads accepts: JSON, and NaN, Infinity and
 * -Infinity. The lenient one is for texts of API clients and of the model, and accepts their known errors. It gives the
 * same value for every text that the strict one accepts. In addition: in a string, `\` before a character that starts
 * no escape is a backslash; `\u` without four hex digits is `\u`; every ill-formed byte sequence is U+FFFD; raw control
 * characters stand for themselves.
 *
 * In both readers an unpaired surrogate is U+FFFD, and the order of members is kept. If keys are equal, the last value
 * counts, at the place of the first. NUL may occur in strings and in keys (use json_string_length,
 * json_object_iter_key_len).
 *
 * Numbers have jansson's types: an integer spelling gives json_integer, any other a json_real. A number that fits
 * neither (an integer beyond 64 bits, a number beyond a double, NaN) becomes an *odd number*: a json string that starts
 * with byte 0xFF, which no text contains. So a caller that needs a number sees a string and refuses it, and
 * ek_json_write and the template print it exactly. Do not give trees that may hold an odd number to json_dumps. */
#ifndef EK_TEXT_JSON_H
#define EK_TEXT_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { EK_JSON_DEPTH = 256 };             /* maximum nesting */
#define EK_JSON_BYTES ((size_t)256 << 20) /* maximum text, if max_bytes is 0 */

/* The strict reader: reads exactly one value (white space around it allowed). *out is a new reference; on
 * failure NULL. EPARSE "line 3 column 14: expected ':' after a key"; ETOOLARGE beyond the
 * limits. max_bytes 0: EK_JSON_BYTES. */
ek_err ek_json_read(json_t **out, const char *text, size_t n, size_t max_bytes);
/* The lenient reader, otherwise the same. */
ek_err ek_json_read_lenient(json_t **out, const char *text, size_t n, size_t max_bytes);
/* Reads a file that holds one value, strictly; also ENOTFOUND and EIO. The error text names the path. */
ek_err ek_json_read_file(json_t **out, const char *path, size_t max_bytes);

/* The spelling of an odd number as Python prints it ("18446744073709551616", "inf", "nan");
 * NULL for any other value. Borrowed from v. */
const char *ek_json_odd_number(const json_t *v);

/* Writing: compact, members in order, doubles in the shortest spelling that reads back. Only
 * `"`, `\` and U+0000..001F are escaped. Ill-formed bytes come out as U+FFFD, so the result
 * is always valid JSON. An infinity is written as 1e999, NaN as null. */
void ek_json_write(ek_buf *out, const json_t *v);
void ek_json_escape(ek_buf *out, const char *s, size_t n); /* without the quotes */
void ek_json_quote(ek_buf *out, const char *s, size_t n);  /* with them */
/* Python's repr of a double: 1.0, 1e-05, 1e+16, inf, nan. */
void ek_json_double(ek_buf *out, double x);

/* The member of obj, borrowed; NULL if absent, or if obj is NULL or no object. */
const json_t *ek_json_get(const json_t *obj, const char *key);
/* The member's bytes if it is a text (odd numbers are not), else NULL. n may be NULL. */
const char *ek_json_get_text(const json_t *obj, const char *key, size_t *n);
/* True if v is a JSON string and not an odd number. */
bool ek_json_is_text(const json_t *v);

/* The size of a JSON text, from one pass over its bytes that builds nothing, so that an expensive body can be refused
 * before memory is taken. */

typedef struct ek_json_size {
    size_t values;     /* of every kind, keys included */
    size_t containers; /* objects and lists among them */
    size_t depth;      /* of nesting */
    size_t growth;     /* maximum bytes by which its strings grow when they are read and written again */
    /* Bytes of strings of at least 4 KiB without a blank, an escape or a byte beyond ASCII: most likely files in
     * base64. */
    size_t coded;
    size_t max_list; /* the maximum number of objects directly in one list of the outermost object (`messages`) */
} ek_json_size;

/* Linear time. Exact for valid JSON (growth is an upper bound); for other text at least what the reader
 * (text/json/json.h) builds before it stops. */
void ek_json_scan(ek_json_size *out, const char *text, size_t n);
/* Maximum bytes of memory for reading a text of this size and n bytes. */
size_t ek_json_cost(const ek_json_size *size, size_t n);

/* --- JSON values with Python's semantics, for the chat template. NULL is an undefined value. Inside src/text. --- */

bool ek_py_truthy(const json_t *v);                 /* bool(v) */
bool ek_py_equal(const json_t *a, const json_t *b); /* ==; NULL equals None */
void ek_py_str(ek_buf *out, const json_t *v);       /* appends str(v); undefined appends nothing */
/* Appends str(v).upper(). */
void ek_py_upper(ek_buf *out, const json_t *v);

/* The members of an object in the order of jinja's dictsort: by lower-case key; equal keys keep their order. Keys and
 * values are borrowed from the object. */
typedef struct ek_member {
    const char *key, *lowered;
    size_t n, n_lowered, place;
    const json_t *value;
} ek_member;

typedef struct ek_members {
    ek_member *at;
    size_t n;
    ek_buf lowered;
} ek_members;

void ek_members_init(ek_members *m, const json_t *object);
void ek_members_fini(ek_members *m);

#endif
