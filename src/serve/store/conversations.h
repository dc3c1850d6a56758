/* Conversations of clients (/v1/conversations): a list of items each, in the store of responses, by whose bounds and
 * owners they are kept. A change makes a new text of all items. Any thread. */
#ifndef EK_SERVE_CONVERSATIONS_H
#define EK_SERVE_CONVERSATIONS_H

#include "serve/store/response_store.h"

#define EK_CONVERSATIONS_ID "conv_"
enum { EK_CONVERSATION_BYTES = 32 << 20, EK_CONVERSATION_ID = 64 }; /* of all its items; with NUL */

/* Items that are about to be added: JSON objects with commas between, each of which begins with its id, and where in
 * text they stand. Zero-initialise. */
typedef struct ek_new_items {
    ek_buf text;
    ek_stored_items at;
} ek_new_items;

void ek_new_items_fini(ek_new_items *items);
/* Appends a page of n items in text: the first, and every step-th from there. more: behind them there are others. */
void ek_items_put_page(ek_buf *out, const char *text, const ek_stored_items *items, int first, int n, int step,
                       bool more);

/* A conversation with these items, which are taken over. metadata: an object of JSON. out: its id. ETOOLARGE. */
ek_err ek_conversation_create(ek_response_store *s, uint64_t owner, int64_t created, const char *metadata,
                              ek_new_items *items, char out[EK_CONVERSATION_ID]);

/* From here on ENOTFOUND: the owner has no such conversation, or the conversation no such item. */

/* Adds items, which are taken over. ETOOLARGE: nothing has changed. */
ek_err ek_conversation_append(ek_response_store *s, uint64_t owner, const char *id, ek_new_items *items);
ek_err ek_conversation_set_metadata(ek_response_store *s, uint64_t owner, const char *id, const char *metadata);
ek_err ek_conversation_delete(ek_response_store *s, uint64_t owner, const char *id);
ek_err ek_conversation_delete_item(ek_response_store *s, uint64_t owner, const char *id, const char *item);
/* The bytes of its items. */
ek_err ek_conversation_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n);
/* Appends its object. */
ek_err ek_conversation_put(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id);
ek_err ek_conversation_put_item(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id, const char *item);

typedef struct ek_conversation_page {
    const char *after; /* an item: those behind it, in the page's order; "": from the first */
    int limit;
    bool oldest_first;
} ek_conversation_page;

/* The bytes that putting it takes, at most. */
ek_err ek_conversation_page_size(ek_response_store *s, uint64_t owner, const char *id, size_t *n);
ek_err ek_conversation_put_page(ek_buf *out, ek_response_store *s, uint64_t owner, const char *id,
                                const ek_conversation_page *page);

#endif
