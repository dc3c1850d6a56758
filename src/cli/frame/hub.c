#include "cli/frame/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "hub/name.h"
#include "open/open.h"

ek_err ek_cli_hub_name(ek_hub_name *out, const char *text)
{
    const ek_hub_short *as = ek_hub_short_find(text);
    ek_err err = ek_hub_name_parse(out, as ? as->model : text);
    if (!err || strchr(text, '/')) return err;
    ek_buf guess = {0};
    ek_hub_guess(&guess, text);
    err = ek_fail(err, "%.80s%s", *text ? text : "\"\"", ek_buf_text(&guess));
    ek_buf_fini(&guess);
    return err;
}

ek_err ek_cli_find_model(const char *text, const char **path)
{
    static ek_buf found[4]; /* the model, its drafter, and options that are given again */
    static size_t next;
    ek_buf *b = &found[next++ % (sizeof found / sizeof *found)];
    ek_buf_clear(b);
    EK_TRY(ek_model_find(b, text));
    *path = ek_model_is_name(text) ? ek_buf_text(b) : text;
    return EK_OK;
}

char *ek_cli_model_name(const ek_cli *cli, const char *path)
{
    if (cli->has.model && strcmp(path, cli->model)) return ek_strdup(cli->model);
    char *real = realpath(path, NULL);
    const char *text = real ? real : path, *slash = strrchr(text, '/');
    char *name = ek_strdup(slash && slash[1] ? slash + 1 : text);
    free(real);
    return name;
}

void ek_cli_size_text(char out[16], double bytes)
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB"};
    int u = 0;
    while (bytes >= 1000 && u < 4) bytes /= 1000, u++;
    snprintf(out, 16, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
}
