#include "gguf_memory.h"

#include "base/alloc.h"
#include "tensor/gguf_state.h"

ek_err gguf_of_memory(ek_gguf **out, const uint8_t *data, size_t size, const char *file)
{
    ek_gguf *g = ek_alloc(sizeof *g);
    g->file = ek_alloc(sizeof *g->file);
    g->n_files = 1;
    g->file[0].name = ek_strdup(file);
    ek_err err = ek_gguf_file_parse(g, &g->file[0], data, size);
    if (!err) err = ek_gguf_index(g);
    if (err) ek_gguf_close(g);
    *out = err ? NULL : g;
    return err;
}

int gguf_value_count(const ek_gguf *g)
{
    return g->file[0].n_values;
}

const ek_gguf_value *gguf_value_at(const ek_gguf *g, int i)
{
    EK_ASSERT(i >= 0 && i < g->file[0].n_values);
    return &g->file[0].value[i];
}
