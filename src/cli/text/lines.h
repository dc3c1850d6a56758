/* Standard input of the text commands: whole, or one JSON value per line. */
#ifndef EK_CLI_LINES_H
#define EK_CLI_LINES_H

#include <jansson.h>

#include "cli/frame/cli.h"

/* Appends one input's result to out. With --jsonl the input is the line's value and the result
 * one line without its end; otherwise it is the raw bytes of standard input, value NULL. */
typedef ek_err ek_line_fn(void *arg, const json_t *value, const ek_buf *raw, ek_buf *out);

/* Runs fn over standard input and prints results as they come. Returns the command's exit status.
 * An error names its line. */
int ek_cli_each(const ek_cli *cli, ek_line_fn *fn, void *arg);

#endif
