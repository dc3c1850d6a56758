#include "text/chat_write.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "text/json.h"

#define QUOTE "<|\"|>"

static size_t *grow(size_t *at, size_t n, size_t *cap)
{
    if (n < *cap) return at;
    *cap = *cap ? 2 * *cap : 64;
    return ek_realloc(at, *cap * sizeof *at);
}

void ek_put_mark(ek_prompt *p, const char *marker)
{
    p->control = grow(p->control, p->n_control, &p->cap_control);
    p->control[p->n_control++] = p->text.len;
    ek_buf_str(&p->text, marker);
}

void ek_put(ek_prompt *p, const char *s)
{
    ek_buf_str(&p->text, s);
}

void ek_put_text(ek_prompt *p, const char *s, size_t n)
{
    ek_buf_add(&p->text, s, n);
}

void ek_put_str(ek_prompt *p, const json_t *v)
{
    ek_py_str(&p->text, v);
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
    ek_py_upper(&p->text, v);
    ek_put_mark(p, QUOTE);
}

static const char *const media_marks[] = {"<|image|>", "<|audio|>", "<|video|>"};

void ek_put_media(ek_prompt *p, ek_media_kind kind)
{
    if (p->n_media == p->cap_media) {
        p->cap_media = p->cap_media ? 2 * p->cap_media : 8;
        p->media = ek_realloc(p->media, p->cap_media * sizeof *p->media);
    }
    p->media[p->n_media++] = (ek_media_mark){p->text.len, kind};
    ek_put_mark(p, media_marks[kind]);
}

void ek_put_value(ek_prompt *p, const json_t *v, bool quoted_keys)
{
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
        for (size_t i = 0; i < m.n; i++) {
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
        for (size_t i = 0; i < json_array_size(v); i++) {
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
    ek_members_init(&m, object);
    for (size_t i = 0; i < m.n; i++) {
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

static void put_clock(ek_prompt *p, double seconds)
{
    long s = seconds > 0 ? (long)seconds : 0;
    ek_buf_fmt(&p->text, "%02ld:%02ld ", s / 60, s % 60);
}

static void put_soft(ek_prompt *p, const char *begin, const char *soft, const char *end, int n)
{
    ek_put_mark(p, begin);
    for (int i = 0; i < n; i++) ek_put_mark(p, soft);
    ek_put_mark(p, end);
}

ek_err ek_prompt_expand_media(ek_prompt *p, const ek_media_size *sizes, size_t n)
{
    if (n != p->n_media) return ek_fail(EK_EINVAL, "%zu media given, the prompt has places for %zu", n, p->n_media);
    ek_prompt out = {0};
    size_t next = 0, done = 0;
    for (size_t c = 0; c < p->n_control; c++) {
        size_t at = p->control[c];
        ek_put_text(&out, p->text.data + done, at - done);
        done = at;
        if (next == n || p->media[next].at != at) {
            out.control = grow(out.control, out.n_control, &out.cap_control);
            out.control[out.n_control++] = out.text.len;
            continue;
        }
        const ek_media_size *size = &sizes[next];
        ek_media_kind kind = p->media[next++].kind;
        done += 9; /* <|image|>, <|audio|> and <|video|> are equally long */
        if (kind == EK_MEDIA_IMAGE) put_soft(&out, "<|image>", "<|image|>", "<image|>", size->n_soft);
        else if (kind == EK_MEDIA_AUDIO) put_soft(&out, "<|audio>", "<|audio|>", "<audio|>", size->n_soft);
        else
            for (int f = 0; f < size->n_frames; f++) {
                if (f) ek_put(&out, " ");
                put_clock(&out, size->seconds[f]);
                put_soft(&out, "<|image>", "<|video|>", "<image|>", size->n_soft);
            }
    }
    ek_put_text(&out, ek_buf_text(&p->text) + done, p->text.len - done);
    ek_prompt_fini(p);
    *p = out;
    return EK_OK;
}
