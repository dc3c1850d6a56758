/* The automaton inside strings and numbers. */
#include "text/grammar_state.h"

/* --- strings --- */

enum { LAST1 = 1, LAST2, LAST3, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4 };

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

static bool is_hex(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The state behind one more character of \", \n or \uXXXX, or -1. Surrogates are not offered: characters beyond the
 * first plane stand for themselves. */
static int in_escape(int state, int c)
{
    enum { SECOND = EK_IN_HEX + 1, SECOND_OF_D, THIRD, FOURTH };
    switch (state) {
    case EK_IN_ESCAPE:
        if (c == 'u') return EK_IN_HEX;
        return c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't'
                   ? EK_IN_BODY
                   : -1;
    case EK_IN_HEX: return !is_hex(c) ? -1 : c == 'd' || c == 'D' ? SECOND_OF_D : SECOND;
    case SECOND: return is_hex(c) ? THIRD : -1;
    case SECOND_OF_D: return c >= '0' && c <= '7' ? THIRD : -1;
    case THIRD: return is_hex(c) ? FOURTH : -1;
    default: return is_hex(c) ? EK_IN_BODY : -1;
    }
}

bool ek_walk_in_string(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[f.node];
    bool closes = symbol == (n->gemma ? EK_SYMBOL_MARK + EK_MARK_QUOTE : '"');
    int next;
    if (f.state == EK_IN_BODY && closes) {
        if (f.a >= n->min) ek_walk_put(w, out, f.up);
        return false;
    }
    if (symbol >= EK_SYMBOL_MARK) return false;
    if (f.state >= EK_IN_ESCAPE) {
        next = in_escape(f.state, symbol);
    } else {
        bool begins = f.state == EK_IN_BODY;
        if (begins && f.a == n->max) return false;
        if (begins && !n->gemma && symbol < 0x20) return false;
        /* without a maximum, counting ends at the minimum, so that states stay few */
        if (begins && (n->max < UINT32_MAX || f.a < n->min)) f.a++;
        next = begins && !n->gemma && symbol == '\\' ? EK_IN_ESCAPE : ek_utf8_walk(f.state, symbol);
    }
    if (next < 0) return false;
    f.state = (uint16_t)next;
    ek_walk_put(w, out, ek_walk_add(w, f));
    return false;
}

/* --- numbers --- */

enum { IN_SIGN, IN_ZERO, IN_WHOLE, IN_POINT, IN_FRACTION, IN_E, IN_E_SIGN, IN_EXPONENT };
enum { MAX_DIGITS = 18, MAX_EXPONENT = 2 }; /* a double below 1e118: readers need no more */

/* f.a: digits before the point, behind it, of the exponent, 8 bits each, then whether it is negative. f.v: of a
 * bounded number its digits so far. */
static int whole_digits(const ek_frame *f)
{
    return (int)(f->a & 255);
}
static int fraction_digits(const ek_frame *f)
{
    return (int)(f->a >> 8 & 255);
}
static int exponent_digits(const ek_frame *f)
{
    return (int)(f->a >> 16 & 255);
}
static bool is_negative(const ek_frame *f)
{
    return f->a >> 24 & 1;
}

typedef __int128 wide;

static wide power10(int n)
{
    wide x = 1;
    while (n-- > 0) x *= 10;
    return x;
}

/* Whether some magnitude of [from, to] lies within the bounds. */
static bool within(const ek_node *n, bool negative, wide from, wide to)
{
    wide lo = negative ? -(wide)n->hi : n->lo, hi = negative ? -(wide)n->lo : n->hi;
    return from <= hi && to >= lo && hi >= 0;
}

/* Whether the digits can become a number within the bounds: as they are continued behind the point, or by more
 * digits before it. */
static bool can_be(const ek_node *n, const ek_frame *f, bool whole)
{
    wide unit = power10(n->fraction - fraction_digits(f)), v = (wide)f->v;
    if (!whole || f->v == 0) return within(n, is_negative(f), v * unit, (v + 1) * unit - 1);
    for (int d = whole_digits(f); d <= MAX_DIGITS; d++, unit *= 10)
        if (within(n, is_negative(f), v * unit, (v + 1) * unit - 1)) return true;
    return false;
}

static bool may_end(const ek_node *n, const ek_frame *f)
{
    if (f->state == IN_EXPONENT) return true;
    if (f->state != IN_ZERO && f->state != IN_WHOLE && f->state != IN_FRACTION) return false;
    wide v = (wide)f->v * power10(n->fraction - fraction_digits(f));
    return !n->bounded || within(n, is_negative(f), v, v);
}

static bool digit(const ek_node *n, ek_frame *f, int d)
{
    switch (f->state) {
    case IN_SIGN:
    case IN_WHOLE:
        if (whole_digits(f) == MAX_DIGITS) return false;
        f->state = f->state == IN_SIGN && d == 0 ? IN_ZERO : IN_WHOLE;
        f->a++;
        break;
    case IN_POINT:
    case IN_FRACTION:
        if (fraction_digits(f) == n->fraction) return false;
        f->state = IN_FRACTION;
        f->a += 1 << 8;
        break;
    case IN_E:
    case IN_E_SIGN:
    case IN_EXPONENT:
        if (exponent_digits(f) == MAX_EXPONENT) return false;
        f->state = IN_EXPONENT;
        f->a += 1 << 16;
        return true;
    default: return false;
    }
    if (!n->bounded) return true;
    f->v = f->v * 10 + (uint64_t)d;
    return can_be(n, f, f->state == IN_WHOLE);
}

static bool sign_or_point(const ek_node *n, ek_frame *f, int c)
{
    bool whole = f->state == IN_ZERO || f->state == IN_WHOLE;
    if (c == '.' && whole && n->fraction > 0) {
        f->state = IN_POINT;
        return !n->bounded || can_be(n, f, false);
    }
    if ((c == 'e' || c == 'E') && (whole || f->state == IN_FRACTION) && n->fraction > 0 && !n->bounded) {
        f->state = IN_E;
        return true;
    }
    if ((c == '+' || c == '-') && f->state == IN_E) {
        f->state = IN_E_SIGN;
        return true;
    }
    return false;
}

bool ek_walk_in_number(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[f.node];
    ek_frame next = f;
    bool is_digit = symbol >= '0' && symbol <= '9';
    if (is_digit ? digit(n, &next, symbol - '0') : sign_or_point(n, &next, symbol))
        ek_walk_put(w, out, ek_walk_add(w, next));
    return !is_digit && may_end(n, &f);
}

void ek_walk_begin_number(ek_walk *w, ek_frame f, int symbol, ek_tops *out)
{
    const ek_node *n = &w->g->graph.nodes[f.node];
    f.state = IN_SIGN;
    if (symbol == '-' && (!n->bounded || n->lo < 0)) {
        f.a = 1 << 24;
        ek_walk_put(w, out, ek_walk_add(w, f));
    } else if (symbol >= '0' && symbol <= '9' && digit(n, &f, symbol - '0')) {
        ek_walk_put(w, out, ek_walk_add(w, f));
    }
}
