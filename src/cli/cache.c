#include "cli/cache.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/store_memory.h"
#include "cache/store_sqlite.h"
#include "model/digest.h"

/* Everything that the bytes of a page depend on besides the tokens. */
static ek_err make_key(char *key, size_t room, const ek_cli_model *m)
{
    const ek_kv_layout *layout = ek_model_kv_layout(m->model);
    char digest[17];
    double start = ek_now();
    EK_TRY(ek_model_digest(digest, m->dir, m->pool));
    if (ek_now() - start > 1) ek_log(EK_LOG_INFO, "cache on disk: digest of the model in %.1f s", ek_now() - start);
    snprintf(key, room, "records %d, model %s, %s, pages of %d, %zu and %zu bytes, window %d, %s", EK_STORE_LAYOUT,
             digest, ek_model_numerics_id(m->model), EK_PAGE_TOKENS, layout->page_bytes[EK_FULL],
             layout->page_bytes[EK_SLIDING], layout->sliding_window, m->gpu ? "cuda" : "cpu");
    return EK_OK;
}

ek_err ek_cli_cache_opts(const ek_cli *cli, const ek_cli_model *m, ek_engine_opts *opts, ek_store_backend *store)
{
    char key[512];
    if (cli->has.cache_bytes) opts->cache_bytes = cli->cache_bytes;
    opts->cache_audit = cli->cache_audit;
    if (!cli->has.cache_dir && !cli->has.cache_host_bytes) return EK_OK;
    if (opts->cache_bytes <= 0)
        return ek_fail(EK_EINVAL, "%s keeps what --cache-bytes 0 does not allow",
                       cli->has.cache_dir ? "--cache-dir" : "--cache-host-bytes");
    const ek_kv_layout *layout = ek_model_kv_layout(m->model);
    if (cli->has.cache_dir) {
        EK_TRY(make_key(key, sizeof key, m));
        EK_TRY(ek_store_sqlite_open(store, cli->cache_dir, key, cli->cache_disk_bytes, layout));
    }
    if (cli->has.cache_host_bytes) {
        const ek_store_backend disk = *store;
        EK_TRY(ek_store_memory_open(store, layout, cli->cache_host_bytes, cli->has.cache_dir ? &disk : NULL));
    }
    opts->cache_store = store;
    return EK_OK;
}
