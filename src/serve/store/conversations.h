/* Clients' conversations (/v1/conversations). Each is a list of items in the store of responses, with the store's
 * bounds and owners. A change writes a new text of all items. Any thread. */
#ifndef EK_SERVE_CONVERSATIONS_H
#define EK_SERVE_CONVERSATIONS_H

#include "serve/store/response_store.h"

#define EK_CONVERSATIONS_ID "conv_"
enum { EK_CONVERSATION_BYTES = 32 << 20, EK_CONVERSATION_ID = 64 }; /* bytes of all items; of an id with its NUL */

/* Items to be added: JSON objects separated by commas, each with its id as the first member, and their positions in
 * text. Zero-initialise. */
typedef struct ek_new_items {
    ek_buf text;
    ek_stored_items at;
} ek_new_items;

void ek_new_items_fini(ek_new_items *items);
/* Appends a page of n items of text: item `first` and every step-th after it. more: the page says that others follow.
 */
void ek_items_put_page(ek_buf *out, const char *text, const ek_stored_items *items, int first, int n, int step,
                       bool more);

/* Makes a conversation of these items and takes them over. metadata: a JSON object. out: the new id. ETOOLARGE. */
ek_err ek_conversation_create(ek_response_store *s, uint64_t owner, int64_t created, const char *metadata,
                              ek_new_items *items, char out[EK_CONVERSATION_ID]);

/* All functions below: ENOTFOUND if the owner has no such conversation, or the conversation no such item. */

/* Adds items and takes them over. ETOOLARGE: nothing has changed. */
ek_err ek_conversation_append(ek_response_store *s, uint64_t owner, const char *id, ek_new_items *items);
ek_err ek_conversation_set_metadata(ek_response_store *s, uint64_t owner, const char *id, const char *metadata);
ek_err ek_conversation_delete(ek_response_store *s, uint64_t owner, const char *id);
ek_err ek_conversation_delete_item(ek_response_store *s, uint64_t owner, const char *id, const char *item);
/* The bytes of the conversation's items. */
ek_err ek_conversation_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n);
/* Appends the conversation's JSON object. */
ek_err ek_conversation_put(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id);
ek_err ek_conversation_put_item(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id, const char *item);

typedef struct ek_conversation_page {
    const char *after; /* the id of the item before the page, in the page's order; "": start at the first */
    int limit;
    bool oldest_first;
} ek_conversation_page;

/* The maximum bytes that ek_conversation_put_page appends. */
ek_err ek_conversation_page_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n);
ek_err ek_conversation_put_page(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id,
                                const ek_conversation_page *page);

#endif
