#include "tensor/listing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "tensor/checkpoint.h"
#include "tensor/gguf.h"

struct ek_listing {
    ek_listed *one;
    char (*number)[20]; /* of types without a name */
    int n;
    ek_checkpoint *files; /* one of these two */
    ek_gguf *gguf;
};

static void list_files(ek_listing *l)
{
    for (int i = 0; i < l->n; i++) {
        const ek_tensor *t = ek_checkpoint_at(l->files, i);
        l->one[i] = (ek_listed){.name = t->name, .n_dims = t->n_dims, .bytes = (double)t->bytes};
        for (int d = 0; d < t->n_dims; d++) l->one[i].dim[d] = t->dim[d];
        l->one[i].type = ek_dtype_name(t->dtype);
    }
}

static void list_gguf(ek_listing *l)
{
    for (int i = 0; i < l->n; i++) {
        const ek_gguf_tensor *t = ek_gguf_tensor_at(l->gguf, i);
        const ek_gguf_type *type = ek_gguf_type_of(t->type);
        if (!type) snprintf(l->number[i], sizeof l->number[i], "type %u", t->type);
        l->one[i] = (ek_listed){.name = t->name, .n_dims = t->n_dims, .bytes = (double)t->bytes};
        for (int d = 0; d < t->n_dims; d++) l->one[i].dim[d] = t->dim[t->n_dims - 1 - d];
        l->one[i].type = type ? type->name : l->number[i];
    }
}

ek_err ek_listing_open(ek_listing **out, const char *path)
{
    ek_listing *l = ek_alloc(sizeof *l);
    bool gguf = ek_gguf_is_file(path) || ek_gguf_is_folder(path);
    *out = NULL;
    ek_err err = gguf ? ek_gguf_open(&l->gguf, path) : ek_checkpoint_open(&l->files, path);
    if (err) {
        free(l);
        return err;
    }
    l->n = gguf ? ek_gguf_tensor_count(l->gguf) : ek_checkpoint_count(l->files);
    l->one = ek_alloc(sizeof *l->one * ((size_t)l->n + 1));
    l->number = ek_alloc(sizeof *l->number * ((size_t)l->n + 1));
    if (gguf) list_gguf(l);
    else list_files(l);
    *out = l;
    return EK_OK;
}

void ek_listing_close(ek_listing *l)
{
    if (!l) return;
    ek_checkpoint_close(l->files);
    ek_gguf_close(l->gguf);
    free(l->one);
    free(l->number);
    free(l);
}

int ek_listing_count(const ek_listing *l)
{
    return l->n;
}

const ek_listed *ek_listing_at(const ek_listing *l, int i)
{
    EK_ASSERT(i >= 0 && i < l->n);
    return &l->one[i];
}
