/* What ends a value of a call's arguments, or all of them: a quote of the notation, and the end of the call, whether or
 * not what is open was closed. */
#include <string.h>

#include "text/reply/call_args.h"
#include "text/reply/call_steps.h"
#include "text/reply/call_value.h"

/* Reads held text again, now that all of it is known: a bare word ends where the notation
 * says so. */
static void replay(ek_args *a)
{
    ek_buf b = a->held;
    a->held = (ek_buf){0};
    a->state = VALUE;
    for (size_t i = 0; i < b.len && !a->bad;) {
        char c = b.data[i];
        if (a->state == VALUE && !ek_args_is_space(c) && !memchr("{[\"',", c, 5) && !ek_args_is_closer(a, c)) {
            size_t n = ek_bare_extent(b.data + i, b.len - i, ek_args_top(a)->closer == ']', a->in_call,
                                      ek_args_known_names(a));
            ek_args_emit_bare(a, b.data + i, n);
            i += n;
        } else {
            ek_args_step(a, c);
            i++;
        }
    }
    ek_buf_fini(&b);
}

/* `a=x, b=y` holds again what follows the next '=', so once may not be enough; every turn takes
 * at least one character. */
static void settle(ek_args *a)
{
    while (!a->bad && (a->state == BARE || a->state == HOLD)) replay(a);
}

void ek_args_quote(ek_args *a)
{
    if (a->state == KEY_NAMED && !a->bad) ek_args_end_named(a);
    if (a->bad) return;
    if (a->state == BARE || a->state == HOLD) {
        if (!ek_bare_opens_text(ek_buf_text(&a->held), a->held.len, ek_args_known_names(a))) {
            ek_args_end_text(a); /* its opening quote is missing */
            return;
        }
        settle(a);
    }
    if (a->state == KEY_BARE && a->equals && a->equals == a->held.len) ek_args_end_bare_key(a, a->equals - 1);
    switch (a->state) {
    case KEY_START: ek_args_begin_held(a, KEY_QUOTED); break;
    case KEY_QUOTED: a->state = COLON; break;
    case VALUE:
        ek_args_begin_value(a);
        ek_args_emit_char(a, '"');
        ek_args_begin_held(a, TEXT);
        break;
    case TEXT:
        ek_args_emit_escaped(a, ek_buf_text(&a->held), a->held.len);
        ek_args_emit_char(a, '"');
        ek_args_end_value(a);
        break;
    default: break; /* a stray one */
    }
}

/* The closing quote is missing: one closer for each open container leaves the end of the
 * text, outermost last. */
static size_t without_closers(const ek_args *a, const char *s, size_t n)
{
    for (int i = 0; i < a->depth; i++) {
        size_t k = n;
        while (k > 0 && ek_args_is_space(s[k - 1])) k--;
        if (k == 0 || s[k - 1] != a->stack[i].closer) break;
        n = k - 1;
    }
    return n;
}

static void close_value(ek_args *a)
{
    switch (a->state) {
    case BARE:
    case HOLD: settle(a); break;
    case TEXT:
        ek_args_emit_escaped(a, ek_buf_text(&a->held), without_closers(a, ek_buf_text(&a->held), a->held.len));
        ek_args_emit_char(a, '"');
        ek_args_end_value(a);
        break;
    case JSON:
        a->held.len = without_closers(a, ek_buf_text(&a->held), a->held.len);
        ek_args_decode_json(a);
        ek_args_end_text(a);
        break;
    case SINGLE:
        if (!a->quote_pending) a->held.len = without_closers(a, ek_buf_text(&a->held), a->held.len);
        ek_args_end_text(a);
        break;
    case KEY_NAMED: ek_args_end_named(a); break;
    case KEY_BARE: ek_args_end_without_colon(a); break;
    case KEY_QUOTED:
    case KEY_JSON:
    case KEY_SINGLE:
    case COLON: ek_args_fail(a); break;
    default: break;
    }
}

/* Stands the machine inside a key or a value? */
static bool is_open(const ek_args *a)
{
    return a->state != KEY_START && a->state != VALUE && a->state != AFTER && a->state != DONE;
}

bool ek_args_close(ek_args *a)
{
    while (!a->bad && is_open(a)) close_value(a);
    if (!a->bad && a->state == VALUE && ek_args_top(a)->closer != ']') ek_args_emit_bare(a, "", 0);
    while (a->depth > 0 && !a->bad) ek_args_pop(a);
    return !a->bad;
}

void ek_args_closing(const ek_args *a, ek_buf *out)
{
    if (a->depth == 0) return;
    int depth = a->mute_depth ? a->mute_depth : a->depth; /* nothing of a repeated key's value was written */
    if (!a->mute_depth && a->state == TEXT) ek_buf_char(out, '"');
    else if (a->last == ':') ek_buf_str(out, "null"); /* a key without its value */
    while (depth > 0) ek_buf_char(out, a->stack[--depth].closer == ']' ? ']' : '}');
}

bool ek_args_cut(ek_args *a)
{
    if (a->state == KEY_NAMED && !a->bad) ek_args_end_named(a);
    settle(a);
    return ek_args_done(a);
}
