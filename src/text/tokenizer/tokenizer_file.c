#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"
#include "text/tokenizer/tokenizer_data.h"

ek_err ek_cursor_fail(const ek_cursor *c, const char *what)
{
    return ek_fail(EK_EPARSE, "byte %zu: %s", c->at, what);
}

int ek_cursor_peek(ek_cursor *c)
{
    while (c->at < c->n &&
           (c->text[c->at] == ' ' || c->text[c->at] == '\n' || c->text[c->at] == '\t' || c->text[c->at] == '\r'))
        c->at++;
    return c->at < c->n ? (unsigned char)c->text[c->at] : -1;
}

ek_err ek_cursor_expect(ek_cursor *c, char expected)
{
    if (ek_cursor_peek(c) != expected) return ek_fail(EK_EPARSE, "byte %zu: expected '%c'", c->at, expected);
    c->at++;
    return EK_OK;
}

/* at stands on the opening quote; moves behind the closing one. A raw control character, which
 * JSON does not allow, is a damaged file here and not a sloppy client. */
static ek_err skip_string(ek_cursor *c, bool *plain)
{
    *plain = true;
    for (c->at++; c->at < c->n; c->at++) {
        if (c->text[c->at] == '"') {
            c->at++;
            return EK_OK;
        }
        if ((unsigned char)c->text[c->at] < 0x20) return ek_cursor_fail(c, "a raw control character in a string");
        if (c->text[c->at] == '\\') {
            *plain = false;
            c->at++;
        }
    }
    return ek_cursor_fail(c, "a string has no closing quote");
}

ek_err ek_cursor_string(ek_cursor *c, ek_buf *out)
{
    if (ek_cursor_peek(c) != '"') return ek_cursor_fail(c, "expected a string");
    size_t from = c->at;
    bool plain;
    EK_TRY(skip_string(c, &plain));
    if (plain) {
        ek_buf_add(out, c->text + from + 1, c->at - from - 2);
        return EK_OK;
    }
    json_t *v;
    EK_TRY(ek_json_read(&v, c->text + from, c->at - from, 0));
    ek_buf_add(out, json_string_value(v), json_string_length(v));
    json_decref(v);
    return EK_OK;
}

ek_err ek_cursor_int(ek_cursor *c, int64_t *out)
{
    int64_t v = 0;
    int p = ek_cursor_peek(c), digits = 0;
    for (; p >= '0' && p <= '9' && digits < 18; digits++) {
        v = v * 10 + (p - '0');
        p = ++c->at < c->n ? c->text[c->at] : -1;
    }
    if (digits == 0 || p == '.' || p == 'e' || p == 'E' || (p >= '0' && p <= '9'))
        return ek_cursor_fail(c, "expected a whole number from 0 on");
    *out = v;
    return EK_OK;
}

ek_err ek_cursor_skip(ek_cursor *c, const char **from, size_t *n)
{
    int p = ek_cursor_peek(c);
    size_t start = c->at, depth = 0;
    if (p < 0 || p == ',' || p == ']' || p == '}') return ek_cursor_fail(c, "expected a value");
    bool plain;
    for (;;) {
        if (c->at >= c->n) {
            if (depth) return ek_cursor_fail(c, "the text ends inside a value");
            break;
        }
        char ch = c->text[c->at];
        if (ch == '"') {
            EK_TRY(skip_string(c, &plain));
            if (depth == 0) break;
            continue;
        }
        if (depth == 0 && (ch == ',' || ch == '}' || ch == ']')) break;
        if (ch == '{' || ch == '[') depth++;
        bool closes = ch == '}' || ch == ']';
        c->at++;
        if (closes && --depth == 0) break;
    }
    *from = c->text + start;
    *n = c->at - start;
    return EK_OK;
}

ek_err ek_cursor_tree(ek_cursor *c, json_t **out)
{
    const char *from;
    size_t n;
    *out = NULL;
    EK_TRY(ek_cursor_skip(c, &from, &n));
    return ek_json_read(out, from, n, 0);
}

ek_err ek_cursor_next(ek_cursor *c, char close, bool *first, bool *more)
{
    int p = ek_cursor_peek(c);
    *more = p != close;
    if (p == close) c->at++;
    else if (!*first) EK_TRY(ek_cursor_expect(c, ','));
    *first = false;
    return EK_OK;
}

/* Reads the merges of a tokenizer.json and builds their look-up tables. */

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
