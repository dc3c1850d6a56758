#include "cli/put.h"

void ek_cli_put(FILE *to, const char *text)
{
    for (const char *p = text; *p; p++) fputc((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p, to);
}
