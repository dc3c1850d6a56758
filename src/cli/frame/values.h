/* The value of an option: from its text into the field of an ek_cli, by the kind and the bounds that options.def gives
 * it. Inside src/cli. */
#ifndef EK_CLI_VALUES_H
#define EK_CLI_VALUES_H

#include "cli/frame/table.h"

/* An option's value and where it was written, for messages: "--chunk" or "EVENKEEL_CHUNK". */
typedef struct ek_given {
    const ek_option *o;
    const char *where, *value;
} ek_given;

/* EINVAL says where, the value and what is needed instead. Texts are kept as pointers; FILES are added to those before,
 * a LIST takes their place. */
ek_err ek_option_set(ek_cli *cli, const ek_given *g);
void ek_option_clear(ek_cli *cli, const ek_option *o); /* gives back what ek_option_set has allocated for it */

/* Whether an empty text says something of its own: no origin at all. */
bool ek_option_may_be_empty(const ek_option *o);

/* What PROGRAM takes for a path, rather than for a word or the next argument. */
bool ek_option_is_path(const char *text);

#endif
