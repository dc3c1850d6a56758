#include "gpu/several/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void ek_microbatches_open(ek_microbatches *p, int max_rows)
{
    p->row = ek_alloc(sizeof *p->row * (size_t)max_rows);
    p->follows = ek_alloc(sizeof *p->follows * (size_t)max_rows);
}

void ek_microbatches_close(ek_microbatches *p)
{
    free(p->row), free(p->follows);
}

static int seen_up_to(const ek_row *row)
{
    int end = 0;
    for (int k = 0; k < EK_KIND_COUNT; k++) end = row->visible[k].end > end ? row->visible[k].end : end;
    return end;
}

static int run_end(const ek_step *s, int first)
{
    int end = first + 1;
    while (end < s->n_rows && s->row[end].seq == s->row[first].seq) end++;
    return end;
}

/* Appends n rows of s at *end and moves *end. */
static void put(ek_microbatches *p, int *end, const ek_step *s, int from, int n)
{
    memcpy(p->row + *end, s->row + from, sizeof *p->row * (size_t)n);
    if (s->follows) memcpy(p->follows + *end, s->follows + from, sizeof *p->follows * (size_t)n);
    *end += n;
}

/* Takes rows [from, to) of a sequence into microbatch i, until it is full or its rows would need later rows. Returns
 * the number of rows taken. */
static int take(ek_microbatches *p, const ek_step *s, int i, int from, int to, int full)
{
    int seen = 0, good = 0;
    for (int r = from; r < to && !s->row[r].wants_logits; r++) {
        seen = seen_up_to(&s->row[r]) > seen ? seen_up_to(&s->row[r]) : seen;
        if (seen <= s->row[r].pos + 1) good = r + 1 - from;
        if (good && p->first[i + 1] - p->first[i] + good >= full) break;
    }
    put(p, &p->first[i + 1], s, from, good);
    return good;
}

void ek_microbatches_divide(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min)
{
    const int limit = s->n_rows / min < max ? s->n_rows / min : max;
    *p = (ek_microbatches){.row = p->row, .follows = p->follows};
    for (int i = 0; front && i < EK_MICROBATCHES; i++) p->after[i] = front->n - 1;
    if (limit < 2) { /* one microbatch: the step itself (ek_microbatches_step) */
        p->n = 1, p->first[1] = s->n_rows;
        return;
    }
    const int full = s->n_rows / limit;
    int i = 0;
    for (int r = 0, end; r < s->n_rows;
         r = end) { /* some rows of a sequence go to microbatches, the rest to the last one */
        end = run_end(s, r);
        for (int took = 1; took && i + 1 < limit && r < end; r += took) {
            took = take(p, s, i, r, end, full);
            if (p->first[i + 1] - p->first[i] >= full) i++, p->first[i + 1] = p->first[i];
        }
    }
    if (p->first[i + 1] == p->first[i]) p->n = i + 1; /* the last microbatch begins where the others end */
    else p->n = i + 2, p->first[i + 2] = p->first[i + 1];
    if (p->first[p->n - 1] == s->n_rows) p->n--; /* all rows went */
    const int last = p->n - 1, gone = p->first[last];
    p->first[p->n] = gone;
    for (int r = 0, g = 0, end; r < s->n_rows; r = end) { /* rows that earlier microbatches did not take */
        end = run_end(s, r);
        for (; g < gone && r < end && p->row[g].seq == s->row[r].seq && p->row[g].pos == s->row[r].pos; g++) r++;
        put(p, &p->first[p->n], s, r, end - r);
    }
    EK_ASSERT(p->first[p->n] == s->n_rows && p->first[p->n] > gone);
}

/* --- in turns */

int ek_microbatches_with(const ek_microbatches *p, int i)
{
    int microbatch = p->n - 1;
    while (p->turns && microbatch > 0 && p->first[microbatch] > i) microbatch--;
    return microbatch;
}

/* Whether each row is the only one of its sequence and has the draw of the same index, and rows follow draws in order.
 * Then the draws of earlier microbatches lie before all draws that this microbatch and later ones follow. */
static bool goes_in_turns(const ek_step *s)
{
    if (s->n_draws != s->n_rows) return false;
    for (int i = 0; i < s->n_rows; i++) {
        if (!s->row[i].wants_logits || s->draw[i].logits != s->first_logits + i || s->follows[i] < i) return false;
        if (i && (s->row[i].seq == s->row[i - 1].seq || s->follows[i] <= s->follows[i - 1])) return false;
    }
    return true;
}

/* Puts each sequence into its former microbatch. False: a microbatch would have too many sequences or none. */
static bool stay(ek_microbatches *p, const ek_step *s, const ek_microbatches *front)
{
    const int limit = (s->n_rows + p->n - 1) / p->n + 1 + s->n_rows / 16;
    if (!front->turns || front->n != p->n) return false;
    for (int i = 0, r = 0; i < p->n; i++) {
        while (r < s->n_rows && ek_microbatches_with(front, s->follows[r]) <= i) r++;
        p->first[i + 1] = r;
        if (r == p->first[i] || r - p->first[i] > limit) return false;
    }
    return true;
}

void ek_microbatches_follow(ek_microbatches *p, const ek_step *s, const ek_microbatches *front, int max, int min)
{
    const int limit = s->n_rows / min < max ? s->n_rows / min : max;
    *p = (ek_microbatches){
        .row = p->row, .follows = p->follows, .n = 1, .first = {0, s->n_rows}, .after = {front->n - 1}};
    if (!goes_in_turns(s)) return;
    p->turns = true, p->n = limit > 1 ? limit : 1;
    if (!stay(p, s, front))
        for (int i = 0; i <= p->n; i++) p->first[i] = s->n_rows * i / p->n;
    for (int i = 0; i < p->n; i++) p->after[i] = ek_microbatches_with(front, s->follows[p->first[i + 1] - 1]);
}

/* --- */

static ek_step turn_of(const ek_microbatches *p, const ek_step *s, int i)
{
    ek_step own = *s;
    const int first = p->first[i];
    own.row += first, own.n_rows = p->first[i + 1] - first;
    own.draw += first, own.n_draws = own.n_rows;
    own.first_logits += first, own.first_draw += first;
    if (own.follows) own.follows += first;
    return own;
}

ek_step ek_microbatches_step(const ek_microbatches *p, const ek_step *s, int i)
{
    ek_step own = *s;
    if (p->n == 1) return own;
    if (p->turns) return turn_of(p, s, i);
    own.row = p->row + p->first[i], own.n_rows = p->first[i + 1] - p->first[i];
    if (own.follows) own.follows = p->follows + p->first[i];
    if (i + 1 < p->n) own.draw = NULL, own.n_draws = 0, own.masks = NULL;
    return own;
}
