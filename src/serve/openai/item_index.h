/* The items of stored responses by their ids, for item_reference. Part of response_store.c, whose lock it needs. */
#ifndef EK_SERVE_ITEM_INDEX_H
#define EK_SERVE_ITEM_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where an item stands in a JSON text. */
typedef struct ek_stored_item {
    uint64_t key; /* of its owner and id: ek_item_key */
    size_t from, n;
    bool output; /* in the response, else in its input */
} ek_stored_item;

typedef struct ek_item_node {
    struct ek_item_node *next, **back; /* in its bucket */
    void *entry;                       /* that holds the item */
    ek_stored_item item;
} ek_item_node;

/* Nodes before they are linked: made where the items are written, so that little is left to do where they are kept.
 * Zero-initialise; ek_stored_items_fini when done. */
typedef struct ek_stored_items {
    ek_item_node *at;
    int n, cap;
} ek_stored_items;

void ek_stored_items_add(ek_stored_items *list, const ek_stored_item *item);
void ek_stored_items_fini(ek_stored_items *list);

/* A fixed number of buckets: a store that is full of small items has some eight in each. The memory of those that were
 * never used is not touched. */
typedef struct ek_item_index {
    ek_item_node **bucket;
    uint64_t seed; /* secret, so that no client can choose ids that share a bucket */
} ek_item_index;

void ek_item_index_open(ek_item_index *x);
void ek_item_index_close(ek_item_index *x);
/* 64 bits: who finds an item compares its id too. Needs no lock. */
uint64_t ek_item_key(const ek_item_index *x, uint64_t owner, const char *id, size_t n);
/* Before older ones of the same key. The node is borrowed until ek_item_unlink. Constant time, as all here. */
void ek_item_link(ek_item_index *x, ek_item_node *node);
void ek_item_unlink(ek_item_node *node);
/* The newest of this key; NULL. */
ek_item_node *ek_item_find(const ek_item_index *x, uint64_t key);

#endif
