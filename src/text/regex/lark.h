/* Grammars in Lark's notation as regular expressions, as far as they are regular: a rule that comes to itself again is
 * refused. So the text of a tool's input can be kept to its grammar by the automata that schemas have. Inside src/text
 * and for dialects. */
#ifndef EK_TEXT_LARK_H
#define EK_TEXT_LARK_H

#include "base/buf.h"
#include "base/err.h"

enum {
    EK_LARK_PATTERN_BYTES = 64 << 10, /* of the grammar, and of what it becomes */
    EK_LARK_DEPTH = 100               /* names and brackets inside each other */
};

/* Appends a pattern (text/regex/regex.h) of the whole texts that the grammar's rule `start` describes. Known: rules and
 * terminals, aliases and priorities (which change nothing), | ? * + ~n ~n..m ( ) [ ], "texts" and "texts"i, ranges,
 * /patterns/ without flags, %ignore, and %import of most of common. EINVAL with the line and what is wrong or not
 * supported there; ETOOLARGE beyond the limits above. What a pattern in the grammar says is not read here. */
ek_err ek_lark_pattern(ek_buf *out, const char *grammar, size_t n);

#endif
