#include "text/template/chat_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"

#define QUOTE "<|\"|>"

static size_t *grow(size_t *at, size_t n, size_t *cap)
{
    if (n < *cap) return at;
    *cap = *cap ? 2 * *cap : 64;
    return ek_realloc(at, *cap * sizeof *at);
}

/* All text goes through here: beyond the limit nothing is added, so that no input makes more text than one of its
 * own strings beyond what is allowed. */
static void add(ek_prompt *p, const char *s, size_t n)
{
    if (p->full) return;
    ek_buf_add(&p->text, s, n);
    p->full = p->max_bytes > 0 && p->text.len > p->max_bytes;
}

void ek_put_mark(ek_prompt *p, const char *marker)
{
    if (p->full) return;
    p->control = grow(p->control, p->n_control, &p->cap_control);
    p->control[p->n_control++] = p->text.len;
    add(p, marker, strlen(marker));
}

void ek_put(ek_prompt *p, const char *s)
{
    add(p, s, strlen(s));
}

void ek_put_text(ek_prompt *p, const char *s, size_t n)
{
    add(p, s, n);
}

void ek_put_str(ek_prompt *p, const json_t *v)
{
    if (ek_json_is_text(v)) {
        add(p, json_string_value(v), json_string_length(v));
        return;
    }
    if (p->full) return;
    ek_py_str(&p->text, v);
    add(p, "", 0);
}

void ek_put_quoted(ek_prompt *p, const char *s, size_t n)
{
    ek_put_mark(p, QUOTE);
    ek_put_text(p, s, n);
    ek_put_mark(p, QUOTE);
}

void ek_put_quoted_str(ek_prompt *p, const json_t *v)
{
    ek_put_mark(p, QUOTE);
    ek_put_str(p, v);
    ek_put_mark(p, QUOTE);
}

void ek_put_quoted_upper(ek_prompt *p, const json_t *v)
{
    ek_put_mark(p, QUOTE);
    if (!p->full) ek_py_upper(&p->text, v);
    add(p, "", 0);
    ek_put_mark(p, QUOTE);
}

static const char *const media_marks[] = {"<|image|>", "<|audio|>", "<|video|>"};

static void put_placeholder(ek_prompt *p, ek_media_kind kind, const json_t *file)
{
    if (p->full) return;
    if (p->n_media == p->cap_media) {
        p->cap_media = p->cap_media ? 2 * p->cap_media : 8;
        p->media = ek_realloc(p->media, p->cap_media * sizeof *p->media);
    }
    p->media[p->n_media++] = json_is_integer(file) ? (int)json_integer_value(file) : -1;
    ek_put_mark(p, media_marks[kind]);
}

void ek_put_media(ek_prompt *p, ek_media_kind kind, const json_t *part)
{
    const json_t *frames = kind == EK_MEDIA_VIDEO ? ek_json_get(part, "frames") : NULL;
    if (!json_is_array(frames)) {
        put_placeholder(p, kind, ek_json_get(part, "file"));
        return;
    }
    for (size_t i = 0; i < json_array_size(frames); i++) {
        const json_t *frame = json_array_get(frames, i);
        if (i > 0) ek_put(p, " ");
        ek_put_str(p, ek_json_get(frame, "time"));
        ek_put(p, " ");
        put_placeholder(p, kind, ek_json_get(frame, "file"));
    }
}

void ek_put_value(ek_prompt *p, const json_t *v, bool quoted_keys)
{
    if (p->full) return;
    if (json_is_null(v)) {
        ek_put(p, "null");
    } else if (ek_json_is_text(v)) {
        ek_put_quoted(p, json_string_value(v), json_string_length(v));
    } else if (json_is_boolean(v)) {
        ek_put(p, json_is_true(v) ? "true" : "false");
    } else if (json_is_object(v)) {
        ek_members m;
        ek_members_init(&m, v);
        ek_put(p, "{");
        for (size_t i = 0; i < m.n && !p->full; i++) {
            if (i) ek_put(p, ",");
            if (quoted_keys) ek_put_quoted(p, m.at[i].key, m.at[i].n);
            else ek_put_text(p, m.at[i].key, m.at[i].n);
            ek_put(p, ":");
            ek_put_value(p, m.at[i].value, quoted_keys);
        }
        ek_put(p, "}");
        ek_members_fini(&m);
    } else if (json_is_array(v) || !v) { /* an undefined value is an empty sequence */
        ek_put(p, "[");
        for (size_t i = 0; i < json_array_size(v) && !p->full; i++) {
            if (i) ek_put(p, ",");
            ek_put_value(p, json_array_get(v, i), quoted_keys);
        }
        ek_put(p, "]");
    } else {
        ek_put_str(p, v);
    }
}

void ek_put_members(ek_prompt *p, const json_t *object)
{
    ek_members m;
    if (p->full) return;
    ek_members_init(&m, object);
    for (size_t i = 0; i < m.n && !p->full; i++) {
        if (i) ek_put(p, ",");
        ek_put_text(p, m.at[i].key, m.at[i].n);
        ek_put(p, ":");
        ek_put_value(p, m.at[i].value, false);
    }
    ek_members_fini(&m);
}

void ek_prompt_fini(ek_prompt *p)
{
    ek_buf_fini(&p->text);
    free(p->control);
    free(p->media);
    *p = (ek_prompt){0};
}
