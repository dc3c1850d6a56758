/* The header of a safetensors file: u64 length, JSON, data. The rules are those of the
 * reference reader (huggingface/safetensors, safetensors/src/tensor.rs). */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/checkpoint.h"

enum { PREFIX = 8, HEADER_LIMIT = 100 * 1000 * 1000 };

static int printable(const char *s) /* the part of a name that fits into the line of an error */
{
    size_t n = strlen(s);
    return n < 200 ? (int)n : 200;
}

#define BAD(t, fmt, ...) \
    ek_fail(EK_EFORMAT, "%s: tensor %.*s: " fmt, (t)->file, printable((t)->name), (t)->name, ##__VA_ARGS__)

static ek_err read_shape(ek_tensor *t, const json_t *shape, uint64_t *elements)
{
    if (!json_is_array(shape) || json_array_size(shape) > EK_MAX_DIMS)
        return BAD(t, "shape must be a list of at most %d sizes", EK_MAX_DIMS);
    t->n_dims = (int)json_array_size(shape);
    *elements = 1;
    for (int d = 0; d < t->n_dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return BAD(t, "size %d of its shape is not a count", d);
        t->dim[d] = json_integer_value(size);
        if (__builtin_mul_overflow(*elements, (uint64_t)t->dim[d], elements) || *elements > INT64_MAX / 8)
            return BAD(t, "its shape has more elements than a file can hold");
    }
    return EK_OK;
}

static ek_err read_entry(ek_tensor *t, const json_t *entry, const uint8_t *data, uint64_t room)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    uint64_t elements = 0;
    if (!json_is_object(entry) || json_object_size(entry) != 3 || !type || !json_is_array(offsets))
        return BAD(t, "an entry has exactly dtype, shape and data_offsets");
    int dtype = ek_dtype_parse(type);
    if (dtype < 0)
        return ek_fail(EK_EUNSUPPORTED, "%s: tensor %.*s: element type %.40s is not supported", t->file,
                       printable(t->name), t->name, type);
    t->dtype = (ek_dtype)dtype;
    EK_TRY(read_shape(t, json_object_get(entry, "shape"), &elements));
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return BAD(t, "data_offsets must be two byte offsets");
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end || (uint64_t)end > room)
        return BAD(t, "bytes %lld to %lld lie outside the %llu bytes of data: it is damaged or was not copied whole",
                   (long long)begin, (long long)end, (unsigned long long)room);
    t->bytes = (size_t)(end - begin);
    if (t->bytes != elements * ek_dtype_size(t->dtype))
        return BAD(t, "has %zu bytes, %llu elements of %s need %llu", t->bytes, (unsigned long long)elements,
                   ek_dtype_name(t->dtype), (unsigned long long)(elements * ek_dtype_size(t->dtype)));
    t->data = data + begin;
    return EK_OK;
}

static int by_place(const void *a, const void *b)
{
    const ek_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The tensors, in file order, cover the data exactly. */
static ek_err check_tiling(const ek_tensor *t, int n, const char *file, const uint8_t *data, uint64_t room)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        uint64_t begin = (uint64_t)(t[i].data - data);
        if (begin != at)
            return BAD(&t[i], "starts at byte %llu, the tensor before it ends at %llu", (unsigned long long)begin,
                       (unsigned long long)at);
        at += t[i].bytes;
    }
    if (at != room)
        return ek_fail(EK_EFORMAT, "%s: its tensors take %llu bytes of data, the file holds %llu", file,
                       (unsigned long long)at, (unsigned long long)room);
    return EK_OK;
}

static ek_err read_entries(json_t *head, const char *file, const uint8_t *data, uint64_t room, ek_tensor *list, int *n)
{
    const char *name;
    json_t *entry;
    *n = 0;
    json_object_foreach(head, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        list[*n] = (ek_tensor){.name = name, .file = file};
        EK_TRY(read_entry(&list[*n], entry, data, room));
        ++*n;
    }
    if (*n) qsort(list, (size_t)*n, sizeof *list, by_place);
    return check_tiling(list, *n, file, data, room);
}

ek_err ek_safetensors_parse(const uint8_t *data, size_t size, const char *file,
                            void (*each)(void *arg, const ek_tensor *t), void *arg)
{
    uint64_t length = 0;
    if (size < PREFIX) return ek_fail(EK_EFORMAT, "%s: %zu bytes are too few for a safetensors file", file, size);
    for (int i = PREFIX; i-- > 0;) length = length << 8 | data[i];
    if (length > HEADER_LIMIT || length > size - PREFIX)
        return ek_fail(EK_EFORMAT, "%s: a header of %llu bytes is stated, the file has %zu and the limit is %d", file,
                       (unsigned long long)length, size, HEADER_LIMIT);
    if (length == 0 || data[PREFIX] != '{')
        return ek_fail(EK_EFORMAT, "%s: is not a safetensors file, its header does not start with {", file);

    json_error_t why;
    json_t *head = json_loadb((const char *)data + PREFIX, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (!head) return ek_fail(EK_EFORMAT, "%s: header: %s at byte %d", file, why.text, why.position);
    ek_tensor *list = ek_alloc(sizeof *list * (json_object_size(head) + 1));
    int n;
    ek_err err = read_entries(head, file, data + PREFIX + length, size - PREFIX - length, list, &n);
    for (int i = 0; !err && i < n; i++) each(arg, &list[i]);
    free(list);
    json_decref(head);
    return err;
}
