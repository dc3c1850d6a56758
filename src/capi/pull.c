/* A model from the Hub. */
#include <stdlib.h>

#include "capi/state.h"
#include "hub/pull.h"

enum { CONNECTIONS = 8, RETRIES = 5 };

typedef struct watcher {
    evenkeel_progress_fn *fn;
    void *arg;
    bool stopped;
} watcher;

static void line(void *arg, const char *text)
{
    (void)arg, (void)text;
}

static void progress(void *arg, const ek_hub_progress *p, bool end)
{
    watcher *w = arg;
    (void)end;
    if (w->fn && !w->stopped) w->stopped = !w->fn(w->arg, p->bytes_done, p->bytes);
}

static bool stop(void *arg)
{
    return ((const watcher *)arg)->stopped;
}

ek_status evenkeel_pull(const char *model, evenkeel_progress_fn *fn, void *arg)
{
    ek_hub_places places = {0};
    ek_hub_name name;
    ek_buf path = {0};
    watcher w = {.fn = fn, .arg = arg};
    const ek_hub_watch watch = {.line = line, .progress = progress, .stop = stop, .arg = &w};
    const ek_hub_opts opts = {.places = &places, .watch = &watch, .connections = CONNECTIONS, .retries = RETRIES};
    const ek_hub_short *row = model ? ek_hub_short_find(model) : NULL;
    ek_err err = model ? ek_hub_name_parse(&name, row ? row->model : model)
                       : ek_fail(EK_EINVAL, "model: a name of the Hub is needed");
    if (!err) err = ek_hub_places_init(&places, getenv);
    if (!err) err = ek_hub_pull(&path, &opts, &name);
    ek_hub_places_fini(&places);
    ek_buf_fini(&path);
    return capi_status(err);
}
