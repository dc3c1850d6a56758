/* Decides which requests share the next step. No decision here reaches the arithmetic of a row: a row is a token at an
 * absolute position with its own pages, whatever other rows the step has. */
#include "engine/planning.h"

#include "engine/cached.h"

/* Pages of a kind that a request needs to compute all tokens it has. */
static int need(const ek_engine *e, const ek_request *r, ek_layer_kind kind)
{
    return ek_page_table_max(e->on.layout, kind, r->n_tokens, r->media.longest_piece);
}

static int more_pages(const ek_engine *e, const ek_request *r, ek_layer_kind kind)
{
    int more = need(e, r, kind) - ek_page_table_held(&r->table, kind);
    return more > 0 ? more : 0;
}

/* Whether r, which may hold cached pages, fits beside the running requests, each with the pages for all its tokens. */
static bool has_room(const ek_engine *e, const ek_request *r)
{
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        int unused = ek_pages_unused(e->pages, (ek_layer_kind)k);
        for (int i = 0; i < e->n_running; i++) unused -= more_pages(e, e->running[i], (ek_layer_kind)k);
        if (unused < more_pages(e, r, (ek_layer_kind)k)) return false;
    }
    return true;
}

/* Makes room for r, which may hold cached pages, by stopping other requests. False: r has to wait. */
static bool make_room(ek_engine *e, const ek_request *r)
{
    ek_request *v;
    while (e->n_running == e->opts.max_requests || (e->n_running > 0 && !has_room(e, r))) {
        if (!(v = ek_turns_victim(e, r))) return false;
        ek_turns_yield(e, v);
    }
    return true;
}

/* Admits requests in the order of their clients' turns. A request that does not fit holds back those after it, so that
 * none starves. A request waits, and lets others pass, while another request computes the same prompt or while its
 * pages are read from outside memory. */
void ek_plan_admit(ek_engine *e)
{
    e->admissions++;
    e->turn_due = false;
    for (ek_request *r; (r = ek_turns_next(e)) != NULL;) {
        r->turn.passed = e->admissions;
        if (e->n_running == e->opts.max_requests && !ek_turns_victim(e, r)) break;
        if (ek_reuse_waits(e, r)) {
            ek_shelf_put_off(e, r);
            continue;
        }
        if (!ek_shelf_ready(e, r)) continue;
        ek_reuse_adopt(e, r);
        if (!ek_reuse_suffices(e, r)) continue;
        if (!make_room(e, r)) {
            ek_reuse_return(e, r);
            return;
        }
        e->new_was_last = !r->turn.admitted;
        ek_queue_run(e, r);
        ek_reuse_admitted(e, r);
        ek_audit_note(e, r, r->cache.n_hit);
    }
    ek_shelf_ahead(e);
}

/* r will start over from its tokens: prompt and reply so far are then its prompt, and keys and values come out the
 * same. */
static void preempt(ek_engine *e, ek_request *r)
{
    ek_queue_requeue(e, r);
    ek_engine_count(e, &e->stats.preempted);
}

/* Lays out the rows and draws of a scheduled request: its rows, then its draft. */
static void lay_out(ek_engine *e, int i)
{
    ek_plan *p = &e->plan;
    ek_scheduled *s = &p->scheduled[i];
    const ek_request *r = s->req;
    bool all[EK_DRAFT_MAX + 1];
    const uint64_t *allowed = ek_engine_ask_mask(e, s, p->n_draws, all);
    ptrdiff_t words = ek_mask_words(e->rules.vocab_size);
    s->row = p->n_rows, s->logits = p->n_logits, s->draw = p->n_draws;
    s->n_rows += s->n_draft;
    for (int pos = r->n_done; pos < r->n_done + s->n_rows; pos++) {
        bool prompt = pos >= r->next_prompt_logits && pos < r->n_given, draws = pos >= r->n_tokens - 1;
        p->row[p->n_rows++] = ek_request_row(r, pos, i, prompt || draws);
        if (prompt || draws) {
            p->digested[p->n_logits] = draws && r->reply_digest;
            p->shown[p->n_logits++] = prompt || r->reply_logits;
        }
        if (!draws) continue;
        int ahead = pos + 1 - r->n_tokens;
        ek_plan_add_draw(p, r, pos + 1, allowed && !all[ahead] ? allowed + ahead * words : NULL);
    }
    s->n_logits = p->n_logits - s->logits;
    s->n_draws = p->n_draws - s->draw;
    p->seq[i] = ek_request_seq(r);
}

enum { MAX_BLOCKED = 4 };

/* A request whose next span did not fit into the rows that others left in several steps. */
static ek_request *blocked(const ek_engine *e)
{
    for (int i = 0; i < e->n_running; i++)
        if (e->running[i]->turn.n_blocked >= MAX_BLOCKED) return e->running[i];
    return NULL;
}

/* Divides the step's prompt rows among the prompts. */
static void divide(ek_engine *e, int chunk)
{
    for (int i = 0; i < e->n_running; i++) {
        const ek_request *r = e->running[i];
        const int left = ek_hold_rows(r, ek_request_rows_left(r));
        e->share[i] = (ek_share){.client = r->turn.client, .left = left > 1 ? left : 0};
    }
    ek_engine_divide(e->share, e->n_running, chunk, e->n_steps);
    for (int i = 0; i < e->n_running; i++) e->running[i]->turn.max_rows = e->share[i].max;
}

/* The number of r's rows in the step: at most `share` tokens, and at most `room` rows with prompt logits. Spans are not
 * divided. A span longer than `share` takes all rows of the step, if it fits `whole`. */
static int choose_rows(const ek_request *r, int share, int whole, int room)
{
    int n = ek_request_ready(r, ek_request_rows_left(r)), piece = ek_request_piece(r);
    if (n == 0) return 0; /* the features of its next rows are being encoded */
    if (n > 1 && n > share) n = share;
    if (n > 0 && n + 1 == ek_request_rows_left(r)) n += ek_request_ready(r, n + 1) > n; /* a single row is a reply's */
    n = ek_hold_rows(r, n);
    if (n == 0) return 0;
    int over = ek_request_prompt_logits(r, n) - room;
    if (over > 0) n -= over; /* only the last rows want logits */
    n = ek_request_cut(r, n);
    if (n == 0 && piece > 1 && piece <= whole && ek_request_prompt_logits(r, piece) <= room) n = piece;
    return n;
}

/* Takes pages for n rows of running[i], or for fewer. If pages are missing, the youngest requests of the client with
 * the most requests start over. 0: it waits with its pages, or starts over itself. */
static int take_pages(ek_engine *e, int i, int n)
{
    ek_request *r = e->running[i];
    int fit;
    while ((fit = ek_request_cut(r, ek_page_table_room(&r->table, e->pages, n))) == 0 && e->n_running > i + 1) {
        ek_request *v = ek_turns_youngest(e, i > 0 ? i : 1);
        preempt(e, v);
        if (v == r) return 0;
    }
    EK_ASSERT(fit > 0 || i > 0); /* alone, a request always fits */
    if (fit == 0) return 0;
    EK_ASSERT(r->table.n == r->n_done);
    const ek_err err = ek_page_table_extend(&r->table, e->pages, fit);
    EK_ASSERT(err == EK_OK);
    return fit;
}

/* Gives requests their rows: one to a reply, at most `all` to prompts. Returns the remaining room for prompt logits. */
static int schedule(ek_engine *e, int all)
{
    ek_plan *p = &e->plan;
    ek_request *const first = blocked(e);
    const int reserved = first ? ek_request_piece(first) : 0;
    int chunk = reserved < all ? all - reserved : 0, room = e->rules.max_prompt_logits, spare = 0;
    divide(e, chunk);
    p->n_scheduled = p->n_rows = p->n_logits = p->n_draws = 0;
    for (int i = 0; i < e->n_running; i++) {
        ek_request *r = e->running[i];
        /* A span longer than the step's rows is the step's only prompt. */
        const int whole = chunk == all || r == first ? e->rules.whole : chunk;
        const int own = r->turn.max_rows + spare, share = r == first ? reserved : own < chunk ? own : chunk;
        const int left = ek_request_rows_left(r), ready = ek_request_ready(r, left);
        EK_ASSERT(left >= 1);
        int n = choose_rows(r, share, whole, room);
        r->turn.n_blocked = n == 0 && ready > 1 && !r->turn.held && ek_request_piece(r) > share
                                ? r->turn.n_blocked + (share > 0 || i > 0)
                                : 0;
        if (n > 0 && (n = take_pages(e, i, n)) == 0 && (i == e->n_running || e->running[i] != r)) i--;
        if (left > 1 && r != first) { /* the others share the rest */
            spare = own > n ? own - n : 0;
            chunk = chunk > n ? chunk - n : 0;
        }
        if (n == 0) continue;
        room -= ek_request_prompt_logits(r, n);
        p->scheduled[p->n_scheduled++] = (ek_scheduled){.req = r, .n_rows = n};
    }
    return room;
}

/* Makes the plan. Every request gets one row; a prompt gets more, as far as the step's prompt rows, the room for logits
 * and the pages allow. The oldest are served first; drafts take the rows that remain. */
void ek_plan_make(ek_engine *e)
{
    ek_plan *p = &e->plan;
    const bool replying = ek_engine_replies(e);
    const int all = ek_engine_prompt_rows(e, replying, e->timing.encoded);
    ek_hold_plan(e, replying);
    int room = schedule(e, all);
    if (p->n_scheduled == 0 && ek_hold_end(e))
        room = schedule(e, all); /* the prompts that they wait for do not go on */
    ek_draft_plan(e, e->sizes.max_logits - e->opts.max_requests - (e->rules.max_prompt_logits - room));
    for (int i = 0; i < p->n_scheduled; i++) lay_out(e, i);
    ek_masks_begin(p->masks);
    EK_ASSERT(p->n_rows <= e->sizes.max_rows && p->n_logits <= e->sizes.max_logits);
}
