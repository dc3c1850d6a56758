#include "cli/frame/stop.h"

#include <signal.h>
#include <stddef.h>

void ek_cli_on_stop(void (*stop)(int number), int flags)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = stop, .sa_flags = flags}, was;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sigaction(all[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) sigaction(all[i], &act, NULL);
}
