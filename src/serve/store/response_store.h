/* Responses that clients may continue or read again (the Responses API), in memory, and in files where they are to
 * survive a restart: a bounded number of a bounded size together. Who has most of them makes room, with the one that
 * was not used for longest. Each belongs to an owner (an API key's identity; 0 where there are none); to others it does
 * not exist. Any thread. */
#ifndef EK_SERVE_RESPONSE_STORE_H
#define EK_SERVE_RESPONSE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/api/dialect.h"
#include "serve/http/http_head.h"

typedef struct ek_response_store ek_response_store;

/* What ids begin with: what other APIs keep here has other ones, and is nothing to this one. */
#define EK_RESPONSES_ID "resp_"
bool ek_responses_is_id(const char *id);

enum { EK_RESPONSES_MAX = 4096 };
#define EK_RESPONSES_BYTES ((size_t)128 << 20)

/* Never fails. */
ek_response_store *ek_response_store_open(int max_entries, size_t max_bytes);
/* Keeps them in files of this folder, too, which is made where it is missing: those that lie there are read, then all
 * changes are written, at once and by a thread of its own. Before any other use. max_age: seconds since the last change
 * after which they are forgotten; 0: no limit. EBUSY: another process has the folder; EIO, ENOMEM. */
ek_err ek_response_store_keep(ek_response_store *s, const char *dir, double max_age);
/* Waits until the files are as the store is. */
void ek_response_store_flush(ek_response_store *s);
void ek_response_store_close(ek_response_store *s); /* behind such a flush; NULL is fine */

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

typedef struct ek_stored_response {
    const char *id;
    const char *previous;   /* the id of the response that it continues; NULL: none */
    ek_buf input, response; /* JSON texts: the list of the items that it was the reply to; its object */
    size_t from, n;         /* the bytes of response that are the list of its output's items */
    bool background;        /* it was made without its client */
    ek_stored_items items;  /* those of input and response that can be referred to */
} ek_stored_response;

/* Notes in items, of a response that will be put, where the item with this id stands; where.key is made here. */
void ek_response_store_note(const ek_response_store *s, uint64_t owner, ek_stored_items *items, const char *id,
                            size_t n_id, ek_stored_item where);
/* Keeps a response: the texts are taken over and left empty, the rest is copied. One larger than max_bytes is not
 * kept, nor one for which an owner would have to give up something that has less than it takes, or for which those that
 * are being read leave no room: false, and one with the same id stays. */
bool ek_response_store_put(ek_response_store *s, uint64_t owner, ek_stored_response *r);
/* The response's object, or with `input` the list of its items: *text stays until ek_response_store_release(*held), on
 * any thread, whatever happens to the response; until then its bytes count. ENOTFOUND. */
typedef struct ek_response_held ek_response_held;
ek_err ek_response_store_hold(ek_response_store *s, uint64_t owner, const char *id, bool input, ek_span *text,
                              ek_response_held **held);
void ek_response_store_release(void *held);
/* The item with this id, of a response of the owner: *out is a new reference. The store and the owner are those of
 * limits, which count the item before it is read. The same id more than once: the newest. ENOTFOUND, or what counting
 * says; *out is then NULL, and also where limits->plan leaves it out. */
ek_err ek_response_store_item(const ek_api_limits *limits, const char *id, size_t n_id, json_t **out);
/* Whether it is there; then *background, unless that is NULL: was it made in the background? */
bool ek_response_store_knows(ek_response_store *s, uint64_t owner, const char *id, bool *background);
/* Forgets it; others that continue it cannot be continued any more. ENOTFOUND. */
ek_err ek_response_store_delete(ek_response_store *s, uint64_t owner, const char *id);
/* Appends to list all items of the conversation that ends with this response, oldest first: inputs and outputs. The
 * store and the owner are those of limits, which count the items before they are read. ENOTFOUND where the response, or
 * one that it continues, is not there; or what counting says. */
ek_err ek_response_store_items(const ek_api_limits *limits, const char *id, json_t *list);

/* --- the items by their ids, for item_reference; under the lock of the store --- */

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
