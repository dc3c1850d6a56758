#include "chat/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json/json.h"

/* A call or a result, while calls and results are matched by key. */
typedef struct item {
    const ek_buf *key;
    int order;   /* the order of calls and results together */
    int call;    /* its index; -1: a result */
    int message; /* it stands in */
} item;

/* The open calls of one message: calls of one key in items[from..to). */
typedef struct open_calls {
    int from, to;
} open_calls;

typedef struct matcher {
    ek_pairs *p;
    const ek_conversation *c;
    int *call_of; /* for each message: the call that it answers; -1: none */
    item *items;  /* of one pass */
    int n;
    open_calls *stack; /* a stack; the nearest message is on top */
    int depth;
} matcher;

static bool is_open(const matcher *m, int call)
{
    return m->p->calls[call].first < 0;
}

/* The passes find results in any order. They are linked in their own order at the end. Until then `first` only says
 * that there is a result. */
static void give(matcher *m, const item *result, int call)
{
    m->call_of[result->message] = call;
    m->p->calls[call].first = result->message;
}

static int by_key(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->key->len != y->key->len) return x->key->len < y->key->len ? -1 : 1;
    int d = x->key->len ? memcmp(x->key->data, y->key->data, x->key->len) : 0;
    return d ? d : x->order - y->order;
}

static bool same_key(const item *a, const item *b)
{
    return a->key->len == b->key->len && (a->key->len == 0 || !memcmp(a->key->data, b->key->data, a->key->len));
}

/* The next open call of the nearest message; -1: none. */
static int take_open(matcher *m)
{
    while (m->depth > 0) {
        open_calls *o = &m->stack[m->depth - 1];
        while (o->from < o->to && !is_open(m, m->items[o->from].call)) o->from++;
        if (o->from < o->to) return m->items[o->from++].call;
        m->depth--;
    }
    return -1;
}

static void push_open(matcher *m, int i, int first)
{
    open_calls *o = m->depth ? &m->stack[m->depth - 1] : NULL;
    if (o && i > first && m->items[i - 1].call >= 0 && m->items[i - 1].message == m->items[i].message) o->to = i + 1;
    else m->stack[m->depth++] = (open_calls){i, i + 1};
}

/* items[from..to) have one key. Each result is matched with a call before it. again: a call may have several
 * results. */
static void match_before(matcher *m, int from, int to, bool again)
{
    int last = -1;
    m->depth = 0;
    for (int i = from; i < to; i++) {
        const item *it = &m->items[i];
        if (it->call >= 0) {
            push_open(m, i, from);
            last = it->call;
            continue;
        }
        int call = take_open(m);
        if (call < 0 && again) call = last;
        if (call >= 0) give(m, it, call);
    }
}

/* A result without a call before it gets the nearest open call after it. */
static void match_behind(matcher *m, int from, int to)
{
    m->depth = 0;
    for (int i = to - 1; i >= from; i--) {
        const item *it = &m->items[i];
        if (it->call >= 0 && is_open(m, it->call)) m->stack[m->depth++] = (open_calls){i, i + 1};
        else if (it->call < 0 && m->call_of[it->message] < 0 && m->depth > 0)
            give(m, it, m->items[m->stack[--m->depth].from].call);
    }
}

static void link_same(matcher *m, int from, int to)
{
    int last = -1;
    for (int i = from; i < to; i++) {
        int call = m->items[i].call;
        if (call < 0) continue;
        m->p->calls[call].before = last;
        if (last >= 0) m->p->calls[last].after = call;
        last = call;
    }
}

/* The calls and results that a pass matches. All are still without a partner. */
typedef struct pass {
    bool with_id, without_id; /* calls */
    bool id, name;            /* the members that results have; they are the key */
} pass;

static const ek_buf none = {0};

static void gather(matcher *m, const pass *p)
{
    int order = 0, k = 0;
    m->n = 0;
    for (int i = 0; i < m->c->n_messages; i++) {
        const ek_message *msg = &m->c->messages[i];
        for (; k < m->p->n_calls && m->p->calls[k].message == i; k++, order++) {
            const ek_block *b = m->p->calls[k].block;
            if (!is_open(m, k) || !(b->id.len ? p->with_id : p->without_id)) continue;
            const ek_buf *key = p->id ? &b->id : p->name ? &b->name : &none;
            m->items[m->n++] = (item){key, order, k, i};
        }
        if (msg->role != EK_ROLE_TOOL || m->call_of[i] >= 0) continue;
        bool fits = p->id ? msg->call_id.len > 0 : p->with_id ? msg->call_id.len == 0 : msg->call_id.len > 0;
        if (!fits || (p->name && msg->name.len == 0)) continue;
        m->items[m->n++] = (item){p->id ? &msg->call_id : p->name ? &msg->name : &none, order++, -1, i};
    }
}

static void run_pass(matcher *m, const pass *p)
{
    gather(m, p);
    if (p->id || p->name) qsort(m->items, (size_t)m->n, sizeof *m->items, by_key);
    for (int from = 0, to; from < m->n; from = to) {
        for (to = from + 1; to < m->n && same_key(&m->items[from], &m->items[to]);) to++;
        match_before(m, from, to, p->id);
        if (!p->id) continue;
        match_behind(m, from, to);
        link_same(m, from, to);
    }
}

static ek_err without_call(const ek_message *m)
{
    ek_buf quoted = {0};
    enum { MAX_SHOWN = 80 };
    ek_json_quote(&quoted, ek_buf_text(&m->call_id), m->call_id.len < MAX_SHOWN ? m->call_id.len : MAX_SHOWN);
    ek_err err = m->call_id.len ? ek_fail(EK_EINVAL, "a tool's result answers the call %s, but no call has this id%s",
                                          quoted.data, m->call_id.len > MAX_SHOWN ? " (cut here)" : "")
                                : ek_fail(EK_EINVAL, "a tool's result names no call, and no call before it is open");
    ek_buf_fini(&quoted);
    return err;
}

/* Goes from the last message to the first, so that each list ascends. */
static ek_err link_results(matcher *m)
{
    ek_pairs *p = m->p;
    for (int i = 0; i < m->c->n_messages; i++)
        if (m->c->messages[i].role == EK_ROLE_TOOL && m->call_of[i] < 0) return without_call(&m->c->messages[i]);
    for (int k = 0; k < p->n_calls; k++) p->calls[k].first = -1;
    for (int i = m->c->n_messages - 1; i >= 0; i--) {
        p->next[i] = -1;
        if (m->call_of[i] < 0) continue;
        ek_pair_call *call = &p->calls[m->call_of[i]];
        p->next[i] = call->first;
        call->first = i;
        if (call->last < 0) call->last = i;
    }
    return EK_OK;
}

/* For a tool's message, the template uses only the result, so a call there does not count. */
static bool is_call(const ek_message *m, int block)
{
    return m->role != EK_ROLE_TOOL && m->blocks[block].kind == EK_BLOCK_CALL;
}

static void list_calls(ek_pairs *p, const ek_conversation *c)
{
    int n = 0;
    for (int i = 0; i < c->n_messages; i++)
        for (int b = 0; b < c->messages[i].n_blocks; b++) n += is_call(&c->messages[i], b);
    p->calls = ek_alloc((size_t)(n + 1) * sizeof *p->calls);
    p->first_call = ek_alloc((size_t)(c->n_messages + 1) * sizeof *p->first_call);
    for (int i = 0; i < c->n_messages; i++) {
        const ek_message *m = &c->messages[i];
        p->first_call[i] = p->n_calls;
        for (int b = 0; b < m->n_blocks; b++)
            if (is_call(m, b)) p->calls[p->n_calls++] = (ek_pair_call){&m->blocks[b], i, -1, -1, -1, -1};
    }
}

ek_err ek_pairs_make(ek_pairs *p, const ek_conversation *c)
{
    static const pass passes[] = {
        {.with_id = true, .id = true},
        {.with_id = true, .without_id = true, .name = true}, /* results without an id */
        {.with_id = true, .without_id = true},
        {.without_id = true}, /* results with an id that no call has */
    };
    int n_results = 0;
    for (int i = 0; i < c->n_messages; i++) n_results += c->messages[i].role == EK_ROLE_TOOL;
    list_calls(p, c);
    if (n_results == 0) return EK_OK;
    p->next = ek_alloc((size_t)c->n_messages * sizeof *p->next);
    size_t n = (size_t)(p->n_calls + n_results);
    matcher m = {.p = p,
                 .c = c,
                 .call_of = ek_alloc((size_t)(c->n_messages + 1) * sizeof *m.call_of),
                 .items = ek_alloc(n * sizeof *m.items),
                 .stack = ek_alloc(n * sizeof *m.stack)};
    for (int i = 0; i < c->n_messages; i++) m.call_of[i] = -1;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) run_pass(&m, &passes[i]);
    ek_err err = link_results(&m);
    free(m.call_of);
    free(m.items);
    free(m.stack);
    return err;
}

void ek_pairs_fini(ek_pairs *p)
{
    free(p->calls);
    free(p->next);
    free(p->first_call);
    *p = (ek_pairs){0};
}

/* --- calls of one message that share an id --- */

static bool is_tool(const json_t *message)
{
    const char *role = json_string_value(ek_json_get(message, "role"));
    return role && !strcmp(role, "tool");
}

static const json_t *calls_of(const json_t *message)
{
    return is_tool(message) ? NULL : ek_json_get(message, "tool_calls");
}

/* Known clients use only ids of this kind, and the template compares ids by value. */
static bool has_plain_id(const json_t *call)
{
    const json_t *id = ek_json_get(call, "id");
    return json_is_object(call) && (!id || json_is_null(id) || json_is_string(id));
}

/* Whether two calls have one id, or two have none. */
static bool share_ids(const json_t *calls)
{
    const size_t n = json_array_size(calls);
    size_t n_ids = 0, n_none = 0;
    json_t *seen = json_object();
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(calls, i), *id = ek_json_get(call, "id");
        if (!has_plain_id(call)) continue;
        if (!json_is_string(id)) n_none++;
        else n_ids++, json_object_setn_new_nocheck(seen, json_string_value(id), json_string_length(id), json_true());
    }
    const bool shared = n_none > 1 || json_object_size(seen) < n_ids;
    json_decref(seen);
    return shared;
}

static void take_text(ek_buf *out, const json_t *v)
{
    if (json_is_string(v)) ek_buf_add(out, json_string_value(v), json_string_length(v));
}

/* Reads only the calls and the results. */
static void read_messages(ek_conversation *c, const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *from = json_array_get(messages, i), *calls = calls_of(from);
        ek_message *m = ek_conversation_add(c, is_tool(from) ? EK_ROLE_TOOL : EK_ROLE_ASSISTANT);
        take_text(&m->call_id, ek_json_get(from, "tool_call_id"));
        take_text(&m->name, ek_json_get(from, "name"));
        for (size_t k = 0; k < json_array_size(calls); k++) {
            ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
            take_text(&b->id, ek_json_get(json_array_get(calls, k), "id"));
            take_text(&b->name, ek_json_get(ek_json_get(json_array_get(calls, k), "function"), "name"));
        }
    }
}

static void set_id(json_t *object, const char *key, int call)
{
    char id[24];
    snprintf(id, sizeof id, "call %d", call);
    json_object_set_new_nocheck(object, key, json_string_nocheck(id));
}

/* Gives ids to the calls of message i, and to their results in any message. */
static void set_ids(json_t *messages, size_t i, const ek_pairs *p)
{
    const json_t *calls = calls_of(json_array_get(messages, i));
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const int call = p->first_call[i] + (int)k;
        if (!has_plain_id(json_array_get(calls, k))) continue;
        set_id(json_array_get(calls, k), "id", call);
        for (int m = p->calls[call].first; m >= 0; m = p->next[m])
            set_id(json_array_get(messages, (size_t)m), "tool_call_id", call);
    }
}

json_t *ek_same_ids_apart(const json_t *request)
{
    const json_t *messages = ek_json_get(request, "messages");
    json_t *apart = NULL;
    bool any = false;
    for (size_t i = 0; i < json_array_size(messages) && !any; i++)
        any = share_ids(calls_of(json_array_get(messages, i)));
    if (!any) return NULL;
    ek_conversation c = {0};
    ek_pairs p = {0};
    read_messages(&c, messages);
    if (ek_pairs_make(&p, &c) == EK_OK && p.next) {
        apart = json_deep_copy(request);
        json_t *copy = json_object_get(apart, "messages");
        for (size_t i = 0; i < json_array_size(copy); i++)
            if (share_ids(calls_of(json_array_get(copy, i)))) set_ids(copy, i, &p);
    }
    ek_pairs_fini(&p);
    ek_conversation_fini(&c);
    return apart;
}
