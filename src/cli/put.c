#include "cli/put.h"

#include <string.h>

#include "base/plain.h"

void ek_cli_put(FILE *to, const char *text)
{
    char part[64];
    bool plain;
    for (size_t n = strlen(text), took; n > 0; text += took, n -= took) {
        took = ek_plain_char(text, n, &plain);
        ek_plain(part, sizeof part, text, took);
        fputs(part, to);
    }
}
