#include "open/open.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/store.h"

/* Everything except the tokens that the bytes of a page depend on. */
static ek_err make_key(char *key, size_t room, ek_opened *m)
{
    const ek_kv_layout *layout = ek_model_kv_layout(m->model);
    const char *digest;
    EK_TRY(ek_opened_digest(&digest, m));
    snprintf(key, room, "records %d, model %s, %s, pages of %d, %zu and %zu bytes, window %d", EK_STORE_LAYOUT, digest,
             ek_model_numerics_id(m->model), EK_PAGE_TOKENS, layout->page_bytes[EK_FULL],
             layout->page_bytes[EK_SLIDING], layout->sliding_window);
    return EK_OK;
}

/* A file belongs to one process. Pages of a GPU and of the CPU have different files. A new server waits for the file
 * while the server before it drains. */
static ek_err open_disk(ek_store_backend *out, ek_opened *m, const ek_open_opts *o, const char *key, bool on_device)
{
    const double max_bytes = o->cache_disk_bytes > 0 ? o->cache_disk_bytes : 0x1p33;
    char own[600];
    snprintf(own, sizeof own, "%s, %s", key, on_device ? "cuda" : "cpu");
    const double end = ek_now() + o->cache_wait;
    ek_err err;
    for (bool said = false;; said = true) {
        err = ek_store_sqlite_open(out, o->cache_dir, own, max_bytes, ek_model_kv_layout(m->model));
        if (err != EK_EBUSY || ek_now() > end) return err;
        if (!said) ek_log(EK_LOG_INFO, "%s; waiting up to %.0f s for it", ek_err_text(), o->cache_wait);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

/* A page server is shared by all replicas, because a page has the same bytes on every machine. */
static ek_err open_shared(ek_store_backend *out, ek_opened *m, const ek_open_opts *o, const char *key)
{
    const ek_shared_opts shared = {.url = o->cache_shared,
                                   .ca = o->cache_shared_ca,
                                   .cert = o->cache_shared_cert,
                                   .rate = o->cache_shared_rate,
                                   .max_bytes = o->cache_shared_bytes > 0 ? o->cache_shared_bytes : 0x1p28,
                                   .read_only = o->cache_shared_read_only};
    return ek_store_shared_open(out, &shared, key, ek_model_kv_layout(m->model));
}

/* Opens disk and server, or one of them; *any is false if neither is wanted. */
static ek_err open_below(ek_store_backend *out, bool *any, ek_opened *m, const ek_open_opts *o, bool on_device)
{
    ek_store_backend disk, shared;
    char key[512];
    *any = o->cache_dir || o->cache_shared;
    if (!*any) return EK_OK;
    EK_TRY(make_key(key, sizeof key, m));
    if (o->cache_dir) EK_TRY(open_disk(&disk, m, o, key, on_device));
    ek_err err = o->cache_shared ? open_shared(&shared, m, o, key) : EK_OK;
    if (err && o->cache_dir) disk.close(disk.arg);
    if (err) return err;
    if (o->cache_dir && o->cache_shared) ek_store_both(out, &disk, &shared);
    else *out = o->cache_dir ? disk : shared;
    return EK_OK;
}

ek_err ek_open_store(ek_store_backend *out, bool *any, ek_opened *m, const ek_open_opts *o, bool on_device)
{
    ek_store_backend below;
    EK_TRY(open_below(&below, any, m, o, on_device));
    if (o->cache_host_bytes > 0) {
        const bool has = *any;
        *any = true;
        return ek_store_memory_open(out, ek_model_kv_layout(m->model), o->cache_host_bytes, has ? &below : NULL);
    }
    if (*any) *out = below;
    return EK_OK;
}
