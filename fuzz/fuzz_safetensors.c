/* A safetensors file from bytes: with an odd first byte the rest is the file, otherwise the
 * second byte counts zeros of data and the rest is the header's text, so that lengths fit.
 * Property: what is accepted is tiled exactly by its tensors, in ascending order, each as long
 * as its shape says; and a file cut short by a byte is refused. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/checkpoint.h"

typedef struct tiling {
    const uint8_t *next;
    size_t bytes;
    int n;
} tiling;

static void check(void *arg, const ek_tensor *t)
{
    tiling *s = arg;
    size_t want = ek_dtype_size(t->dtype);
    if (!t->name || t->n_dims < 0 || t->n_dims > EK_MAX_DIMS) __builtin_trap();
    for (int d = 0; d < t->n_dims; d++) want *= (size_t)t->dim[d];
    if (t->bytes != want || (s->n++ && t->data != s->next)) __builtin_trap();
    s->next = t->data + t->bytes;
    s->bytes += t->bytes;
}

static void try_file(const uint8_t *data, size_t n)
{
    tiling whole = {0}, cut = {0};
    if (ek_safetensors_parse(data, n, "f", check, &whole) != EK_OK) return;
    uint64_t header;
    memcpy(&header, data, 8);
    if (whole.bytes != n - 8 - (size_t)header) __builtin_trap();
    if (whole.n && whole.next != data + n) __builtin_trap();
    if (ek_safetensors_parse(data, n - 1, "f", check, &cut) == EK_OK) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    if (data[0] & 1) {
        try_file(data + 1, n - 1);
        return 0;
    }
    uint64_t header = n - 2;
    uint8_t *file = ek_alloc(8 + n - 2 + data[1]);
    memcpy(file, &header, 8);
    memcpy(file + 8, data + 2, n - 2);
    try_file(file, 8 + n - 2 + data[1]);
    free(file);
    return 0;
}
