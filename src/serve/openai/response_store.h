/* Responses that clients may continue or read again (the Responses API), in memory: a bounded number of a bounded
 * size together. Who has most of them makes room, with the one that was not used for longest. Each belongs to an owner
 * (an API key's identity; 0 where there are none); to others it does not exist. Any thread. */
#ifndef EK_SERVE_RESPONSE_STORE_H
#define EK_SERVE_RESPONSE_STORE_H

#include "serve/api/dialect.h"
#include "serve/http/http_head.h"
#include "serve/openai/item_index.h"

typedef struct ek_response_store ek_response_store;

enum { EK_RESPONSES_MAX = 4096 };
#define EK_RESPONSES_BYTES ((size_t)128 << 20)

/* Never fails. */
ek_response_store *ek_response_store_open(int max_entries, size_t max_bytes);
void ek_response_store_close(ek_response_store *s); /* NULL is fine */

typedef struct ek_stored_response {
    const char *id;
    const char *previous;   /* the id of the response that it continues; NULL: none */
    ek_buf input, response; /* JSON texts: the list of the items that it was the reply to; its object */
    size_t from, n;         /* the bytes of response that are the list of its output's items */
    ek_stored_items items;  /* those of input and response that can be referred to */
} ek_stored_response;

/* Notes in items, of a response that will be put, where the item with this id stands; where.key is made here. */
void ek_response_store_note(const ek_response_store *s, uint64_t owner, ek_stored_items *items, const char *id,
                            size_t n_id, ek_stored_item where);
/* Keeps a response: the texts are taken over and left empty, the rest is copied. One larger than max_bytes is not
 * kept, nor one for which an owner would have to give up something that has less than it takes, or for which those that
 * are being read leave no room. */
void ek_response_store_put(ek_response_store *s, uint64_t owner, ek_stored_response *r);
/* The response's object, or with `input` the list of its items: *text stays until ek_response_store_release(*held), on
 * any thread, whatever happens to the response; until then its bytes count. ENOTFOUND. */
typedef struct ek_response_held ek_response_held;
ek_err ek_response_store_hold(ek_response_store *s, uint64_t owner, const char *id, bool input, ek_span *text,
                              ek_response_held **held);
void ek_response_store_release(void *held);
/* The item with this id, of a response of the owner: *out is a new reference. The store and the owner are those of
 * limits, which count the item before it is read. The same id more than once: the newest. ENOTFOUND, or what counting
 * says; *out is then NULL. */
ek_err ek_response_store_item(const ek_api_limits *limits, const char *id, size_t n_id, json_t **out);
/* Forgets it; others that continue it cannot be continued any more. ENOTFOUND. */
ek_err ek_response_store_delete(ek_response_store *s, uint64_t owner, const char *id);
/* Appends to list all items of the conversation that ends with this response, oldest first: inputs and outputs. The
 * store and the owner are those of limits, which count the items before they are read. ENOTFOUND where the response, or
 * one that it continues, is not there; or what counting says. */
ek_err ek_response_store_items(const ek_api_limits *limits, const char *id, json_t *list);

#endif
