/* Merges of symbols: the one of the lowest rank first, the leftmost of these. */
#include "base/alloc.h"
#include "text/tokenizer/tokenizer_encoder.h"

enum { WAYS = 4 }; /* children of a heap's node: one line of the cache */

static void rise(uint64_t *heap, size_t i)
{
    uint64_t v = heap[i];
    while (i > 0 && heap[(i - 1) / WAYS] > v) {
        heap[i] = heap[(i - 1) / WAYS];
        i = (i - 1) / WAYS;
    }
    heap[i] = v;
}

/* Puts v where i stands empty. It comes from the end and most likely goes back there, so the
 * hole sinks to the bottom first, by comparisons that need no branch, and v rises from it. */
static void sink(uint64_t *heap, size_t n, size_t i, uint64_t v)
{
    size_t start = i, k;
    while ((k = WAYS * i + 1) + WAYS <= n) {
        size_t a = heap[k + 1] < heap[k] ? k + 1 : k;
        size_t b = heap[k + 3] < heap[k + 2] ? k + 3 : k + 2;
        size_t min = heap[b] < heap[a] ? b : a;
        heap[i] = heap[min];
        i = min;
    }
    if (k < n) {
        size_t min = k;
        while (++k < n)
            if (heap[k] < heap[min]) min = k;
        heap[i] = heap[min];
        i = min;
    }
    while (i > start && heap[(i - 1) / WAYS] > v) {
        heap[i] = heap[(i - 1) / WAYS];
        i = (i - 1) / WAYS;
    }
    heap[i] = v;
}

static void add_to_heap(ek_encoder *e, uint64_t v)
{
    if (e->n_heap == e->cap_heap) {
        e->cap_heap = e->cap_heap ? 2 * e->cap_heap : 256;
        e->heap = ek_realloc(e->heap, e->cap_heap * sizeof *e->heap);
    }
    e->heap[e->n_heap++] = v;
}

/* Looks up the merge of a symbol with its next one and puts it on the heap's end. */
static bool find_pair(ek_encoder *e, ek_symbol *s, int32_t i)
{
    const merge *m = s[i].next < 0 ? NULL : find_merge(e->t, s[i].id, s[s[i].next].id);
    s[i].rank = m ? m->rank : NO_RANK;
    if (!m) return false;
    s[i].result = m->result;
    add_to_heap(e, (uint64_t)m->rank << 32 | (uint32_t)i);
    return true;
}

static void merge_long(ek_encoder *e, ek_symbol *s, int32_t n)
{
    e->n_heap = 0;
    for (int32_t i = 0; i < n; i++) {
        s[i].prev = i - 1;
        s[i].next = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n; i++) find_pair(e, s, i);
    for (size_t i = e->n_heap / WAYS + 1; i-- > 0;)
        if (i < e->n_heap) sink(e->heap, e->n_heap, i, e->heap[i]);
    while (e->n_heap && ek_encoder_goes_on(e)) {
        uint64_t best = e->heap[0];
        uint64_t last = e->heap[--e->n_heap];
        if (e->n_heap) sink(e->heap, e->n_heap, 0, last);
        int32_t left = (int32_t)(uint32_t)best, right = s[left].next;
        /* A rank names one pair: another rank means that the pair changed since. */
        if (s[left].id < 0 || s[left].rank != best >> 32) continue;
        s[left].id = s[left].result;
        s[left].next = s[right].next;
        if (s[right].next >= 0) s[s[right].next].prev = left;
        s[right].id = -1;
        if (find_pair(e, s, left)) rise(e->heap, e->n_heap - 1);
        if (s[left].prev >= 0 && find_pair(e, s, s[left].prev)) rise(e->heap, e->n_heap - 1);
    }
    for (int32_t i = 0; i < n; i++)
        if (s[i].id >= 0) ek_ids_add(e->out, s[i].id);
}

enum { SHORT = 24 };

/* The same merges in the same order without a heap: the best pair, leftmost first, is found
 * by looking at all of them, which is cheaper for a word. */
static void merge_short(ek_encoder *e, const ek_symbol *s, int32_t n)
{
    int32_t id[SHORT], result[SHORT];
    uint32_t rank[SHORT];
    for (int32_t i = 0; i < n; i++) id[i] = s[i].id;
    for (int32_t i = 0; i < n; i++) rank[i] = NO_RANK;
    for (int32_t i = 0; i + 1 < n; i++) {
        const merge *m = find_merge(e->t, id[i], id[i + 1]);
        if (m) {
            rank[i] = m->rank;
            result[i] = m->result;
        }
    }
    for (;;) {
        int32_t best = 0;
        for (int32_t i = 1; i < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (n == 0 || rank[best] == NO_RANK) break;
        id[best] = result[best];
        n--;
        for (int32_t i = best + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
            result[i] = result[i + 1];
        }
        rank[n - 1] = rank[best] = NO_RANK;
        for (int32_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const merge *m = find_merge(e->t, id[i], id[i + 1]);
            rank[i] = m ? m->rank : NO_RANK;
            result[i] = m ? m->result : -1;
        }
    }
    for (int32_t i = 0; i < n; i++) ek_ids_add(e->out, id[i]);
}

void ek_encoder_merge(ek_encoder *e, ek_symbol *s, size_t n)
{
    if (n <= SHORT) merge_short(e, s, (int32_t)n);
    else merge_long(e, s, (int32_t)n);
}
