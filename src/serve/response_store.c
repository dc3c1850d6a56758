#include "serve/response_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/json.h"

typedef struct entry {
    struct entry *newer, *older;
    uint64_t owner;
    char *id, *previous;
    ek_buf input, response;
} entry;

struct ek_response_store {
    pthread_mutex_t lock;
    entry *newest, *oldest; /* by use */
    int n, max_entries;
    size_t bytes, max_bytes;
};

ek_response_store *ek_response_store_open(int max_entries, size_t max_bytes)
{
    ek_response_store *s = ek_alloc(sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->max_entries = max_entries;
    s->max_bytes = max_bytes;
    return s;
}

static size_t size_of(const entry *e)
{
    return sizeof *e + e->input.len + e->response.len + strlen(e->id) + (e->previous ? strlen(e->previous) : 0);
}

static void unlink_entry(ek_response_store *s, entry *e)
{
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(ek_response_store *s, entry *e)
{
    e->older = s->newest;
    if (e->older) e->older->newer = e;
    else s->oldest = e;
    s->newest = e;
}

static void free_entry(entry *e)
{
    free(e->id);
    free(e->previous);
    ek_buf_fini(&e->input);
    ek_buf_fini(&e->response);
    free(e);
}

static void forget(ek_response_store *s, entry *e)
{
    unlink_entry(s, e);
    s->n--;
    s->bytes -= size_of(e);
    free_entry(e);
}

void ek_response_store_close(ek_response_store *s)
{
    if (!s) return;
    while (s->oldest) forget(s, s->oldest);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void ek_response_store_put(ek_response_store *s, uint64_t owner, const char *id, const char *previous,
                           const ek_buf *input, const ek_buf *response)
{
    entry *e = ek_alloc(sizeof *e);
    e->owner = owner;
    e->id = ek_strdup(id);
    if (previous) e->previous = ek_strdup(previous);
    ek_buf_add(&e->input, ek_buf_text(input), input->len);
    ek_buf_add(&e->response, ek_buf_text(response), response->len);
    size_t size = size_of(e);
    if (size > s->max_bytes || s->max_entries < 1) {
        free_entry(e);
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (s->n >= s->max_entries || s->bytes + size > s->max_bytes) forget(s, s->oldest);
    link_newest(s, e);
    s->n++;
    s->bytes += size;
    pthread_mutex_unlock(&s->lock);
}

/* Marks what it finds as used. */
static entry *find(ek_response_store *s, uint64_t owner, const char *id)
{
    entry *e = s->newest;
    while (e && (e->owner != owner || strcmp(e->id, id))) e = e->older;
    if (!e) return NULL;
    unlink_entry(s, e);
    link_newest(s, e);
    return e;
}

static ek_err not_found(const char *id)
{
    return ek_fail(EK_ENOTFOUND,
                   "there is no response %.80s here: it was not stored, was deleted, or made room for others", id);
}

ek_err ek_response_store_get(ek_response_store *s, uint64_t owner, const char *id, bool input, ek_buf *out)
{
    pthread_mutex_lock(&s->lock);
    const entry *e = find(s, owner, id);
    const ek_buf *from = !e ? NULL : input ? &e->input : &e->response;
    if (from) ek_buf_add(out, ek_buf_text(from), from->len);
    pthread_mutex_unlock(&s->lock);
    return from ? EK_OK : not_found(id);
}

ek_err ek_response_store_delete(ek_response_store *s, uint64_t owner, const char *id)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, owner, id);
    if (e) forget(s, e);
    pthread_mutex_unlock(&s->lock);
    return e ? EK_OK : not_found(id);
}

/* --- conversations --- */

/* Copies of the texts of a conversation, newest first, so that they are parsed outside of the lock. */
typedef struct chain {
    ek_buf *texts; /* response, input, response, input, … */
    int n, cap;
} chain;

static void add_text(chain *c, const ek_buf *text)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 16;
        c->texts = ek_realloc(c->texts, (size_t)c->cap * sizeof *c->texts);
    }
    c->texts[c->n] = (ek_buf){0};
    ek_buf_add(&c->texts[c->n++], ek_buf_text(text), text->len);
}

/* From the newest to the oldest: older ones become the most recently used, so that a conversation loses its end before
 * it loses its beginning. A conversation of more than max_entries cannot be: ids come before those that continue them.
 */
static ek_err copy_chain(ek_response_store *s, uint64_t owner, const char *id, chain *c)
{
    pthread_mutex_lock(&s->lock);
    const entry *e = find(s, owner, id);
    ek_err err = e ? EK_OK : not_found(id);
    for (int steps = 0; e && steps <= s->max_entries; steps++) {
        add_text(c, &e->response);
        add_text(c, &e->input);
        if (!e->previous) break;
        const char *previous = e->previous;
        e = find(s, owner, previous);
        if (!e) err = not_found(previous);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

static void append_items(json_t *list, const ek_buf *text, bool response)
{
    json_t *v;
    EK_ASSERT(ek_json_read(&v, ek_buf_text(text), text->len, 0) == EK_OK); /* our own writing */
    json_array_extend(list, response ? json_object_get(v, "output") : v);
    json_decref(v);
}

ek_err ek_response_store_items(ek_response_store *s, uint64_t owner, const char *id, json_t *list)
{
    chain c = {0};
    ek_err err = copy_chain(s, owner, id, &c);
    for (int i = c.n - 1; i >= 0; i--) {
        if (!err) append_items(list, &c.texts[i], i % 2 == 0);
        ek_buf_fini(&c.texts[i]);
    }
    free(c.texts);
    return err;
}
