/* A person at a terminal: text that others wrote, and signals that ask long work to stop. Inside src/cli. */
#ifndef EK_CLI_FRAME_TERMINAL_H
#define EK_CLI_FRAME_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Prints text, escaped (base/log.h): it neither breaks a line nor speaks to a terminal. */
void ek_cli_put(FILE *to, const char *text);

/* What a model writes, n bytes of whole characters: as it is, but escaped on a terminal, lines and tabs apart. Returns
 * false if it could not be written. */
bool ek_cli_put_answer(FILE *to, const char *text, size_t n);

/* Calls stop for SIGINT, SIGTERM and SIGHUP, with the flags of sigaction; one that is ignored, as under nohup, stays
 * so. */
void ek_cli_on_stop(void (*stop)(int number), int flags);

#endif
