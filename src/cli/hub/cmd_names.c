/* names: the short names of models, which of them fit this machine, and the recommended one. */
#define _GNU_SOURCE /* strcasestr */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/hub/fetch.h"
#include "cli/inspect/inspect.h"
#include "hub/name.h"

enum { MAX_NAMES = 64 };
/* To write a token, a CPU reads the model's weights from memory. With more bytes than this, most machines write more
 * slowly than a person reads. */
static const double MAX_READS = 3.5e9;

typedef struct row {
    const ek_hub_short *name;
    ek_inspect_fit fit;
    bool known;
} row;

static bool wanted(const ek_cli *cli, const ek_hub_short *s)
{
    return !cli->arg || strcasestr(s->name, cli->arg) || strcasestr(s->model, cli->arg);
}

/* The bits per weight of a name. The shapes follow from the size, so nothing has to be fetched. */
static const char *bits_of(const char *name)
{
    const char *format = strchr(name, ':');
    if (!format || strchr(format, '4')) return "4";
    return strchr(format, '8') ? "8" : "0";
}

static void measure(row *r, const ek_cli *cli)
{
    char size[16];
    snprintf(size, sizeof size, "%.*s", (int)strcspn(r->name->name, ":"), r->name->name);
    r->known = ek_inspect_fits(&r->fit, cli, size, bits_of(r->name->name)) == EK_OK;
}

static bool fits(const row *r)
{
    return r->known && (r->fit.on_device || r->fit.needs <= r->fit.free);
}

/* The largest size that fits on a device, or that a CPU computes at reading pace. */
static int recommended(const row *v, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (strchr(v[i].name->name, ':') || !fits(&v[i])) continue;
        const bool device = v[i].fit.on_device, before = best >= 0 && v[best].fit.on_device;
        if (device || (!before && v[i].fit.reads <= MAX_READS && v[i].fit.needs <= 0.9 * v[i].fit.free)) best = i;
    }
    return best;
}

const ek_hub_short *ek_cli_recommended(const ek_cli *cli)
{
    row v[MAX_NAMES];
    int n = 0;
    for (int i = 0; i < ek_hub_n_shorts && n < MAX_NAMES; i++) {
        if (strchr(ek_hub_shorts[i].name, ':')) continue;
        v[n] = (row){.name = &ek_hub_shorts[i]};
        measure(&v[n++], cli);
    }
    const int best = recommended(v, n);
    return best < 0 ? NULL : v[best].name;
}

/* "on the GPU", "yes", "no, 3.1 GB short" */
static void fit_text(char out[32], const row *r)
{
    if (!r->known) snprintf(out, 32, "-");
    else if (r->fit.on_device) snprintf(out, 32, "on the GPU");
    else if (fits(r)) snprintf(out, 32, "yes");
    else snprintf(out, 32, "no, %.1f GB short", (r->fit.needs - r->fit.free) / 1e9);
}

static void print_table(const row *v, int n, const ek_hub_short *best)
{
    printf("%-12s  %8s  %-17s  %-52s  %s\n", "name", "about", "fits here", "model on the Hub", "what it is");
    for (int i = 0; i < n; i++) {
        char fit[32];
        fit_text(fit, &v[i]);
        printf("%-12s  %5.1f GB  %-17s  %-52s  %s\n", v[i].name->name, v[i].name->gigabytes, fit, v[i].name->model,
               v[i].name->text);
    }
    if (best)
        printf("\nTo begin with: `evenkeel run %s`, the largest that fits here and answers fast enough.\n", best->name);
    printf(
        "\nA name stands wherever a model does: `evenkeel run e2b`, `evenkeel serve 12b:q8`, `evenkeel pull 26b`.\n");
}

static void print_json(const row *v, int n, const ek_hub_short *best)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:f,s:s,s:b,s:f,s:b}", "name", v[i].name->name, "model",
                                              v[i].name->model, "gigabytes", v[i].name->gigabytes, "what",
                                              v[i].name->text, "fits", fits(&v[i]), "needs_bytes", v[i].fit.needs,
                                              "recommended", v[i].name == best));
    json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_ENSURE_ASCII);
    printf("\n");
    json_decref(list);
}

int ek_cmd_names(const ek_cli *cli)
{
    row v[MAX_NAMES];
    int n = 0;
    const ek_hub_short *best = ek_cli_recommended(cli);
    if (best && wanted(cli, best)) v[n++] = (row){.name = best};
    for (int i = 0; i < ek_hub_n_shorts && n < MAX_NAMES; i++)
        if (wanted(cli, &ek_hub_shorts[i]) && &ek_hub_shorts[i] != best) v[n++] = (row){.name = &ek_hub_shorts[i]};
    for (int i = 0; i < n; i++) measure(&v[i], cli);
    if (!n) {
        ek_buf near = {0};
        ek_hub_short_suggest(&near, cli->arg);
        ek_fail(EK_ENOTFOUND, "no name has %.80s in it; there are %s", cli->arg, ek_buf_text(&near));
        ek_buf_fini(&near);
        return ek_cli_failed(cli);
    }
    (cli->json ? print_json : print_table)(v, n, best);
    return 0;
}
