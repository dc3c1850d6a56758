/* Clients' conversations (/v1/conversations). Each is a list of items in the store of responses, with the store's
 * bounds and owners. A change writes a new text of all items. Any thread. */
#ifndef EK_SERVE_CONVERSATIONS_H
#define EK_SERVE_CONVERSATIONS_H

#include "serve/http/http.h"
#include "serve/store/response_store.h"

#define EK_CONVERSATIONS_ID "conv_"
enum { EK_CONVERSATION_BYTES = 32 << 20, EK_CONVERSATION_ID = 64 }; /* bytes of all items; of an id with its NUL */
enum { EK_ITEM_AFTER = 513 };                                       /* maximum bytes of an item's id with its NUL */

/* Items to be added: JSON objects separated by commas, each with its id as the first member, and their positions in
 * text. Zero-initialise. */
typedef struct ek_new_items {
    ek_buf text;
    ek_stored_items at;
} ek_new_items;

void ek_new_items_fini(ek_new_items *items);

/* Makes a conversation of these items and takes them over. metadata: a JSON object. out: the new id. ETOOLARGE. */
ek_err ek_conversation_create(ek_response_store *s, uint64_t owner, int64_t created, const char *metadata,
                              ek_new_items *items, char out[EK_CONVERSATION_ID]);

/* All functions below: ENOTFOUND if the owner has no such conversation, or the conversation no such item. */

/* Adds items and takes them over; an item whose id is taken gets a new one. Appends them to list as one page, if there
 * is one (may be NULL). ETOOLARGE: nothing has changed. */
ek_err ek_conversation_append(ek_response_store *s, uint64_t owner, const char *id, ek_new_items *items, ek_buf *list);
ek_err ek_conversation_set_metadata(ek_response_store *s, uint64_t owner, const char *id, const char *metadata);
ek_err ek_conversation_delete(ek_response_store *s, uint64_t owner, const char *id);
ek_err ek_conversation_delete_item(ek_response_store *s, uint64_t owner, const char *id, const char *item);
/* The bytes of the conversation's items. */
ek_err ek_conversation_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n);
/* Appends the conversation's JSON object. */
ek_err ek_conversation_put(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id);
ek_err ek_conversation_put_item(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id, const char *item);

typedef struct ek_item_page {
    char after[EK_ITEM_AFTER]; /* the id of the item before the page, in the page's order; "": start at the first */
    int limit;
    bool oldest_first;
} ek_item_page;

/* The page that a request's query asks for. EINVAL: a value is wrong; r->param names it. */
ek_err ek_item_page_read(ek_api_request *r, ek_item_page *page, ek_span target);

/* The maximum bytes that ek_conversation_put_page appends. */
ek_err ek_conversation_page_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n);
ek_err ek_conversation_put_page(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id,
                                const ek_item_page *page);
/* The same of a response's input, sent from where it lies. The input of a response that was stored without ids is one
 * page. *out holds the response as by ek_response_store_hold, whose errors this has; ENOTFOUND: no such item. */
ek_err ek_response_lend_page(ek_outgoing *out, ek_response_store *s, uint64_t owner, const char *id,
                             const ek_item_page *page);

#endif
