#include "serve/store/response_store.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

enum { BUCKETS = 1 << 18 };

void ek_stored_items_add(ek_stored_items *list, const ek_stored_item *item)
{
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 8;
        list->at = ek_realloc(list->at, (size_t)list->cap * sizeof *list->at);
    }
    list->at[list->n++] = (ek_item_node){.item = *item};
}

void ek_stored_items_fini(ek_stored_items *list)
{
    free(list->at);
    *list = (ek_stored_items){0};
}

void ek_item_keys_open(ek_item_keys *k, size_t max)
{
    k->n_slots = 16;
    while (k->n_slots < 2 * max) k->n_slots *= 2;
    k->slot = ek_alloc(k->n_slots * sizeof *k->slot);
}

bool ek_item_keys_add(ek_item_keys *k, uint64_t key)
{
    key += key == 0; /* 0: an empty slot */
    uint64_t *at = &k->slot[key & (k->n_slots - 1)];
    while (*at && *at != key) at = at + 1 < k->slot + k->n_slots ? at + 1 : k->slot;
    if (*at) return false;
    *at = key;
    return true;
}

void ek_item_keys_close(ek_item_keys *k)
{
    free(k->slot);
}

void ek_item_index_open(ek_item_index *x)
{
    x->bucket = ek_alloc(BUCKETS * sizeof(ek_item_node *));
    (void)ek_random(&x->seed, sizeof x->seed);
}

void ek_item_index_close(ek_item_index *x)
{
    free(x->bucket);
}

uint64_t ek_item_key(const ek_item_index *x, uint64_t owner, const char *id, size_t n)
{
    return ek_hash64(ek_mix64(x->seed ^ owner), id, n);
}

void ek_item_link(ek_item_index *x, ek_item_node *node)
{
    ek_item_node **at = &x->bucket[node->item.key % BUCKETS];
    node->next = *at;
    node->back = at;
    if (node->next) node->next->back = &node->next;
    *at = node;
}

void ek_item_unlink(ek_item_node *node)
{
    *node->back = node->next;
    if (node->next) node->next->back = node->back;
}

ek_item_node *ek_item_find(const ek_item_index *x, uint64_t key)
{
    ek_item_node *node = x->bucket[key % BUCKETS];
    while (node && node->item.key != key) node = node->next;
    return node;
}
