/* A card with less memory than there is: the rest is taken while a command runs. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"

enum { PIECES = 4096 };

int hold_memory(dev *d, double left_gb, char **command)
{
    static CUdeviceptr piece[PIECES];
    const size_t max = (size_t)1 << 30, left = (size_t)(left_gb * (1 << 30));
    ek_cuda *const c = d->c;
    size_t free, total;
    int status = 1;
    must(ek_cuda_room(c, &free, &total));
    if (free < left) {
        printf("%.1f GiB are free, fewer than %.1f\n", (double)free / (1 << 30), left_gb);
        return 1;
    }
    for (int i = 0; i < PIECES && free > left + (2 << 20); i++) {
        must(ek_cuda_alloc(c, &piece[i], free - left < max ? free - left : max, "holding memory"));
        must(ek_cuda_room(c, &free, &total));
    }
    printf("%.2f of %.1f GiB are left\n", (double)free / (1 << 30), (double)total / (1 << 30));
    fflush(stdout);
    const pid_t pid = fork(); /* which execs at once: a context is not for children */
    if (pid == 0) {
        execvp(command[0], command);
        perror(command[0]);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    ek_cuda_close(c);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
