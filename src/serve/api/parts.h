/* What messages hold beside plain text: documents, results of a search and files become the text that they are, with
 * their names around it; media are refused by name. Inside src/serve. */
#ifndef EK_SERVE_PARTS_H
#define EK_SERVE_PARTS_H

#include "serve/api/dialect.h"

/* EINVAL: "WHAT of type "TYPE" are not taken in WHERE". */
ek_err ek_part_refuse(const char *what, const char *type, const char *where);

/* <TAG>, then a line <NAME>…</NAME> for each member (a text that is not empty) of object; ek_part_close ends it. The
 * names: at most so many, NULL behind the last. */
void ek_part_open(ek_buf *out, const char *tag, const json_t *object, const char *const *names);
void ek_part_close(ek_buf *out, const char *tag);

/* The text of a file: s is a data: URL, or its base64 where type is given or it is none. type: the media type, NULL
 * where the URL, or nothing, says it. EINVAL for what is not a text in UTF-8, with its type. */
ek_err ek_part_file(ek_buf *out, const char *s, size_t n, const char *type, const char *where);
/* The same as a document with the member `filename` of part as its title. */
ek_err ek_part_named_file(ek_buf *out, const json_t *part, const char *s, size_t n, const char *where);

#endif
