/* Follows a reply token by token, and gives the rows of tokens that may come next. A row of a state is the union of the
 * rows of its stacks. A stack's row is a function of the grammar and of its frames, which are the key of the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/vocab_data.h"

/* --- states --- */

/* Loads the frames of the state: the first ones of the arena, under the same numbers. */
static void load(ek_walk *w, const ek_grammar_state *s)
{
    w->g = s->g;
    w->n = s->n_frames;
    memcpy(w->f, s->frame, sizeof *w->f * (size_t)s->n_frames);
}

/* Keeps the frames under `tops`. */
static void store(ek_grammar_state *s, const ek_walk *w, const ek_tops *tops)
{
    static const int max = EK_GRAMMAR_FRAMES;
    int32_t from[EK_GRAMMAR_FRAMES], chain[EK_GRAPH_DEPTH + 1];
    s->n_frames = s->tops.n = 0;
    for (int i = 0; i < tops->n; i++) {
        int n = 0, kept = 0;
        int32_t at = tops->at[i], up = EK_NO_FRAME;
        for (; at != EK_NO_FRAME; at = w->f[at].up) {
            for (kept = s->n_frames; kept > 0 && from[kept - 1] != at; kept--) continue;
            if (kept > 0) break;
            chain[n++] = at;
        }
        if (at != EK_NO_FRAME) up = kept - 1;
        if (s->n_frames + n > max) continue;
        while (n-- > 0) {
            s->frame[s->n_frames] = w->f[chain[n]];
            s->frame[s->n_frames].up = up;
            from[s->n_frames] = chain[n];
            up = s->n_frames++;
        }
        s->tops.at[s->tops.n++] = up;
    }
}

static int symbol_of_mark(const ek_vocab *v, int32_t token)
{
    for (int m = EK_MARK_TEXT + 1; m < EK_MARK_OTHER; m++)
        if (v->marks.id[m] == token) return EK_SYMBOL_MARK + m;
    return -1;
}

/* s after the token; false if it is not allowed, and s is then empty. */
static bool advance(ek_vocab *v, ek_grammar_state *s, int32_t token)
{
    ek_walk *w = &v->walk;
    ek_tops a = s->tops, b = {0};
    load(w, s);
    if (ek_tokenizer_is_special(v->t, token)) {
        int symbol = symbol_of_mark(v, token);
        bool free = a.n == 1 && s->frame[a.at[0]].node < 0 && s->frame[a.at[0]].state == EK_AT_FREE;
        if (symbol >= 0) ek_walk_steps(w, &a, symbol, &b);
        else if (free) return true;
    } else {
        size_t n;
        const char *bytes = ek_tokenizer_bytes(v->t, token, &n);
        b = a;
        if (n == 0 || n > EK_VOCAB_TOKEN) b.n = 0;
        for (size_t i = 0; i < n && b.n > 0; i++) {
            a = b;
            ek_walk_steps(w, &a, (uint8_t)bytes[i], &b);
        }
    }
    store(s, w, &b);
    return s->tops.n > 0;
}

/* --- rows --- */

static const ek_row_record *row_of(ek_vocab *v, int32_t top)
{
    ek_row_key key;
    ek_grammar_key(v, &v->walk, top, &key);
    const ek_row_record *r = ek_rows_find(&v->rows, &key);
    if (r) v->hits++;
    else v->misses++;
    if (r) return r;
    const uint64_t *base = ek_grammar_make_row(v, top);
    return ek_rows_put(&v->rows, &key, base, v->made);
}

static bool allows_all(const ek_grammar_state *s)
{
    for (int i = 0; i < s->tops.n; i++) {
        const ek_frame *f = &s->frame[s->tops.at[i]];
        if (f->node < 0 && (f->state == EK_AT_FREE || f->state == EK_AT_DONE)) return true;
    }
    return false;
}

static void fill(ek_vocab *v, const ek_grammar_state *s, int n_words, uint64_t *row)
{
    if (n_words > v->n_words) memset(row + v->n_words, 0, sizeof *row * (size_t)(n_words - v->n_words));
    load(&v->walk, s);
    for (int i = 0; i < s->tops.n; i++) ek_rows_get(&v->rows, row_of(v, s->tops.at[i]), i > 0, n_words, row);
    if (s->tops.n == 0) memset(row, 0, sizeof *row * (size_t)n_words);
}

static void copy_state(ek_grammar_state *to, const ek_grammar_state *from)
{
    to->g = from->g;
    to->n_frames = from->n_frames;
    to->tops = from->tops;
    memcpy(to->frame, from->frame, sizeof *to->frame * (size_t)from->n_frames);
}

/* --- the interface --- */

int ek_grammar_look(ek_grammar_state *s, const int32_t *draft, int n_draft, int n_words, uint64_t *row, bool *all)
{
    ek_vocab *v = s->vocab;
    ek_grammar_state *at = s;
    int i = 0;
    pthread_mutex_lock(&v->lock);
    for (;; i++) {
        all[i] = allows_all(at);
        if (row && !all[i]) fill(v, at, n_words, row + (size_t)i * (size_t)n_words);
        if (i == n_draft) break;
        if (at == s) copy_state(s->ahead, s);
        at = s->ahead;
        if (!advance(v, at, draft[i])) break;
    }
    pthread_mutex_unlock(&v->lock);
    return i;
}

int ek_grammar_peek(ek_grammar_state *s, const int32_t *draft, int n_draft, bool *all)
{
    return ek_grammar_look(s, draft, n_draft, 0, NULL, all);
}

void ek_grammar_accept(ek_grammar_state *s, int32_t token)
{
    pthread_mutex_lock(&s->vocab->lock);
    advance(s->vocab, s, token);
    pthread_mutex_unlock(&s->vocab->lock);
}

/* The frame in which the reply starts: looks back in the prompt as far as the reply parser (ek_reply_start). */
static ek_frame start_of(const ek_grammar *g, const ek_vocab *v, const int32_t *prompt, size_t n, bool thinking)
{
    ek_frame f = {.up = EK_NO_FRAME, .node = -1, .depth = 1, .state = thinking ? EK_AT_START : EK_AT_BODY};
    if (g->free) f.state = EK_AT_FREE;
    size_t i = n;
    int mark = -1;
    while (i > 0 && mark < 0) {
        mark = symbol_of_mark(v, prompt[--i]) - EK_SYMBOL_MARK;
        if (mark == EK_MARK_QUOTE || mark == EK_MARK_TOOL_OPEN || mark == EK_MARK_TOOL_CLOSE || mark == EK_MARK_EOS)
            mark = -1;
    }
    if (g->free || mark != EK_MARK_CHANNEL_OPEN) return f;
    f.state = EK_AT_HEADER;
    for (i++; i < n; i++) {
        size_t len;
        const char *bytes = ek_tokenizer_bytes(v->t, prompt[i], &len);
        if (memchr(bytes, '\n', len)) {
            f.state = EK_AT_THOUGHT;
            f.a = 0;
            return f;
        }
        f.a = f.a + len < 7 ? f.a + (uint32_t)len : 7; /* within the header's name; the newline comes later */
    }
    return f;
}

ek_grammar_state *ek_grammar_state_open(const ek_grammar *g, ek_vocab *v, const int32_t *prompt, size_t n,
                                        bool thinking)
{
    ek_grammar_state *s = ek_alloc(sizeof *s);
    s->ahead = ek_alloc(sizeof *s->ahead);
    s->g = g;
    s->vocab = v;
    s->frame[0] = start_of(g, v, prompt, n, thinking);
    s->n_frames = 1;
    s->tops = (ek_tops){.n = 1, .at = {0}};
    return s;
}

void ek_grammar_state_close(ek_grammar_state *s)
{
    if (!s) return;
    free(s->ahead);
    free(s);
}
