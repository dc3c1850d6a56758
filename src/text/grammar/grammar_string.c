/* The automaton inside strings: characters in UTF-8 or as escapes, their number, and the pattern. */
#include "text/grammar/grammar_state.h"

#include "base/encoding.h"

enum { LAST1 = 1, LAST2, LAST3, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4 };
enum { SECOND = EK_IN_HEX + 1, SECOND_OF_D, THIRD, FOURTH }; /* the number of the next digit of \u */

int ek_utf8_walk(int state, int b)
{
    static const struct {
        uint8_t min, max, next;
    } follows[] = {{0, 0, 0},           {0x80, 0xbf, 0},     {0x80, 0xbf, LAST1}, {0x80, 0xbf, LAST2},
                   {0xa0, 0xbf, LAST1}, {0x80, 0x9f, LAST1}, {0x90, 0xbf, LAST2}, {0x80, 0x8f, LAST2}};
    if (state > 0) return b >= follows[state].min && b <= follows[state].max ? follows[state].next : -1;
    if (b < 0x80) return 0;
    if (b >= 0xc2 && b <= 0xdf) return LAST1;
    if (b == 0xe0) return AFTER_E0;
    if (b == 0xed) return AFTER_ED;
    if (b >= 0xe1 && b <= 0xef) return LAST2;
    if (b == 0xf0) return AFTER_F0;
    if (b >= 0xf1 && b <= 0xf3) return LAST3;
    return b == 0xf4 ? AFTER_F4 : -1;
}

/* The state after one more character of an escape (\", \n, \u and four digits), or -1. Surrogates are not offered:
 * characters beyond the first plane are written as themselves. */
static int in_escape(int state, int c)
{
    switch (state) {
    case EK_IN_ESCAPE:
        if (c == 'u') return EK_IN_HEX;
        return c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't'
                   ? EK_IN_BODY
                   : -1;
    case EK_IN_HEX: return ek_hex_digit(c) < 0 ? -1 : c == 'd' || c == 'D' ? SECOND_OF_D : SECOND;
    case SECOND: return ek_hex_digit(c) >= 0 ? THIRD : -1;
    case SECOND_OF_D: return c >= '0' && c <= '7' ? THIRD : -1;
    case THIRD: return ek_hex_digit(c) >= 0 ? FOURTH : -1;
    default: return ek_hex_digit(c) >= 0 ? EK_IN_BODY : -1;
    }
}

/* The range of characters that an escape can still become after some of its four digits. */
static void hex_range(uint32_t cp, int digits, uint32_t *lo, uint32_t *hi)
{
    int left = 4 * (4 - digits);
    *lo = cp << left;
    *hi = *lo | (((uint32_t)1 << left) - 1);
}

static void utf8_range(int state, uint32_t cp, uint32_t *lo, uint32_t *hi)
{
    static const struct {
        uint32_t lo, hi;
    } after[] = {[AFTER_E0] = {0x800, 0xfff},
                 [AFTER_ED] = {0xd000, 0xd7ff},
                 [AFTER_F0] = {0x10000, 0x3ffff},
                 [AFTER_F4] = {0x100000, 0x10ffff}};
    if (state >= AFTER_E0) {
        *lo = after[state].lo, *hi = after[state].hi;
        return;
    }
    *lo = cp << 6 * state; /* LAST1, LAST2, LAST3: this many bytes follow */
    *hi = *lo | (((uint32_t)1 << 6 * state) - 1);
}

static uint32_t with_byte(uint32_t cp, int state, int byte)
{
    if (state > 0) return cp << 6 | (uint32_t)(byte & 0x3f);
    return (uint32_t)(byte < 0x80 ? byte : byte < 0xe0 ? byte & 0x1f : byte < 0xf0 ? byte & 0xf : byte & 7);
}

bool ek_string_byte(const ek_pattern *p, ek_string_at *s, int byte)
{
    int next = ek_utf8_walk(s->utf8, byte);
    uint32_t lo, hi;
    if (next < 0) return false;
    if (s->utf8 == 0) {
        s->n++;
        s->cp = 0;
    }
    s->cp = with_byte(s->cp, s->utf8, byte);
    s->utf8 = next;
    if (next > 0) {
        utf8_range(next, s->cp, &lo, &hi);
        return ek_pattern_may_come(p, s->state, lo, hi, s->n);
    }
    s->state = ek_regex_step(p->regex, s->state, s->cp);
    return s->state >= 0 && ek_pattern_can_end(p, s->state, s->n);
}

/* The character of a short escape. */
static uint32_t escaped(int c)
{
    return c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : (uint32_t)c;
}

/* A byte of an escape; `next` is the state behind it. */
static bool escape_byte(const ek_pattern *p, ek_string_at *s, int was, int next, int symbol)
{
    uint32_t lo = 0, hi = 0xffff;
    if (was >= EK_IN_HEX) s->cp = s->cp << 4 | (uint32_t)ek_hex_digit(symbol);
    else if (next == EK_IN_HEX) s->cp = 0;
    else s->cp = escaped(symbol);
    if (next != EK_IN_BODY) {
        if (next > EK_IN_HEX) hex_range(s->cp, next <= SECOND_OF_D ? 1 : next == THIRD ? 2 : 3, &lo, &hi);
        return ek_pattern_may_come(p, s->state, lo, hi, s->n);
    }
    s->state = ek_regex_step(p->regex, s->state, s->cp);
    return s->state >= 0 && ek_pattern_can_end(p, s->state, s->n);
}

void ek_string_load(const ek_frame *f, ek_string_at *s)
{
    *s = (ek_string_at){(int32_t)(f->v & UINT32_MAX), (uint32_t)(f->v >> 32), f->a, f->state};
}

void ek_string_store(const ek_node *n, const ek_string_at *s, ek_frame *f)
{
    f->v = (uint32_t)s->state | (uint64_t)(s->utf8 ? s->cp : 0) << 32;
    f->state = (uint16_t)s->utf8;
    /* without a maximum, counting ends at the minimum, so that states stay few */
    f->a = n->max == UINT32_MAX && s->n > n->min ? n->min : s->n;
}

/* Inside a string with a pattern, after one more symbol; false if none can follow. */
static bool in_pattern(const ek_node *n, const ek_pattern *p, ek_frame *f, int symbol)
{
    ek_string_at s;
    ek_string_load(f, &s);
    if (f->state >= EK_IN_ESCAPE) {
        int next = in_escape(f->state, symbol);
        if (next < 0 || !escape_byte(p, &s, f->state, next, symbol)) return false;
        s.utf8 = 0;
        ek_string_store(n, &s, f);
        f->state = (uint16_t)next;
        if (next != EK_IN_BODY) f->v |= (uint64_t)s.cp << 32;
        return true;
    }
    if (s.utf8 == 0 && !n->gemma && symbol < 0x20) return false;
    if (s.utf8 == 0 && !n->gemma && symbol == '\\') {
        s.n++;
        if (!ek_pattern_may_come(p, s.state, 0, 0xffff, s.n)) return false;
        ek_string_store(n, &s, f);
        f->state = EK_IN_ESCAPE;
        return true;
    }
    if (!ek_string_byte(p, &s, symbol)) return false;
    ek_string_store(n, &s, f);
    return true;
}

/* The same without a pattern. */
static bool in_body(const ek_node *n, ek_frame *f, int symbol)
{
    int next;
    if (f->state >= EK_IN_ESCAPE) {
        next = in_escape(f->state, symbol);
    } else {
        bool begins = f->state == EK_IN_BODY;
        if (begins && f->a == n->max) return false;
        if (begins && !n->gemma && symbol < 0x20) return false;
        if (begins && (n->max < UINT32_MAX || f->a < n->min)) f->a++;
        next = begins && !n->gemma && symbol == '\\' ? EK_IN_ESCAPE : ek_utf8_walk(f->state, symbol);
    }
    f->state = (uint16_t)next;
    return next >= 0;
}

bool ek_string_free_byte(const ek_node *n, ek_string_at *s, int byte)
{
    if (s->utf8 == 0) {
        if (s->n == n->max) return false;
        if (n->max < UINT32_MAX || s->n < n->min) s->n++;
    }
    s->utf8 = ek_utf8_walk(s->utf8, byte);
    return s->utf8 >= 0;
}

bool ek_walk_in_string(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[f.node];
    const ek_pattern *p = n->pattern < 0 ? NULL : w->g->graph.patterns[n->pattern];
    bool closes = symbol == (n->gemma ? EK_SYMBOL_MARK + EK_MARK_QUOTE : '"');
    if (f.state == EK_IN_BODY && closes) {
        if (f.a >= n->min && (!p || p->regex->accepts[f.v & UINT32_MAX])) ek_walk_put(w, out, f.up);
        return false;
    }
    if (symbol >= EK_SYMBOL_MARK) return false;
    if (p ? in_pattern(n, p, &f, symbol) : in_body(n, &f, symbol)) ek_walk_put(w, out, ek_walk_add(w, f));
    return false;
}
