/* list and rm: the models in the cache. rm asks before it removes one. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/inspect/inspect.h"
#include "cli/frame/hub.h"
#include "cli/frame/terminal.h"
#include "hub/store.h"

/* "GGUF: a.gguf, b.gguf" */
static void name_all(char *out, size_t room, const ek_hub_entry *e, const char *cache)
{
    ek_hub_cache c;
    ek_hub_files f;
    ek_hub_cache_init(&c, cache, e->repo);
    size_t n = (size_t)snprintf(out, room, "GGUF:");
    if (ek_hub_snapshot(&f, &c, e->commit) == EK_OK)
        for (int i = 0, any = 0; i < f.n && n < room; i++)
            if (ek_hub_is_gguf(f.v[i].path))
                n += (size_t)snprintf(out + n, room - n, "%s %s", any++ ? "," : "", f.v[i].path);
    ek_hub_files_fini(&f);
    ek_hub_cache_fini(&c);
}

/* Describes the model, if it can be opened, and names the models of a repository that has several. */
static void about(char *out, size_t room, const ek_hub_entry *e, const char *cache)
{
    ek_about a;
    ek_hub_name name = {.has_revision = true};
    ek_buf path = {0};
    ek_err err;
    memcpy(name.repo, e->repo, sizeof name.repo);
    memcpy(name.revision, e->commit, sizeof e->commit);
    if (!e->commit[0]) {
        snprintf(out, room, "not complete");
    } else if ((err = ek_hub_find(&path, cache, &name)) == EK_OK) {
        ek_about_read(&a, path.data);
        ek_about_text(out, room, &a);
    } else if (err == EK_EINVAL) {
        name_all(out, room, e, cache);
    } else {
        snprintf(out, room, "no whole model");
    }
    ek_buf_fini(&path);
}

static void day_text(char out[16], int64_t t)
{
    time_t at = (time_t)t;
    struct tm tm;
    if (!t || !localtime_r(&at, &tm) || !strftime(out, 16, "%Y-%m-%d", &tm)) snprintf(out, 16, "-");
}

static void revision_text(char out[64], const ek_hub_entry *e)
{
    if (!e->commit[0]) snprintf(out, 64, "-");
    else if (e->revision[0]) snprintf(out, 64, "%.40s (%.8s)", e->revision, e->commit);
    else snprintf(out, 64, "%.8s", e->commit);
}

static void print_table(const ek_hub_entries *all, const char *cache)
{
    char size[16], rest[16], day[16], revision[64], what[256];
    int repo = 10, rev = 8;
    for (int i = 0; i < all->n; i++) {
        revision_text(revision, &all->v[i]);
        if ((int)strlen(all->v[i].repo) > repo) repo = (int)strlen(all->v[i].repo);
        if ((int)strlen(revision) > rev) rev = (int)strlen(revision);
    }
    if (all->n)
        printf("%-*s  %-*s  %10s  %-10s  %s\n", repo, "repository", rev, "revision", "size", "last used", "what it is");
    for (int i = 0; i < all->n; i++) {
        const ek_hub_entry *e = &all->v[i];
        revision_text(revision, e);
        ek_cli_size_text(size, e->bytes);
        ek_cli_size_text(rest, e->rest_bytes);
        day_text(day, e->used);
        about(what, sizeof what, e, cache);
        printf("%-*s  %-*s  %10s  %-10s  ", repo, e->repo, rev, revision, size, day);
        ek_cli_put(stdout, what);
        if (e->rest_bytes > 0) printf("; and %s of files that are not complete", rest);
        printf("\n");
    }
    ek_cli_size_text(size, all->bytes);
    if (all->n) printf("\n%d model%s, %s, in %s\n", all->n, all->n == 1 ? "" : "s", size, cache);
    else printf("no models in %s yet; `evenkeel pull e2b` fetches one, `evenkeel names` lists more\n", cache);
}

static void print_json(const ek_hub_entries *all, const char *cache)
{
    json_t *list = json_array();
    char what[256];
    for (int i = 0; i < all->n; i++) {
        const ek_hub_entry *e = &all->v[i];
        about(what, sizeof what, e, cache);
        json_array_append_new(list,
                              json_pack("{s:s,s:s*,s:s*,s:s*,s:f,s:f,s:s,s:I}", "repo", e->repo, "revision",
                                        e->revision[0] ? e->revision : NULL, "commit", e->commit[0] ? e->commit : NULL,
                                        "path", e->path, "bytes", e->bytes, "incomplete_bytes", e->rest_bytes, "what",
                                        what, "last_used", (json_int_t)e->used));
    }
    json_t *root = json_pack("{s:s,s:f,s:o}", "cache", cache, "bytes", all->bytes, "models", list);
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    printf("\n");
    json_decref(root);
}

/* repo: NULL for all. */
static ek_err list(const ek_cli *cli, const char *cache, const char *repo)
{
    ek_hub_entries all;
    EK_TRY(ek_hub_entries_read(&all, cache, repo));
    ek_err err = repo && !all.n ? ek_fail(EK_ENOTFOUND, "%s is not in the cache %s", repo, cache) : EK_OK;
    if (!err && cli->json) print_json(&all, cache);
    else if (!err) print_table(&all, cache);
    ek_hub_entries_fini(&all);
    return err;
}

int ek_cmd_list(const ek_cli *cli)
{
    ek_hub_name name;
    ek_hub_places places;
    if (cli->arg && ek_cli_hub_name(&name, cli->arg)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_err err = ek_hub_places_init(&places, getenv);
    if (!err) err = list(cli, places.cache, cli->arg ? name.repo : NULL);
    ek_hub_places_fini(&places);
    return err ? ek_cli_failed(cli) : 0;
}

/* --- rm, after a question --- */

/* true: the user wants it. */
static bool agreed(const ek_hub_name *name, const ek_hub_removal *r)
{
    char size[16];
    ek_buf text = {0};
    ek_cli_size_text(size, r->bytes);
    ek_hub_name_text(&text, name);
    fprintf(stderr, "Remove %s (%s) from the cache? [y/N] ", ek_buf_text(&text), size);
    fflush(stderr);
    ek_buf_fini(&text);
    return ek_cli_yes();
}

static ek_err removed(const ek_cli *cli, const ek_hub_places *places, const ek_hub_name *name)
{
    ek_hub_removal r;
    char size[16];
    ek_err err = ek_hub_removal_plan(&r, places->cache, name);
    if (!err && !cli->yes && !isatty(STDIN_FILENO))
        err = ek_fail(EK_EINVAL, "nobody can be asked here; --yes removes without a question");
    if (!err && !cli->yes && !agreed(name, &r)) {
        fprintf(stderr, "nothing is removed\n");
    } else if (!err) {
        err = ek_hub_removal_run(&r, places->cache, name);
        ek_cli_size_text(size, r.bytes);
        if (!err) printf("%s freed\n", size);
    }
    ek_hub_removal_fini(&r);
    return err;
}

int ek_cmd_rm(const ek_cli *cli)
{
    ek_hub_name name;
    ek_hub_places places;
    if (ek_cli_hub_name(&name, cli->arg)) return ek_cli_wrong(cli, "%s", ek_err_text());
    ek_err err = ek_hub_places_init(&places, getenv);
    if (!err) err = removed(cli, &places, &name);
    ek_hub_places_fini(&places);
    return err ? ek_cli_failed(cli) : 0;
}
