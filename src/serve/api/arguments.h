/* The arguments of a call in a conversation that a client sends back. Inside src/serve. */
#ifndef EK_SERVE_ARGUMENTS_H
#define EK_SERVE_ARGUMENTS_H

#include "serve/api/dialect.h"

/* What ek_block.value of a call becomes: v is a member of the body, a text that holds JSON or a value; NULL: absent.
 * *out is a new reference: an object, repaired where the text is damaged but clear (text/reply/reply.h), and
 * empty for null, "", and []; or else a JSON text, as it is: nothing is refused, because the client would send it again
 * with every later turn. What limits->count says; *out is then NULL. */
ek_err ek_arguments_read(json_t **out, const json_t *v, const ek_api_limits *limits);

#endif
