/* Text that others wrote, for people. Inside src/cli. */
#ifndef EK_CLI_PUT_H
#define EK_CLI_PUT_H

#include <stdio.h>

/* Prints text, escaped (base/plain.h): it neither breaks a line nor speaks to a terminal. */
void ek_cli_put(FILE *to, const char *text);

#endif
