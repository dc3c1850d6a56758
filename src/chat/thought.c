#include "chat/thought.h"

#include <string.h>

void ek_thought_start(ek_thought *t, const ek_marks *marks, int max, const int32_t *prompt, size_t n)
{
    const int32_t *id = marks->id;
    *t = (ek_thought){.open = id[EK_MARK_CHANNEL_OPEN], .close = id[EK_MARK_CHANNEL_CLOSE], .max = max};
    if (t->open < 0 || t->close < 0) t->max = 0;
    for (size_t i = n; t->max > 0 && i > 0; i--) { /* the prompt may leave its channel open */
        if (prompt[i - 1] == t->close || prompt[i - 1] == id[EK_MARK_TURN_OPEN]) return;
        t->inside = prompt[i - 1] == t->open;
        if (t->inside) return;
    }
}

void ek_thought_accept(ek_thought *t, int32_t token)
{
    if (token == t->open) t->inside = true;
    if (token == t->close) t->inside = false;
    t->n += t->inside && t->n < t->max;
}

static bool is_set(const uint64_t *row, int32_t id)
{
    return row[id / 64] >> id % 64 & 1;
}

static void allow_every(uint64_t *row, int n_words, int n_vocab)
{
    memset(row, 0xff, sizeof *row * (size_t)n_words);
    if (n_vocab % 64) row[n_words - 1] = ((uint64_t)1 << n_vocab % 64) - 1;
}

static void narrow(const ek_thought *t, int n_words, int n_vocab, uint64_t *row, bool *all)
{
    if (t->n < t->max || (t->inside && !*all && !is_set(row, t->close))) return;
    if (t->inside) {
        memset(row, 0, sizeof *row * (size_t)n_words);
        row[t->close / 64] = (uint64_t)1 << t->close % 64;
    } else {
        if (*all) allow_every(row, n_words, n_vocab);
        row[t->open / 64] &= ~((uint64_t)1 << t->open % 64);
    }
    *all = false;
}

int ek_thought_look(const ek_thought *t, const int32_t *draft, int n_draft, int n_words, int n_vocab, uint64_t *row,
                    bool *all)
{
    ek_thought ahead = *t;
    for (int i = 0; t->max > 0 && i <= n_draft; i++, row += n_words) {
        narrow(&ahead, n_words, n_vocab, row, &all[i]);
        if (i == n_draft) break;
        if (!all[i] && !is_set(row, draft[i])) return i;
        ek_thought_accept(&ahead, draft[i]);
    }
    return n_draft;
}

int ek_thought_peek(const ek_thought *t, const int32_t *draft, int n_draft, bool *all)
{
    ek_thought ahead = *t;
    for (int i = 0; t->max > 0 && i <= n_draft; i++) {
        bool spent = ahead.n >= ahead.max;
        if (spent && ahead.inside) return -1; /* whether the closing marker may come is the row's to say */
        if (spent) all[i] = false;
        if (i == n_draft) break;
        if (spent && draft[i] == ahead.open) return i;
        ek_thought_accept(&ahead, draft[i]);
    }
    return n_draft;
}
