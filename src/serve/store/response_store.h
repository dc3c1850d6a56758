/* Responses that clients may continue or read again (the Responses API). They lie in memory, and in files if they have
 * to survive a restart. Their number and their bytes are bounded; when room is short, the owner with the most loses the
 * least recently used one. An owner is an API key's identity, or 0 without keys; other owners cannot find a response.
 * Any thread. */
#ifndef EK_SERVE_RESPONSE_STORE_H
#define EK_SERVE_RESPONSE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/api/dialect.h"
#include "serve/http/http_head.h"

typedef struct ek_response_store ek_response_store;

/* The prefix of responses' ids. Objects of other APIs in this store have other prefixes, and this API ignores them. */
#define EK_RESPONSES_ID "resp_"
bool ek_responses_is_id(const char *id);

enum { EK_RESPONSES_MAX = 4096 };
#define EK_RESPONSES_BYTES ((size_t)128 << 20)
enum { EK_RESPONSES_READ_QUOTA = 2 }; /* slow readers of one owner hold at most 1/2 of max_bytes */

/* Never fails. */
ek_response_store *ek_response_store_open(int max_entries, size_t max_bytes);
/* Also keeps responses in files of this folder, which is made if it is missing. Reads the files that are there; from
 * then on a thread writes each change at once. Call it before any other use. max_age: seconds since the last change of
 * a conversation after which it is forgotten as a whole; 0: no limit. EBUSY: another process uses the folder; EINVAL:
 * another user owns it, or others may write into it; EIO, ENOMEM. */
ek_err ek_response_store_keep(ek_response_store *s, const char *dir, double max_age);
/* Waits until the files agree with the store. For tests. */
void ek_response_store_flush(ek_response_store *s);
void ek_response_store_close(ek_response_store *s); /* writes changes that are not in files yet; NULL is allowed */

/* The position of an item in a JSON text. */
typedef struct ek_stored_item {
    uint64_t key; /* of owner and id: ek_item_key */
    size_t from, n;
    bool output; /* in the response's text, else in its input's */
} ek_stored_item;

typedef struct ek_item_node {
    struct ek_item_node *next, **back; /* in its bucket */
    void *entry;                       /* the entry that holds the item */
    ek_stored_item item;
} ek_item_node;

/* Nodes that are not linked yet. They are made while the items are written, so that keeping a response takes little
 * time under the lock. Zero-initialise; ek_stored_items_fini when done. */
typedef struct ek_stored_items {
    ek_item_node *at;
    int n, cap;
} ek_stored_items;

void ek_stored_items_add(ek_stored_items *list, const ek_stored_item *item);
void ek_stored_items_fini(ek_stored_items *list);

typedef struct ek_stored_response {
    const char *id;
    const char *previous;   /* the id of the continued response; NULL: none */
    ek_buf input, response; /* JSON texts: the list of input items; the response's object */
    size_t from, n;         /* the bytes of response that hold the list of output items */
    bool background;        /* it was made without its client */
    ek_stored_items items;  /* items of both texts that references can name */
} ek_stored_response;

/* Adds the position of the item with this id to items, for a response that will be put; sets where.key. */
void ek_response_store_note(const ek_response_store *s, uint64_t owner, ek_stored_items *items, const char *id,
                            size_t n_id, ek_stored_item where);
/* The key of an item with this id. */
uint64_t ek_response_store_key(const ek_response_store *s, uint64_t owner, const char *id, size_t n_id);

/* The keys of a list's items, so that no id occurs twice in it: a page that begins after an id would otherwise repeat
 * itself. max: the largest number of keys. */
typedef struct ek_item_keys {
    uint64_t *slot;
    size_t n_slots;
} ek_item_keys;

void ek_item_keys_open(ek_item_keys *k, size_t max);
bool ek_item_keys_add(ek_item_keys *k, uint64_t key); /* false: it is there already */
void ek_item_keys_close(ek_item_keys *k);
/* Keeps a response. The texts are taken over and left empty; the rest is copied. False, and an older response with the
 * same id stays: the response is larger than max_bytes; room for it would cost an owner with fewer bytes than it takes;
 * or held responses leave no room. */
bool ek_response_store_put(ek_response_store *s, uint64_t owner, ek_stored_response *r);
/* The response's object, or with `input` the list of its input items. *text stays valid until
 * ek_response_store_release(*held), on any thread, even if the response is deleted; until then its bytes count.
 * ENOTFOUND; EBUSY: with this response, the owner's readers would hold more than their quota of max_bytes. One response
 * of any size can always be read. */
typedef struct ek_response_held ek_response_held;
ek_err ek_response_store_hold(ek_response_store *s, uint64_t owner, const char *id, bool input, ek_span *text,
                              ek_response_held **held);
void ek_response_store_release(void *held);
/* The newest item with this id among the owner's responses; *out is a new reference. limits has the store and the
 * owner, and counts the item before it is read. ENOTFOUND, or an error of counting. *out is NULL after an error, and if
 * limits->plan leaves the item out. */
ek_err ek_response_store_item(const ek_api_limits *limits, const char *id, size_t n_id, json_t **out);
/* Whether the response exists; if so, *background (may be NULL) says whether it was made in the background. */
bool ek_response_store_knows(ek_response_store *s, uint64_t owner, const char *id, bool *background);
/* Forgets a response. Responses that continue it can no longer be continued. ENOTFOUND. */
ek_err ek_response_store_delete(ek_response_store *s, uint64_t owner, const char *id);
/* Appends all items of the conversation that ends with this response, inputs and outputs, oldest first. limits has the
 * store and the owner, and counts the items before they are read. ENOTFOUND if the response, or one that it continues,
 * is missing; or an error of counting. */
ek_err ek_response_store_items(const ek_api_limits *limits, const char *id, json_t *list);

/* --- the items by their ids, for item_reference; under the lock of the store --- */

/* A fixed number of buckets: a store full of small items has about eight items in each. Memory of unused buckets is
 * never touched. */
typedef struct ek_item_index {
    ek_item_node **bucket;
    uint64_t seed; /* secret, so that no client can choose ids that share a bucket */
} ek_item_index;

void ek_item_index_open(ek_item_index *x);
void ek_item_index_close(ek_item_index *x);
/* A hash of 64 bits, so the finder of an item also compares its id. Needs no lock. */
uint64_t ek_item_key(const ek_item_index *x, uint64_t owner, const char *id, size_t n);
/* Links the node before older ones of the same key and borrows it until ek_item_unlink. All functions here take
 * constant time. */
void ek_item_link(ek_item_index *x, ek_item_node *node);
void ek_item_unlink(ek_item_node *node);

#endif
