#include <stdio.h>
#include <string.h>

#include "base/machine/cpu.h"
#include "cli/frame/cli.h"
#include "model/model.h"

int ek_cmd_version(const ek_cli *cli)
{
    if (cli->isas) {
        for (const char *const *isa = ek_cpu_isas(); *isa; isa++) printf("%s%s", *isa, isa[1] ? " " : "\n");
        return 0;
    }
    printf("evenkeel %s\n", EK_VERSION);
#ifdef __clang__
    printf("build clang %d.%d.%d", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    printf("build gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
#ifdef __x86_64__
    printf(" x86_64\n");
#elif defined __aarch64__
    printf(" aarch64\n");
#else
    printf("\n");
#endif
    /* The same for every model; a model adds its formats (system_fingerprint of its replies). */
    printf("numerics ek%d\n", EK_ARITHMETIC_VERSION);
    return 0;
}
