/* Custom tools of OpenAI's APIs, whose input is a text: to the model a function with the one argument `input`, which a
 * strict schema keeps to the tool's format. Inside src/serve. */
#ifndef EK_SERVE_CUSTOM_H
#define EK_SERVE_CUSTOM_H

#include "serve/api/dialect.h"

/* The declaration of a custom tool, a new reference; t: the object that has its description and format. name: as the
 * model knows it. A grammar in Lark's notation is turned into a pattern (text/regex/regex.h). EINVAL, ETOOLARGE with
 * r->param.
 */
ek_err ek_custom_tool(ek_api_request *r, const json_t *name, const json_t *description, const json_t *t, json_t **tool);
/* The arguments that stand for an input, a new reference. */
json_t *ek_custom_arguments(const char *input, size_t n);

/* Takes the input out of a call's arguments, which may come in pieces. Zero-initialise. */
typedef struct ek_custom_input {
    int at;        /* bytes of what stands before the text that were read; behind it: -1 */
    char held[16]; /* an escape that is not complete */
    int n_held;
} ek_custom_input;
void ek_custom_input_add(ek_custom_input *c, ek_buf *out, const char *args, size_t n);
/* The same for all of it. */
void ek_custom_input_of(ek_buf *out, const ek_buf *args);

#endif
