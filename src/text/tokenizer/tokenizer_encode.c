/* Text to ids: added tokens are found first, then the text between them is merged. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "text/tokenizer/tokenizer_data.h"
#include "text/utf8.h"

#define MAX_TEXT ((size_t)1 << 30)
#define SPACE    "\xE2\x96\x81" /* U+2581 */

/* Where ids are only counted: how many are kept until they are, and how much text is read at once. */
enum { SETTLED = 4096, PIECE = 64 << 10 };

/* An encoding in progress. */

typedef struct symbol {
    int32_t id, prev, next; /* indices; -1: none. A dead symbol has id -1 */
    uint32_t rank;          /* its merge with the next symbol; NO_RANK: none */
    int32_t result;
} symbol;

typedef struct encoder {
    const ek_tokenizer *t;
    const size_t *control;
    size_t n_control, next_control;
    bool all_special, unwanted;
    unsigned n_asked;
    size_t max_ids; /* number of ids after which encoding may stop */
    ek_ids *out;
    ek_count *count; /* NULL: ids are written; otherwise they are only counted, and out holds the latest ones */
    const char *text;
    bool stopped;
    ek_buf clean, normal;
    symbol *symbols;
    size_t cap_symbols;
    uint64_t *heap; /* rank << 32 | index of the left symbol; the smallest on top */
    size_t n_heap, cap_heap;
} encoder;

/* False once the ids are no longer wanted; called often. */
static bool goes_on(encoder *e)
{
    enum { EVERY = 4096 };
    if (++e->n_asked % EVERY == 0 && !ek_is_wanted()) e->unwanted = true;
    return !e->unwanted;
}

/* Merges of symbols: the one of the lowest rank first, the leftmost of these. */

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

static void add_to_heap(encoder *e, uint64_t v)
{
    if (e->n_heap == e->cap_heap) {
        e->cap_heap = e->cap_heap ? 2 * e->cap_heap : 256;
        e->heap = ek_realloc(e->heap, e->cap_heap * sizeof *e->heap);
    }
    e->heap[e->n_heap++] = v;
}

/* Looks up the merge of a symbol with its next one and puts it on the heap's end. */
static bool find_pair(encoder *e, symbol *s, int32_t i)
{
    const merge *m = s[i].next < 0 ? NULL : find_merge(e->t, s[i].id, s[s[i].next].id);
    s[i].rank = m ? m->rank : NO_RANK;
    if (!m) return false;
    s[i].result = m->result;
    add_to_heap(e, (uint64_t)m->rank << 32 | (uint32_t)i);
    return true;
}

static void merge_long(encoder *e, symbol *s, int32_t n)
{
    e->n_heap = 0;
    for (int32_t i = 0; i < n; i++) {
        s[i].prev = i - 1;
        s[i].next = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n; i++) find_pair(e, s, i);
    for (size_t i = e->n_heap / WAYS + 1; i-- > 0;)
        if (i < e->n_heap) sink(e->heap, e->n_heap, i, e->heap[i]);
    while (e->n_heap && goes_on(e)) {
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
static void merge_short(encoder *e, const symbol *s, int32_t n)
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

/* Merges n symbols, whose ids are set, until no two neighbours have a merge; appends the remaining ids to e->out. */
static void merge_symbols(encoder *e, symbol *s, size_t n)
{
    if (n <= SHORT) merge_short(e, s, (int32_t)n);
    else merge_long(e, s, (int32_t)n);
}

/* Text between added tokens, which are found first. */

static int32_t scalar_piece(const ek_tokenizer *t, const char *s, size_t n, uint32_t cp)
{
    if (cp < 0x10000) return t->scalar[cp];
    int32_t id = find_piece(t, s, n);
    return id >= 0 && t->pieces[id].flags & PIECE_VOCAB ? id : -1;
}

/* Merges normalized, well-formed text. */
static void encode_stretch(encoder *e, const char *s, size_t n)
{
    const ek_tokenizer *t = e->t;
    if (n == 0) return;
    if (t->ignore_merges) {
        int32_t id = find_piece(t, s, n);
        if (id >= 0 && t->pieces[id].flags & PIECE_VOCAB) {
            ek_ids_add(e->out, id);
            return;
        }
    }
    size_t k = 0; /* symbols of the part being read; parts are merged one by one */
    uint32_t before = 0;
    bool unknown = false; /* the last symbol is <unk> */
    for (size_t i = 0; i < n && e->out->len <= e->max_ids && goes_on(e);) {
        uint32_t cp;
        int len = ek_utf8_next(s + i, n - i, &cp);
        if (i > 0 && ((t->cut_space && cp == 0x2581 && before != 0x2581) ||
                      (t->cut_newline && (cp == '\n') != (before == '\n')))) {
            merge_symbols(e, e->symbols, k);
            k = 0;
        }
        if (e->cap_symbols < k + 4) { /* a scalar is at most four bytes */
            e->cap_symbols = e->cap_symbols ? 2 * e->cap_symbols : 256;
            e->symbols = ek_realloc(e->symbols, e->cap_symbols * sizeof *e->symbols);
        }
        before = cp;
        int32_t id = scalar_piece(t, s + i, (size_t)len, cp);
        if (id >= 0) {
            e->symbols[k++].id = id;
            unknown = false;
        } else if (t->byte_fallback) {
            for (int b = 0; b < len; b++) e->symbols[k++].id = t->byte[(uint8_t)s[i + (size_t)b]];
            unknown = false;
        } else if (!(unknown && t->fuse_unk)) {
            e->symbols[k++].id = t->unk;
            unknown = true;
        }
        i += (size_t)len;
    }
    merge_symbols(e, e->symbols, k);
}

static bool is_white(uint32_t cp) /* \s of a regular expression: str.strip's without U+001C..1F */
{
    return ek_utf8_is_space(cp) && !(cp >= 0x1C && cp <= 0x1F);
}

/* The scalar that ends at s + at; 0xFFFD if ill-formed. */
static uint32_t scalar_before(const char *s, size_t at, size_t *len)
{
    uint32_t cp = 0xFFFD;
    for (size_t k = 1; k <= 4 && k <= at; k++)
        if (ek_utf8_next(s + at - k, k, &cp) == (int)k) {
            *len = k;
            return cp;
        }
    *len = 1;
    return 0xFFFD;
}

static bool alone(const char *s, size_t n, size_t start, size_t stop)
{
    size_t len;
    uint32_t cp;
    if (start > 0 && ek_utf8_is_word(scalar_before(s, start, &len))) return false;
    if (stop < n && ek_utf8_next(s + stop, n - stop, &cp) > 0 && ek_utf8_is_word(cp)) return false;
    return true;
}

static bool control_at(encoder *e, size_t at)
{
    if (e->all_special) return true;
    while (e->next_control < e->n_control && e->control[e->next_control] < at) e->next_control++;
    return e->next_control < e->n_control && e->control[e->next_control] == at;
}

static bool is_full(const encoder *e)
{
    return e->stopped || e->out->len > e->max_ids;
}

/* While they are only counted: the ids so far are of the text before at. */
static void settle(encoder *e, const char *at)
{
    ek_count *c = e->count;
    c->ids += e->out->len;
    c->bytes = (size_t)(at - e->text);
    e->out->len = 0;
    e->stopped = c->stop && c->stop(c->arg);
}

typedef void stretch_fn(encoder *e, const char *s, size_t n);

/* Cuts the added tokens of tr out of s and gives what is between to rest. raw: s is the text
 * itself, so offsets of control tokens apply. */
static void cut_added(encoder *e, const trie *tr, const char *s, size_t n, bool raw, stretch_fn *rest)
{
    size_t done = 0;
    for (size_t i = 0; i < n && !is_full(e) && goes_on(e);) {
        int32_t id;
        size_t len = 0;
        if (tr->first[(uint8_t)s[i]])
            len = ek_trie_longest(tr, s + i, n - i, e->t, raw ? control_at(e, i) : e->all_special, &id);
        if (len == 0) {
            i++;
            continue;
        }
        size_t start = i, stop = i + len;
        i = stop; /* the search goes on here even if the match is refused or grows */
        uint8_t flags = e->t->pieces[id].flags;
        if (flags & ADDED_SINGLE_WORD && !alone(s, n, start, stop)) continue;
        if (flags & ADDED_LSTRIP) {
            size_t w;
            while (start > done && is_white(scalar_before(s, start, &w))) start -= w;
            if (start < done) start = done;
        }
        if (flags & ADDED_RSTRIP) {
            uint32_t cp;
            int w;
            while (stop < n && (w = ek_utf8_next(s + stop, n - stop, &cp)) > 0 && is_white(cp)) stop += (size_t)w;
        }
        if (start > done) rest(e, s + done, start - done);
        if (!e->stopped) ek_ids_add(e->out, id);
        if (e->count && raw && e->out->len >= SETTLED && !e->stopped) settle(e, s + stop);
        done = stop;
    }
    if (done < n && !is_full(e)) rest(e, s + done, n - done);
}

/* Part of a stretch of the raw text: make it well-formed, normalize, look for normalized tokens. */
static void piece_of_raw(encoder *e, const char *s, size_t n)
{
    const ek_tokenizer *t = e->t;
    if (!ek_utf8_valid(s, n)) {
        ek_buf_clear(&e->clean);
        ek_utf8_clean(&e->clean, s, n);
        s = e->clean.data;
        n = e->clean.len;
    }
    if (t->normalizes) {
        ek_buf_clear(&e->normal);
        ek_replace_all(&e->normal, s, n, &t->from, &t->to);
        s = ek_buf_text(&e->normal);
        n = e->normal.len;
    }
    if (t->normal.n_nodes > 1) cut_added(e, &t->normal, s, n, false, encode_stretch);
    else encode_stretch(e, s, n);
}

/* Does nothing cross the place before s + i of the raw text: no merge, no normalized token, no run of <unk>? */
static bool is_cut(const ek_tokenizer *t, const char *s, size_t i)
{
    if (t->ignore_merges || t->normal.n_nodes > 1 || !t->byte_fallback) return false;
    bool mapped = t->normalizes && t->from.len == 1 && t->from.data[0] == ' ' && t->to.len == 3 &&
                  !memcmp(t->to.data, SPACE, 3);
    if (t->cut_space && mapped && s[i] == ' ' && s[i - 1] != ' ') return i < 3 || memcmp(s + i - 3, SPACE, 3) != 0;
    return t->cut_newline && (s[i] == '\n') != (s[i - 1] == '\n');
}

/* The bytes of s that are read at once, to need no memory for all of them: up to a cut, or, where none comes for long,
 * up to the beginning of a character. */
static size_t piece_length(encoder *e, const char *s, size_t n)
{
    if (!e->count) return n;
    size_t min = e->count->piece ? e->count->piece : PIECE, max = 4 * min;
    for (size_t i = min; i < n && i < max; i++)
        if (is_cut(e->t, s, i)) return i;
    if (n <= max) return n;
    size_t i = max;
    while (i > max - 3 && ((uint8_t)s[i] & 0xC0) == 0x80) i--;
    e->count->exact = false;
    return i;
}

static void between_raw(encoder *e, const char *s, size_t n)
{
    while (n > 0 && !is_full(e)) {
        size_t len = piece_length(e, s, n);
        piece_of_raw(e, s, len);
        s += len;
        n -= len;
        if (e->count && (n > 0 || e->out->len >= SETTLED)) settle(e, s);
    }
}

ek_err ek_encode(const ek_tokenizer *t, const char *text, size_t n, const size_t *control, size_t n_control,
                 ek_ids *out)
{
    return ek_encode_max(t, text, n, control, n_control, SIZE_MAX, out);
}

static void run(encoder *e, const char *text, size_t n)
{
    cut_added(e, &e->t->raw, text, n, true, between_raw);
    ek_buf_fini(&e->clean);
    ek_buf_fini(&e->normal);
    free(e->symbols);
    free(e->heap);
}

ek_err ek_encode_max(const ek_tokenizer *t, const char *text, size_t n, const size_t *control, size_t n_control,
                     size_t max_ids, ek_ids *out)
{
    if (n > MAX_TEXT) return ek_fail(EK_ETOOLONG, "%zu bytes of text, at most %zu are encoded", n, MAX_TEXT);
    encoder e = {
        .t = t, .control = control, .out = out, .max_ids = max_ids, .all_special = n_control == EK_CONTROL_ALL};
    if (!e.all_special) e.n_control = n_control;
    run(&e, text, n);
    return e.unwanted ? ek_wanted_check() : EK_OK;
}

void ek_encode_count(const ek_tokenizer *t, const char *text, size_t n, const size_t *control, size_t n_control,
                     ek_count *count)
{
    ek_ids ids = {0};
    encoder e = {.t = t,
                 .control = control,
                 .out = &ids,
                 .max_ids = SIZE_MAX,
                 .count = count,
                 .text = text,
                 .all_special = n_control == EK_CONTROL_ALL};
    if (!e.all_special) e.n_control = n_control;
    count->ids = count->bytes = 0;
    count->exact = true;
    run(&e, text, n);
    if (!e.stopped) settle(&e, text + n);
    if (count->bytes < n) count->exact = false;
    ek_ids_fini(&ids);
}
