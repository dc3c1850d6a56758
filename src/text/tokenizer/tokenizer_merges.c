/* Reads the merges of a tokenizer.json and builds their look-up tables. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_data.h"
#include "text/tokenizer/tokenizer_file.h"

/* "left right", split at its one space, or ["left", "right"]; appended to b with the border. */
static ek_err read_pair(ek_cursor *c, ek_buf *b, size_t *border, size_t rank)
{
    ek_buf_clear(b);
    if (ek_cursor_peek(c) == '[') {
        c->at++;
        EK_TRY(ek_cursor_string(c, b));
        *border = b->len;
        EK_TRY(ek_cursor_expect(c, ','));
        EK_TRY(ek_cursor_string(c, b));
        return ek_cursor_expect(c, ']');
    }
    EK_TRY(ek_cursor_string(c, b));
    char *space = memchr(ek_buf_text(b), ' ', b->len);
    if (!space || memchr(space + 1, ' ', b->len - (size_t)(space + 1 - b->data)))
        return ek_fail(EK_EFORMAT, "merge %zu, '%.80s', is not two pieces with a space between", rank, ek_buf_text(b));
    *border = (size_t)(space - b->data);
    memmove(space, space + 1, b->len - *border - 1);
    b->data[--b->len] = '\0';
    return EK_OK;
}

/* Where words may be cut before merging, as far as this merge's result allows. */
static void check_cuts(ek_tokenizer *t, const char *s, size_t n)
{
    static const char space[] = "\xE2\x96\x81";
    for (size_t i = 1; i < n; i++) {
        if ((s[i] == '\n') != (s[i - 1] == '\n')) t->cut_newline = false;
        if (n - i >= 3 && memcmp(s + i, space, 3) == 0 && !(i >= 3 && memcmp(s + i - 3, space, 3) == 0))
            t->cut_space = false;
    }
}

static void alloc_merges(ek_tokenizer *t, uint32_t size)
{
    t->merge_mask = size - 1;
    t->merges = ek_alloc((size_t)size * sizeof *t->merges);
    for (uint32_t i = 0; i < size; i++) t->merges[i].pair = EMPTY_PAIR;
}

static void put_merge(ek_tokenizer *t, merge m)
{
    if (2 * (t->n_merges + 1) > t->merge_mask) {
        merge *old = t->merges;
        uint32_t n_old = t->merge_mask + 1;
        alloc_merges(t, 2 * n_old);
        t->n_merges = 0;
        for (uint32_t i = 0; i < n_old; i++)
            if (old[i].pair != EMPTY_PAIR) put_merge(t, old[i]);
        free(old);
    }
    uint32_t k = (uint32_t)ek_mix64(m.pair) & t->merge_mask;
    while (t->merges[k].pair != EMPTY_PAIR && t->merges[k].pair != m.pair) k = (k + 1) & t->merge_mask;
    if (t->merges[k].pair == EMPTY_PAIR) t->n_merges++;
    t->merges[k] = m;
}

void ek_merges_index(ek_tokenizer *t)
{
    static const uint32_t more[] = {0x2581, '\n', '\t'};
    int n_codes = 0;
    t->code = ek_alloc((size_t)t->n_ids);
    for (uint32_t c = 0x20; c < 0x7F + 3; c++) {
        int32_t id = t->scalar[c < 0x7F ? c : more[c - 0x7F]];
        if (id >= 0) t->code[id] = (uint8_t)++n_codes;
    }
    t->first = ek_alloc((size_t)CODES * CODES * sizeof *t->first);
    for (int i = 0; i < CODES * CODES; i++) t->first[i].pair = EMPTY_PAIR;
    uint32_t bits = 64;
    while (bits < 8 * (uint64_t)t->n_merges) bits *= 2;
    t->filter = ek_alloc(bits / 8);
    t->filter_mask = bits - 1;
    for (uint32_t i = 0; i <= t->merge_mask; i++) {
        const merge *m = &t->merges[i];
        if (m->pair == EMPTY_PAIR) continue;
        uint32_t bit = (uint32_t)(ek_mix64(m->pair) >> 32) & t->filter_mask;
        t->filter[bit / 64] |= (uint64_t)1 << bit % 64;
        uint8_t a = t->code[m->pair >> 32], b = t->code[(uint32_t)m->pair];
        if (a && b) t->first[a * CODES + b] = *m;
    }
}

ek_err ek_merges_read(ek_tokenizer *t, ek_cursor *c, int32_t n_vocab)
{
    uint32_t size = 16;
    while (size < 4 * (uint32_t)n_vocab) size *= 2; /* about two merges a piece, half full */
    alloc_merges(t, size);
    t->cut_space = t->cut_newline = true;
    bool first = true, more;
    ek_buf b = {0};
    ek_err e = ek_cursor_expect(c, '[');
    for (uint32_t rank = 0; e == EK_OK; rank++) {
        e = ek_cursor_next(c, ']', &first, &more);
        if (e != EK_OK || !more) break;
        size_t border = 0;
        e = read_pair(c, &b, &border, rank);
        if (e != EK_OK) break;
        const char *s = ek_buf_text(&b);
        int32_t left = find_piece(t, s, border), right = find_piece(t, s + border, b.len - border),
                result = find_piece(t, s, b.len);
        if (left < 0 || right < 0 || result < 0) {
            e = ek_fail(EK_EFORMAT, "merge %u, '%.*s' and '%.80s': %s is not in the vocabulary", rank, (int)border, s,
                        s + border,
                        left < 0    ? "the first"
                        : right < 0 ? "the second"
                                    : "what they make");
            break;
        }
        put_merge(t, (merge){pair_of(left, right), rank, result});
        check_cuts(t, s, b.len);
    }
    ek_buf_fini(&b);
    return e;
}
