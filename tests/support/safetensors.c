#include "safetensors.h"

#include <string.h>

void st_add(st_file *f, const char *name, const char *dtype, int n_dims, const int64_t *dim, const void *data,
            size_t bytes)
{
    ek_buf_fmt(&f->head, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, dtype);
    for (int d = 0; d < n_dims; d++) ek_buf_fmt(&f->head, "%s%lld", d ? "," : "", (long long)dim[d]);
    ek_buf_fmt(&f->head, "],\"data_offsets\":[%zu,%zu]},", f->data.len, f->data.len + bytes);
    ek_buf_add(&f->data, data, bytes);
}

void st_bytes(ek_buf *out, const char *header, const void *data, size_t bytes)
{
    uint64_t n = strlen(header);
    ek_buf_add(out, &n, 8);
    ek_buf_add(out, header, (size_t)n);
    ek_buf_add(out, data, bytes);
}

void st_save(st_file *f, const char *dir, const char *name)
{
    ek_buf head = {0}, all = {0};
    ek_buf_fmt(&head, "{%s\"__metadata__\":{\"format\":\"pt\"}}", ek_buf_text(&f->head));
    st_bytes(&all, head.data, ek_buf_text(&f->data), f->data.len);
    put_file(dir, name, all.data, all.len);
    ek_buf_fini(&head);
    ek_buf_fini(&all);
    ek_buf_fini(&f->head);
    ek_buf_fini(&f->data);
}
