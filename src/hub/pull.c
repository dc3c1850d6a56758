#include "hub/pull.h"

#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "hub/cache.h"

enum { LIST_LIMIT = 8 << 20 }; /* room for some 25,000 files; models have tens */

/* The data of a pull. */
typedef struct pull {
    const ek_hub_opts *opts;
    const ek_hub_name *name;
    ek_client *client;
    ek_hub_cache cache;
    ek_hub_files files;
    const char *main;
} pull;

static ek_err list_files(pull *p)
{
    ek_buf url = {0}, reply = {0};
    ek_hub_url_list(&url, p->opts->places->endpoint, p->name->repo, p->name->revision);
    ek_err err = ek_hub_get_text(&reply, p->client, p->opts, p->name, url.data, LIST_LIMIT);
    if (!err) err = ek_hub_files_parse(&p->files, ek_buf_text(&reply), reply.len);
    if (err == EK_EFORMAT) err = ek_fail_in(err, "%s", url.data);
    ek_buf_fini(&url);
    ek_buf_fini(&reply);
    return err;
}

/* Bytes of the wanted files, and the bytes of these that are still missing. */
static void count_bytes(const pull *p, double *all, double *need)
{
    *all = *need = 0;
    for (int i = 0; i < p->files.n; i++) {
        const ek_hub_file *f = &p->files.v[i];
        if (!f->wanted) continue;
        *all += (double)f->size;
        if (ek_hub_blob_size(&p->cache, f->hash, "") == f->size) continue;
        int64_t there = ek_hub_blob_size(&p->cache, f->hash, ".incomplete");
        *need += (double)f->size - (there > 0 && there <= f->size ? (double)there : 0);
    }
}

static ek_err ask(const pull *p)
{
    double all, need;
    const ek_hub_watch *w = p->opts->watch;
    count_bytes(p, &all, &need);
    if (!w->agree || need == 0 || w->agree(w->arg, all, all - need, p->cache.dir)) return EK_OK;
    return ek_fail(EK_ECANCELLED, "%s is not fetched", p->name->repo);
}

/* Checks before any download that the missing bytes fit. */
static ek_err check_room(const pull *p)
{
    struct statvfs fs;
    double all, need;
    count_bytes(p, &all, &need);
    if (statvfs(p->cache.repo.data, &fs)) return ek_file_failed(p->cache.repo.data);
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (need <= room) return EK_OK;
    return ek_fail(EK_EIO, "%s: %.2f GB are still to fetch, %s has %.2f GB free (HF_HUB_CACHE names another place)",
                   p->name->repo, need / 1e9, p->cache.dir, room / 1e9);
}

static ek_err link_files(const pull *p)
{
    for (int i = 0; i < p->files.n; i++)
        if (p->files.v[i].wanted) EK_TRY(ek_hub_link(&p->cache, p->files.commit, &p->files.v[i]));
    return ek_hub_ref_write(&p->cache, p->name->revision, p->files.commit);
}

static ek_err run(pull *p)
{
    EK_TRY(list_files(p));
    EK_TRY(ek_hub_choose(&p->files, p->name->repo, p->name->file, &p->main));
    EK_TRY(ask(p));
    EK_TRY(ek_hub_cache_make(&p->cache));
    EK_TRY(check_room(p));
    EK_TRY(ek_hub_fetch(p->client, p->opts, &p->cache, p->name, &p->files));
    return link_files(p);
}

static ek_err find_offline(ek_buf *path, const ek_hub_opts *opts, const ek_hub_name *name)
{
    ek_err err = ek_hub_find(path, opts->places->cache, name);
    return err ? ek_fail_in(err, "HF_HUB_OFFLINE is set, so nothing is fetched") : EK_OK;
}

ek_err ek_hub_pull(ek_buf *path, const ek_hub_opts *opts, const ek_hub_name *name)
{
    pull p = {.opts = opts, .name = name};
    if (opts->places->offline) return find_offline(path, opts, name);
    EK_TRY(ek_client_open(&p.client, opts->places));
    ek_hub_cache_init(&p.cache, opts->places->cache, name->repo);
    ek_err err = run(&p);
    if (!err) ek_buf_fmt(path, "%s/snapshots/%s", p.cache.repo.data, p.files.commit);
    if (!err && p.main) ek_buf_fmt(path, "/%s", p.main);
    ek_hub_files_fini(&p.files);
    ek_hub_cache_fini(&p.cache);
    ek_client_close(p.client);
    return err;
}
