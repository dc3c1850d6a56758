#include "text/reply/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct pattern {
    char *text;
    int n;
    int *fall;   /* Knuth, Morris, Pratt: length of the longest proper border of each prefix */
    int matched; /* characters of it that end the text so far */
    int index;   /* in the caller's list */
} pattern;

struct ek_stop {
    pattern *patterns;
    int n_patterns;
    ek_buf held; /* the end of the text that may still become a match */
    int hit;     /* -1: none yet */
};

static void find_borders(pattern *p)
{
    p->fall[0] = 0;
    for (int i = 1, k = 0; i < p->n; i++) {
        while (k > 0 && p->text[i] != p->text[k]) k = p->fall[k - 1];
        if (p->text[i] == p->text[k]) k++;
        p->fall[i] = k;
    }
}

ek_err ek_stop_open(ek_stop **out, const char *const *strings, const size_t *lengths, int n)
{
    *out = NULL;
    if (n < 0 || n > EK_STOP_MAX) return ek_fail(EK_EINVAL, "%d stop strings, at most %d", n, EK_STOP_MAX);
    for (int i = 0; i < n; i++)
        if (lengths[i] > EK_STOP_BYTES)
            return ek_fail(EK_EINVAL, "stop string %d has %zu bytes, at most %d", i, lengths[i], EK_STOP_BYTES);
    ek_stop *s = ek_alloc(sizeof *s);
    s->hit = -1;
    s->patterns = ek_alloc((size_t)(n + 1) * sizeof *s->patterns);
    for (int i = 0; i < n; i++) {
        if (lengths[i] == 0) continue;
        pattern *p = &s->patterns[s->n_patterns++];
        *p = (pattern){.text = ek_alloc(lengths[i]),
                       .n = (int)lengths[i],
                       .index = i,
                       .fall = ek_alloc(lengths[i] * sizeof *p->fall)};
        memcpy(p->text, strings[i], lengths[i]);
        find_borders(p);
    }
    *out = s;
    return EK_OK;
}

void ek_stop_close(ek_stop *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_patterns; i++) {
        free(s->patterns[i].text);
        free(s->patterns[i].fall);
    }
    free(s->patterns);
    ek_buf_fini(&s->held);
    free(s);
}

/* Moves every pattern on by c; the longest that is now complete, or NULL. */
static const pattern *advance(ek_stop *s, char c)
{
    const pattern *found = NULL;
    for (int i = 0; i < s->n_patterns; i++) {
        pattern *p = &s->patterns[i];
        while (p->matched > 0 && p->text[p->matched] != c) p->matched = p->fall[p->matched - 1];
        if (p->text[p->matched] == c) p->matched++;
        if (p->matched < p->n) continue;
        if (!found || p->n > found->n) found = p;
        p->matched = p->fall[p->n - 1];
    }
    return found;
}

int ek_stop_feed(ek_stop *s, const char *text, size_t n, ek_buf *out)
{
    if (!s) {
        ek_buf_add(out, text, n);
        return -1;
    }
    for (size_t i = 0; i < n && s->hit < 0; i++) {
        ek_buf_char(&s->held, text[i]);
        const pattern *p = advance(s, text[i]);
        if (!p) continue;
        s->hit = p->index;
        s->held.len -= (size_t)p->n;
    }
    /* What no pattern needs any more is visible; at a match, all that stands before it. */
    size_t keep = 0;
    for (int i = 0; i < s->n_patterns && s->hit < 0; i++)
        if ((size_t)s->patterns[i].matched > keep) keep = (size_t)s->patterns[i].matched;
    size_t free_bytes = s->held.len - keep;
    ek_buf_add(out, ek_buf_text(&s->held), free_bytes);
    if (free_bytes) memmove(s->held.data, s->held.data + free_bytes, keep);
    s->held.len = keep;
    return s->hit;
}

void ek_stop_end(ek_stop *s, ek_buf *out)
{
    if (!s || s->hit >= 0) return;
    ek_buf_add(out, ek_buf_text(&s->held), s->held.len);
    ek_buf_clear(&s->held);
    for (int i = 0; i < s->n_patterns; i++) s->patterns[i].matched = 0;
}
