#include "chat/loops.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "text/json/json.h"

static int add_bytes(const char *bytes, size_t n, void *hash)
{
    uint64_t *h = hash;
    *h = ek_hash64(*h, bytes, n);
    return 0;
}

/* Equal values give equal numbers, because jansson then writes pieces of equal bounds, member by member. */
static uint64_t number_of(const char *name, size_t n_name, const json_t *value, const char *text, size_t n)
{
    uint64_t h = ek_hash64(1, name, n_name);
    if (value) json_dump_callback(value, add_bytes, &h, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
    else h = ek_hash64(h, text, n);
    return h;
}

/* For arguments as text. If the text is JSON, its value counts. */
static uint64_t number_of_text(const char *name, size_t n_name, const char *text, size_t n)
{
    json_t *value;
    if (ek_json_read(&value, text, n, 0)) value = NULL;
    const uint64_t h = number_of(name, n_name, value, text, n);
    json_decref(value);
    return h;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void ek_past_calls_make(ek_past_calls *out, const ek_conversation *c)
{
    int cap = 0;
    *out = (ek_past_calls){0};
    for (int i = 0; i < c->n_messages; i++)
        for (int k = 0; k < c->messages[i].n_blocks; k++) {
            const ek_block *b = &c->messages[i].blocks[k];
            if (b->kind != EK_BLOCK_CALL || b->cut || !b->value) continue;
            if (out->n == cap) {
                cap = cap ? 2 * cap : 16;
                out->of = ek_realloc(out->of, (size_t)cap * sizeof *out->of);
            }
            const char *name = ek_buf_text(&b->name);
            out->of[out->n++] = json_is_string(b->value)
                                    ? number_of_text(name, b->name.len, json_string_value(b->value),
                                                     json_string_length(b->value))
                                    : number_of(name, b->name.len, b->value, NULL, 0);
        }
    if (out->n > 1) qsort(out->of, (size_t)out->n, sizeof *out->of, compare);
}

void ek_past_calls_fini(ek_past_calls *p)
{
    free(p->of);
    *p = (ek_past_calls){0};
}

int ek_loops_token(ek_loops *l, int32_t token)
{
    int found = 0;
    for (int p = 1; p <= EK_LOOP_PERIOD && p <= l->n; p++) {
        const bool same = l->last[(l->n - p) % EK_LOOP_PERIOD] == token;
        l->run[p] = same ? l->run[p] + 1 : 0;
        if (!found && l->run[p] + p >= EK_LOOP_TOKENS) found = p;
    }
    l->last[l->n++ % EK_LOOP_PERIOD] = token;
    return found;
}

/* The number of occurrences of h among the sorted numbers. */
static int count(const ek_past_calls *past, uint64_t h)
{
    int low = 0, high = past->n;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        if (past->of[mid] < h) low = mid + 1;
        else high = mid;
    }
    int n = 0;
    while (low + n < past->n && n < EK_LOOP_CALLS && past->of[low + n] == h) n++;
    return n;
}

bool ek_loops_call(ek_loops *l, const ek_past_calls *past, const char *name, const char *args, size_t n)
{
    const uint64_t h = number_of_text(name, strlen(name), args, n);
    l->calls[l->n_calls++ % EK_LOOP_OWN_CALLS] = h;
    int times = past ? count(past, h) : 0;
    for (int i = 0; i < l->n_calls && i < EK_LOOP_OWN_CALLS; i++) times += l->calls[i] == h;
    return times >= EK_LOOP_CALLS;
}
