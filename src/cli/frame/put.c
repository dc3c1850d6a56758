#include "cli/frame/put.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"

static void put(FILE *to, const char *text, size_t n, bool lines)
{
    char part[64];
    bool plain;
    for (size_t took; n > 0; text += took, n -= took) {
        took = ek_plain_char(text, n, &plain);
        if (plain || (lines && (*text == '\n' || *text == '\t'))) {
            fwrite(text, 1, took, to);
        } else {
            ek_plain(part, sizeof part, text, took);
            fputs(part, to);
        }
    }
}

void ek_cli_put(FILE *to, const char *text)
{
    put(to, text, strlen(text), false);
}

bool ek_cli_put_answer(FILE *to, const char *text, size_t n)
{
    if (isatty(fileno(to))) put(to, text, n, true);
    else fwrite(text, 1, n, to);
    return !ferror(to);
}
