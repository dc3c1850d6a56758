/* What a mistyped word may have been. Inside src/cli. */
#ifndef EK_CLI_GUESS_H
#define EK_CLI_GUESS_H

#include "cli/frame/table.h"

/* Steps that make b of a: a letter more, less, another, or two neighbours exchanged; na and nb bytes, of which at most
 * 32 are looked at. */
int ek_cli_distance(const char *a, size_t na, const char *b, size_t nb);

/* The nearest one, if it is near: within a third of its letters, or one of both begins with the other, three letters
 * at least. NULL without. */
const char *ek_cli_guess_command(const char *typed);
const ek_option *ek_cli_guess_option(const char *typed, size_t n, ek_cmd_id id); /* typed: "--prot" or "-prot" */

#endif
