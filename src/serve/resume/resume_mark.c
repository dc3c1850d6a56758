#include <inttypes.h>
#include <string.h>

#include "serve/resume/resume.h"
#include "text/json/json.h"

void ek_resume_marks_init(ek_resume_marks *m, const ek_resume *r, const ek_sampling *s)
{
    const size_t n = r->tokens.len;
    m->chain = n > 0 ? r->before : ek_resume_seed(r->begin, s);
    m->at = n > 0 ? (int)n - 1 : 0;
    m->skip = n > 0 ? r->events : 0;
    m->told = m->has = n > 0;
}

void ek_resume_marks_fini(ek_resume_marks *m)
{
    ek_ids_fini(&m->fresh);
}

void ek_resume_marks_token(ek_resume_marks *m, int32_t token)
{
    if (!m->has) m->skip = 0;
    if (!m->has) ek_ids_add(&m->fresh, token);
    m->has = false;
    m->at++;
    m->events = 0;
    m->chain = ek_resume_token(m->chain, token);
}

/* "resume":{…} */
static void put_state(ek_buf *b, ek_resume_marks *m, const ek_turn_result *r, const uint64_t *logits)
{
    ek_buf_str(b, "\"resume\":{");
    if (!m->told) {
        ek_buf_str(b, "\"id\":");
        ek_json_quote(b, m->id, strlen(m->id));
        ek_buf_fmt(b, ",\"created\":%lld,\"cached\":%d,", (long long)m->created, r->n_cached);
        if (r->n_images + r->n_sounds > 0)
            ek_buf_fmt(b, "\"cached_media\":[%d,%d],", r->n_images_kept, r->n_sounds_kept);
        if (m->seed) ek_buf_fmt(b, "\"seed\":%llu,", (unsigned long long)*m->seed);
    }
    m->told = true;
    ek_buf_fmt(b, "\"at\":%d,", m->at);
    for (size_t i = 0; i < m->fresh.len; i++) ek_buf_fmt(b, "%s%d", i ? "," : "\"tokens\":[", m->fresh.data[i]);
    if (m->fresh.len > 0) ek_buf_str(b, "],");
    m->fresh.len = 0;
    ek_buf_fmt(b, "\"events\":%d,\"digest\":\"%016" PRIx64 "\"", m->events, m->chain);
    if (logits) ek_buf_fmt(b, ",\"logits\":\"%016" PRIx64 "\"", *logits);
    ek_buf_char(b, '}');
}

static void insert(ek_buf *out, size_t at, const ek_buf *what)
{
    const size_t behind = out->len - at;
    ek_buf_add(out, what->data, what->len);
    memmove(out->data + at + what->len, out->data + at, behind);
    memcpy(out->data + at, what->data, what->len);
}

static void cut(ek_buf *out, size_t from, size_t end)
{
    memmove(out->data + from, out->data + end, out->len - end + 1);
    out->len -= end - from;
}

/* The end of the event that begins at `from`, without what ends it; JSON has no line's end in it. */
static size_t end_of(const ek_buf *out, size_t from, bool lines)
{
    const char *s = out->data + from, *end = memchr(s, '\n', out->len - from);
    while (!lines && end && end[1] != '\n') end = memchr(end + 1, '\n', out->len - (size_t)(end + 1 - out->data));
    return end ? (size_t)(end - out->data) : out->len;
}

static bool ends_with(const ek_buf *out, size_t from, size_t end, const char *s)
{
    const size_t n = strlen(s);
    return end - from >= n && !memcmp(out->data + end - n, s, n);
}

/* Into the event that ends at `end`, a JSON object or something else, which stays as it is. Returns its end. */
static size_t mark(ek_resume_marks *m, ek_buf *out, size_t from, size_t end, const ek_turn_result *r,
                   const uint64_t *logits, const char *extension)
{
    if (end == from || out->data[end - 1] != '}') return end;
    ek_buf state = {0};
    size_t at = end - 1; /* before its last brace */
    const bool extended = *extension && ends_with(out, from, at, extension);
    if (extended) at--; /* and of the member that is there already */
    ek_buf_str(&state, extended ? "," : ",\"evenkeel\":{");
    put_state(&state, m, r, logits);
    if (!extended) ek_buf_char(&state, '}');
    insert(out, at, &state);
    end += state.len;
    ek_buf_fini(&state);
    return end;
}

void ek_resume_mark(ek_resume_marks *m, ek_buf *out, size_t from, const ek_turn_result *r, const uint64_t *logits,
                    const char *extension)
{
    const size_t gap = m->lines ? 1 : 2;
    while (from < out->len) {
        size_t end = end_of(out, from, m->lines);
        if (++m->events <= m->skip) {
            cut(out, from, end + gap < out->len ? end + gap : out->len);
            continue;
        }
        from = mark(m, out, from, end, r, logits, extension) + gap;
    }
}
