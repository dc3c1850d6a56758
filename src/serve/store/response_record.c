#include "serve/store/response_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash/hash.h"
#include "serve/store/conversations.h"
#include "text/json/json.h"

typedef struct head {
    char magic[8];
    uint8_t sum[32];
    uint64_t owner, background;
    double changed;
    uint64_t n_id, n_previous, n_input, n_response, n_items; /* n_previous: NONE without */
    uint64_t from, n;                                        /* of ek_stored_response */
} head;

typedef struct place {
    uint64_t from, n, output;
} place;

static const char magic[8] = {'E', 'K', 'S', 'T', 'O', 'R', 'E', '1'};
#define NONE   UINT64_MAX
#define SUMMED offsetof(head, owner)

static const double MAX_TIME = 1e12; /* seconds since 1970 */

void ek_response_record_name(char out[EK_RESPONSE_RECORD_NAME], uint64_t owner, const char *id)
{
    char hex[65];
    ek_sha256_state s;
    ek_sha256_init(&s);
    ek_sha256_add(&s, &owner, sizeof owner);
    ek_sha256_add(&s, id, strlen(id));
    ek_sha256_end(&s, hex);
    memcpy(out, hex, EK_RESPONSE_RECORD_NAME - 1);
    out[EK_RESPONSE_RECORD_NAME - 1] = '\0';
}

/* --- writing --- */

typedef struct span {
    const void *data;
    size_t n;
} span;

static place *places_of(const ek_stored_items *items)
{
    place *at = ek_alloc((size_t)items->n * sizeof *at + 1);
    for (int i = 0; i < items->n; i++) {
        const ek_stored_item *item = &items->at[i].item;
        at[i] = (place){item->from, item->n, item->output};
    }
    return at;
}

ek_err ek_response_record_write(int fd, const ek_response_entry *e)
{
    head h = {.owner = e->owner_id,
              .background = e->background,
              .changed = e->changed,
              .n_id = strlen(e->id),
              .n_previous = e->previous ? strlen(e->previous) : NONE,
              .n_input = e->input.len,
              .n_response = e->response.len,
              .n_items = (uint64_t)e->items.n,
              .from = e->from,
              .n = e->n};
    place *at = places_of(&e->items);
    const span parts[] = {{(const char *)&h + SUMMED, sizeof h - SUMMED},
                          {e->id, h.n_id},
                          {e->previous, e->previous ? h.n_previous : 0},
                          {e->input.data, e->input.len},
                          {e->response.data, e->response.len},
                          {at, (size_t)e->items.n * sizeof *at}};
    enum { PARTS = sizeof parts / sizeof *parts };
    ek_sha256_state s;
    ek_sha256_init(&s);
    for (int i = 0; i < PARTS; i++)
        if (parts[i].n > 0) ek_sha256_add(&s, parts[i].data, parts[i].n);
    memcpy(h.magic, magic, sizeof magic);
    ek_sha256_end_bytes(&s, h.sum);
    ek_err err = ek_fd_write(fd, &h, SUMMED);
    for (int i = 0; i < PARTS && !err; i++) err = ek_fd_write(fd, parts[i].data, parts[i].n);
    free(at);
    return err;
}

/* --- reading --- */

static ek_err damaged(const char *what)
{
    return ek_fail(EK_EFORMAT, "damaged: %s", what);
}

/* Each length must fit the remaining bytes, so that no sum can overflow. The time must be a number, because ages are
 * compared. */
static bool fits(const head *h, size_t left)
{
    const uint64_t n[] = {h->n_id, h->n_previous == NONE ? 0 : h->n_previous, h->n_input, h->n_response};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        if (n[i] > left) return false;
        left -= n[i];
    }
    if (!(h->changed >= 0 && h->changed < MAX_TIME)) return false;
    return h->n_items <= left / sizeof(place) && left == h->n_items * sizeof(place) && h->from <= h->n_response &&
           h->n <= h->n_response - h->from;
}

static bool is_json(const char *text, size_t n, json_type type)
{
    json_t *v;
    const bool is = !ek_json_read(&v, text, n, 0) && json_typeof(v) == type;
    json_decref(v);
    return is;
}

static const char *take(const char **at, size_t n)
{
    const char *p = *at;
    *at += n;
    return p;
}

static bool is_conversation(const char *id)
{
    return !strncmp(id, EK_CONVERSATIONS_ID, sizeof EK_CONVERSATIONS_ID - 1);
}

/* Adds an item: an object that begins with its id, where conversations look for it. */
static ek_err add_item(ek_response_record *out, const ek_response_store *s, const place *p)
{
    static const char head_of[] = "{\"id\":\"";
    const ek_buf *text = p->output ? &out->r.response : &out->r.input;
    json_t *v;
    size_t n = 0;
    if (p->from > text->len || p->n > text->len - p->from) return damaged("an item beyond its text");
    const bool first = p->n >= sizeof head_of && !memcmp(text->data + p->from, head_of, sizeof head_of - 1);
    if (!first && is_conversation(out->id)) return damaged("an item without an id in front");
    EK_TRY(ek_json_read(&v, text->data + p->from, p->n, 0));
    const char *id = ek_json_get_text(v, "id", &n);
    if (id)
        ek_response_store_note(s, out->owner, &out->r.items, id, n,
                               (ek_stored_item){.from = p->from, .n = p->n, .output = p->output != 0});
    json_decref(v);
    return id ? EK_OK : damaged("an item without an id");
}

static ek_err read_items(ek_response_record *out, const ek_response_store *s, const char *at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        place p;
        memcpy(&p, at + i * sizeof p, sizeof p);
        EK_TRY(add_item(out, s, &p));
    }
    return EK_OK;
}

static char *copy(const char *text, size_t n)
{
    char *out = ek_alloc(n + 1);
    memcpy(out, text, n);
    return out;
}

static ek_err read_texts(ek_response_record *out, ek_response_store *s, const char *name, const head *h, const char *at)
{
    char own[EK_RESPONSE_RECORD_NAME];
    out->id = copy(take(&at, h->n_id), h->n_id);
    if (h->n_previous != NONE) out->previous = copy(take(&at, h->n_previous), h->n_previous);
    ek_buf_add(&out->r.input, take(&at, h->n_input), h->n_input);
    ek_buf_add(&out->r.response, take(&at, h->n_response), h->n_response);
    out->r.id = out->id, out->r.previous = out->previous;
    out->r.from = h->from, out->r.n = h->n;
    out->r.background = h->background != 0;
    out->owner = h->owner, out->changed = h->changed;
    ek_response_record_name(own, out->owner, out->id);
    if (strcmp(own, name) != 0) return damaged("it is another one's file");
    const ek_buf *r = &out->r.response;
    const bool whole = is_json(out->r.input.data, out->r.input.len, JSON_ARRAY) && r->len > 0 &&
                       (h->n == 0 || is_json(r->data + h->from, h->n, JSON_ARRAY));
    if (!whole || !(is_json(r->data, r->len, JSON_OBJECT) || is_json(r->data, r->len, JSON_ARRAY)))
        return damaged("its texts are not JSON");
    return read_items(out, s, at, h->n_items);
}

ek_err ek_response_record_read(ek_response_record *out, ek_response_store *s, const char *name, const void *bytes,
                               size_t n)
{
    head h;
    uint8_t sum[32];
    *out = (ek_response_record){0};
    if (n < sizeof h) return damaged("it is too short");
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic - 1) != 0) return damaged("it does not begin as a record does");
    if (h.magic[7] != magic[7]) return ek_fail(EK_EUNSUPPORTED, "of another version of evenkeel");
    ek_sha256(sum, (const char *)bytes + SUMMED, n - SUMMED);
    if (memcmp(sum, h.sum, sizeof sum) != 0) return damaged("its checksum is another");
    if (!fits(&h, n - sizeof h)) return damaged("its lengths do not fit, or its time is none");
    const ek_err err = read_texts(out, s, name, &h, (const char *)bytes + sizeof h);
    if (err) ek_response_record_fini(out);
    return err;
}

void ek_response_record_fini(ek_response_record *r)
{
    ek_buf_fini(&r->r.input);
    ek_buf_fini(&r->r.response);
    ek_stored_items_fini(&r->r.items);
    free(r->id);
    free(r->previous);
    *r = (ek_response_record){0};
}
