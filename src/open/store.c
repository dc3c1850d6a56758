#include "open/store.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/store_memory.h"
#include "cache/store_sqlite.h"
#include "model/weights/digest.h"

/* Everything that the bytes of a page depend on besides the tokens. */
static ek_err make_key(char *key, size_t room, const ek_opened *m)
{
    const ek_kv_layout *layout = ek_model_kv_layout(m->model);
    char digest[17];
    double start = ek_now();
    EK_TRY(ek_model_digest(digest, m->path, m->pool));
    if (ek_now() - start > 1) ek_log(EK_LOG_INFO, "cache on disk: digest of the model in %.1f s", ek_now() - start);
    snprintf(key, room, "records %d, model %s, %s, pages of %d, %zu and %zu bytes, window %d, %s", EK_STORE_LAYOUT,
             digest, ek_model_numerics_id(m->model), EK_PAGE_TOKENS, layout->page_bytes[EK_FULL],
             layout->page_bytes[EK_SLIDING], layout->sliding_window, m->gpu ? "cuda" : "cpu");
    return EK_OK;
}

static ek_err open_disk(ek_store_backend *out, const ek_opened *m, const ek_open_opts *o)
{
    const double max_bytes = o->cache_disk_bytes > 0 ? o->cache_disk_bytes : 0x1p33;
    char key[512];
    EK_TRY(make_key(key, sizeof key, m));
    return ek_store_sqlite_open(out, o->cache_dir, key, max_bytes, ek_model_kv_layout(m->model));
}

ek_err ek_open_store(ek_store_backend *out, bool *any, const ek_opened *m, const ek_open_opts *o)
{
    ek_store_backend disk;
    *any = o->cache_dir || o->cache_host_bytes > 0;
    if (o->cache_dir) EK_TRY(open_disk(&disk, m, o));
    if (o->cache_host_bytes > 0)
        return ek_store_memory_open(out, ek_model_kv_layout(m->model), o->cache_host_bytes,
                                    o->cache_dir ? &disk : NULL);
    if (o->cache_dir) *out = disk;
    return EK_OK;
}
