/* The containers, and how each is recognised. */
#include "model/source/source.h"

#include <stdlib.h>

#include "base/file.h"
#include "tensor/gguf.h"

static int is_gguf_folder(const char *path)
{
    return ek_gguf_is_folder(path);
}

static int is_gguf(const char *path)
{
    return ek_gguf_is_file(path);
}

ek_err ek_source_open(ek_source **out, const char *path)
{
    static const struct {
        int (*recognises)(const char *path);
        ek_source *(*open)(const char *path);
    } containers[] = {{is_gguf_folder, ek_source_gguf}, {ek_is_dir, ek_source_folder}, {is_gguf, ek_source_gguf}};
    *out = NULL;
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        if (!containers[i].recognises(path)) continue;
        *out = containers[i].open(path);
        return EK_OK;
    }
    ek_err err = ek_file_check(path);
    if (err == EK_ENOTFOUND) return ek_fail(err, "%s: there is no such file or folder", path);
    if (err) return err;
    return ek_fail(EK_EUNSUPPORTED,
                   "%s is a file; a model is a GGUF file or a folder with config.json and safetensors files", path);
}

void ek_source_drop_pages(ek_source *s)
{
    s->ops->rest(s);
}

void ek_source_close(ek_source *s)
{
    if (s) s->ops->close(s);
}

ek_err ek_source_config(ek_source *s, ek_config *out)
{
    return s->ops->config(s, out);
}

ek_err ek_source_check_model(const char *path, const ek_config *config)
{
    if (!config->backbone_hidden_size) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "%s is a drafter: it takes --drafter, and its model --model", path);
}

ek_err ek_source_weight(ek_source *s, const ek_weight_query *query, ek_weight_data *out)
{
    return s->ops->weight(s, query, out);
}

ek_err ek_source_has_head(ek_source *s, bool *out)
{
    *out = false;
    return s->ops->has_head ? s->ops->has_head(s, out) : EK_OK;
}

ek_err ek_source_ids(ek_source *s, const char *name, int n, int32_t *out)
{
    if (!s->ops->ids) return ek_fail(EK_EUNSUPPORTED, "%s: drafters cannot be read from %s", s->path, s->ops->kind);
    return s->ops->ids(s, name, n, out);
}

ek_err ek_source_finish(ek_source *s, const ek_config *config)
{
    return s->ops->finish(s, config);
}

ek_err ek_source_tokenizer_of(ek_source *s, ek_source_tokenizer *out)
{
    return s->ops->tokenizer(s, out);
}

ek_err ek_source_chat_of(ek_source *s, ek_source_chat *out)
{
    *out = (ek_source_chat){.dir = s->path};
    return s->ops->chat ? s->ops->chat(s, out) : EK_OK;
}
