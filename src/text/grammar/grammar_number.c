/* The automaton inside numbers. */
#include "text/grammar/grammar_state.h"

enum { IN_SIGN, IN_ZERO, IN_WHOLE, IN_POINT, IN_FRACTION, IN_E, IN_E_SIGN, IN_EXPONENT };
enum { MAX_DIGITS = 18, MAX_EXPONENT = 2 }; /* a double below 1e118: readers need no more */

/* f.a: number of digits before the point, behind it, and of the exponent, 8 bits each; then whether the number is
 * negative. f.v: the digits of a bounded number so far. */
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

/* Whether the digits can become a number within the bounds, by digits behind the point or by more digits before it. */
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
