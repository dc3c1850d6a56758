#include "convert/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"

static uint64_t plane_bytes(const ek_out *t, int p)
{
    return (uint64_t)t->rows * t->plane[p].row_bytes;
}

static double tensor_bytes(const ek_out *t)
{
    double bytes = 0;
    for (int p = 0; p < t->n_planes; p++) bytes += (double)plane_bytes(t, p);
    return bytes;
}

/* Assigns a file to every plane. Returns the number of files. */
static int divide(ek_layout *l, double max_bytes)
{
    double in_file = 0;
    int file = 0;
    for (int i = 0; i < l->n; i++) {
        double bytes = tensor_bytes(&l->out[i]);
        if (max_bytes > 0 && in_file > 0 && in_file + bytes > max_bytes) file++, in_file = 0;
        in_file += bytes;
        for (int p = 0; p < l->out[i].n_planes; p++) l->out[i].plane[p].file = file;
    }
    return file + 1;
}

static char *numbered(const char *stem, int i, int n, const char *ending)
{
    ek_buf name = {0};
    if (n == 1) ek_buf_fmt(&name, "%s%s", stem, ending);
    else ek_buf_fmt(&name, "%s-%05d-of-%05d%s", stem, i + 1, n, ending);
    return name.data;
}

static ek_err open_files(ek_place *p, int n, const char *stem, const char *ending)
{
    enum { MAX_FILES = 99999 };
    if (n > MAX_FILES) return ek_fail(EK_EINVAL, "%d files are needed, %d can be numbered", n, MAX_FILES);
    p->file = ek_alloc(sizeof *p->file * (size_t)n);
    p->n = n;
    for (int i = 0; i < n; i++) p->file[i].name = numbered(stem, i, n, ending);
    return EK_OK;
}

/* ------------------------------------------------------------------ GGUF */

static void place_gguf_file(ek_place *p, ek_layout *l, int file, const ek_gguf_meta *meta)
{
    ek_gguf_entry *entry = ek_alloc(sizeof *entry * (size_t)l->n);
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        const ek_out *t = &l->out[i];
        if (t->plane[0].file != file) continue;
        ek_gguf_entry *e = &entry[n++];
        *e = (ek_gguf_entry){.name = t->plane[0].name,
                             .n_dims = t->n_dims,
                             .type = (uint32_t)t->target->ggml,
                             .bytes = plane_bytes(t, 0)};
        for (int d = 0; d < t->n_dims; d++) e->dim[d] = t->plane[0].dim[d];
    }
    uint64_t data;
    ek_place_file *f = &p->file[file];
    ek_gguf_head(&f->head, meta, entry, n, &data);
    f->bytes = f->head.len + data;
    n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->out[i].plane[0].file == file) l->out[i].plane[0].at = f->head.len + entry[n++].offset;
    free(entry);
}

ek_err ek_place_gguf(ek_place *p, ek_layout *l, const ek_gguf_meta *meta, const char *path, double max_bytes)
{
    *p = (ek_place){0};
    int n = divide(l, max_bytes);
    char *stem = ek_strdup(path);
    stem[strlen(stem) - strlen(".gguf")] = 0;
    ek_err err = open_files(p, n, stem, ".gguf");
    free(stem);
    for (int i = 0; i < n && !err; i++) {
        ek_gguf_meta all = {0}; /* the first part describes the model; each part has its number */
        if (i == 0) ek_buf_add(&all.bytes, meta->bytes.data, meta->bytes.len), all.n = meta->n;
        if (n > 1) {
            ek_gguf_put_u16(&all, "split.no", (uint16_t)i);
            ek_gguf_put_u16(&all, "split.count", (uint16_t)n);
            ek_gguf_put_i32(&all, "split.tensors.count", l->n);
        }
        place_gguf_file(p, l, i, &all);
        ek_gguf_meta_fini(&all);
    }
    return err;
}

/* ------------------------------------------------------------------ safetensors */

static void add_entry(ek_buf *b, const ek_out *t, int plane, uint64_t at)
{
    const ek_out_plane *o = &t->plane[plane];
    ek_buf_str(b, ", ");
    ek_json_quote(b, o->name, strlen(o->name));
    ek_buf_fmt(b, ": {\"dtype\": \"%s\", \"shape\": [", o->dtype);
    for (int d = 0; d < t->n_dims; d++) ek_buf_fmt(b, "%s%lld", d ? ", " : "", (long long)o->dim[d]);
    ek_buf_fmt(b, "], \"data_offsets\": [%llu, %llu]}", (unsigned long long)at,
               (unsigned long long)(at + plane_bytes(t, plane)));
}

static bool is_wide(const ek_out_plane *o)
{
    return strcmp(o->dtype, "F32") == 0 || strcmp(o->dtype, "U32") == 0 || strcmp(o->dtype, "I64") == 0;
}

/* Elements of eight and four bytes come first, so that all elements are aligned, because readers map the files. */
static void place_safetensors_file(ek_place *p, ek_layout *l, int file)
{
    ek_place_file *f = &p->file[file];
    uint64_t at = 0;
    ek_buf head = {0};
    ek_buf_fmt(&head, "{\"__metadata__\": {\"format\": \"%s\"}", l->form == EK_FORM_MLX ? "mlx" : "pt");
    for (int wide = 1; wide >= 0; wide--)
        for (int i = 0; i < l->n; i++)
            for (int a = 0; a < l->out[i].n_planes; a++) {
                ek_out_plane *o = &l->out[i].plane[a];
                if (o->file != file || is_wide(o) != (wide == 1)) continue;
                add_entry(&head, &l->out[i], a, at);
                o->at = at;
                at += plane_bytes(&l->out[i], a);
            }
    ek_buf_str(&head, "}");
    while (head.len % 8) ek_buf_char(&head, ' ');
    uint64_t n = head.len;
    ek_buf_add(&f->head, &n, sizeof n);
    ek_buf_add(&f->head, head.data, head.len);
    ek_buf_fini(&head);
    f->bytes = f->head.len + at;
    for (int i = 0; i < l->n; i++)
        for (int a = 0; a < l->out[i].n_planes; a++)
            if (l->out[i].plane[a].file == file) l->out[i].plane[a].at += f->head.len;
}

ek_err ek_place_safetensors(ek_place *p, ek_layout *l, double max_bytes)
{
    *p = (ek_place){0};
    EK_TRY(open_files(p, divide(l, max_bytes), "model", ".safetensors"));
    for (int i = 0; i < p->n; i++) place_safetensors_file(p, l, i);
    if (p->n == 1) return EK_OK;
    ek_buf_fmt(&p->index, "{\"metadata\": {\"total_size\": %.0f}, \"weight_map\": {", l->bytes);
    for (int i = 0, n = 0; i < l->n; i++)
        for (int a = 0; a < l->out[i].n_planes; a++) {
            const ek_out_plane *o = &l->out[i].plane[a];
            ek_buf_str(&p->index, n++ ? ", " : "");
            ek_json_quote(&p->index, o->name, strlen(o->name));
            ek_buf_fmt(&p->index, ": \"%s\"", p->file[o->file].name);
        }
    ek_buf_str(&p->index, "}}\n");
    return EK_OK;
}

void ek_place_fini(ek_place *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->file[i].name);
        ek_buf_fini(&p->file[i].head);
    }
    free(p->file);
    ek_buf_fini(&p->index);
    *p = (ek_place){0};
}
