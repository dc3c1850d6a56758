#include "cli/frame/terminal.h"

#include <signal.h>
#include <stddef.h>
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

void ek_cli_on_stop(void (*stop)(int number), int flags)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = stop, .sa_flags = flags}, was;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sigaction(all[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) sigaction(all[i], &act, NULL);
}
