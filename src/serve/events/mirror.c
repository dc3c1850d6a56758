#include "serve/events/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

typedef struct ek_mirror_entry {
    ek_held_page page;
    int times; /* number of reports that it is stored; 0: the entry is unused */
    int before, behind, same;
} entry;

static int *bucket_of(const ek_mirror *m, uint64_t hash)
{
    return &m->bucket[ek_mix64(hash) & (m->n_buckets - 1)];
}

static int find(const ek_mirror *m, uint64_t hash)
{
    if (m->n_buckets == 0) return 0;
    int i = *bucket_of(m, hash);
    while (i && m->entry[i - 1].page.hash != hash) i = m->entry[i - 1].same;
    return i;
}

static void grow(ek_mirror *m)
{
    int cap = m->cap ? 2 * m->cap : 64;
    m->entry = ek_realloc(m->entry, sizeof *m->entry * (size_t)cap);
    for (int i = cap; i > m->cap; i--) {
        m->entry[i - 1].times = 0;
        m->entry[i - 1].behind = m->unused;
        m->unused = i;
    }
    m->cap = cap;
    m->n_buckets = 2 * (unsigned)cap;
    free(m->bucket);
    m->bucket = ek_alloc(sizeof *m->bucket * m->n_buckets);
    for (int i = 1; i <= cap; i++) {
        entry *e = &m->entry[i - 1];
        if (e->times == 0) continue;
        int *b = bucket_of(m, e->page.hash);
        e->same = *b;
        *b = i;
    }
}

static void add(ek_mirror *m, const ek_held_page *p)
{
    int i = find(m, p->hash);
    if (i) {
        m->entry[i - 1].times++;
        ek_salt_name_release(p->salt);
        return;
    }
    if (!m->unused) grow(m);
    i = m->unused;
    entry *e = &m->entry[i - 1];
    m->unused = e->behind;
    *e = (entry){.page = *p, .times = 1, .before = m->last};
    if (m->last) m->entry[m->last - 1].behind = i;
    else m->first = i;
    m->last = i;
    int *b = bucket_of(m, p->hash);
    e->same = *b;
    *b = i;
    m->n++;
}

static void remove_one(ek_mirror *m, uint64_t hash)
{
    int i = find(m, hash);
    if (!i) return;
    entry *e = &m->entry[i - 1];
    if (--e->times > 0) return;
    int *b = bucket_of(m, hash);
    while (*b != i) b = &m->entry[*b - 1].same;
    *b = e->same;
    if (e->before) m->entry[e->before - 1].behind = e->behind;
    else m->first = e->behind;
    if (e->behind) m->entry[e->behind - 1].before = e->before;
    else m->last = e->before;
    ek_salt_name_release(e->page.salt);
    e->behind = m->unused;
    m->unused = i;
    m->n--;
}

void ek_mirror_apply(ek_mirror *m, const ek_held_change *c)
{
    if (c->came) add(m, &c->page);
    else remove_one(m, c->page.hash);
}

int ek_mirror_list(const ek_mirror *m, int *at, ek_held_change *out, int max)
{
    int n = 0;
    for (int i = *at ? m->entry[*at - 1].behind : m->first; i && n < max; i = m->entry[i - 1].behind) {
        out[n++] = (ek_held_change){.came = true, .page = m->entry[i - 1].page};
        *at = i;
    }
    return n;
}

void ek_mirror_fini(ek_mirror *m)
{
    for (int i = m->first; i; i = m->entry[i - 1].behind) ek_salt_name_release(m->entry[i - 1].page.salt);
    free(m->entry);
    free(m->bucket);
    *m = (ek_mirror){0};
}
