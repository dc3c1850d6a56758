/* The dialect of OpenAI's Responses API from inside. Inside src/serve. */
#ifndef EK_SERVE_RESPONSES_H
#define EK_SERVE_RESPONSES_H

#include "serve/api/dialect.h"
#include "serve/api/tools.h"
#include "serve/store/conversations.h"

enum { EK_RESPONSES_QUEUED = 2 }; /* events that ek_responses_queued writes */

/* A request's data for its reply: ek_api_request.own. */
typedef struct ek_responses {
    ek_buf echo;       /* echoed members of the response: ,"instructions":…,… */
    json_t *spaces;    /* an object: the model's name of a tool to [namespace, name]; NULL without namespaces */
    json_t *shell_ids; /* an object: id of a local_shell_call item to its call_id; NULL without */
    bool encrypt;      /* include reasoning.encrypted_content */
    bool counting;     /* the request only counts prompt tokens */
    bool compacting;   /* the reply is an item of type compaction */
    bool compact;      /* the reply is a response.compaction, from /v1/responses/compact */
    const struct ek_context *context; /* the request's context_management; NULL: none */
    ek_api_summary *stands_for;       /* the summary that replaces the conversation; NULL: none */
    ek_buf users;                     /* the replaced conversation's user messages, as items separated by commas */
    bool summary;                     /* thoughts are sent as summaries, not as content */
    /* For storing: the store, or NULL; the request's items as a JSON list; the continued response. */
    ek_response_store *store;
    uint64_t owner;
    ek_buf input;
    ek_stored_items items; /* items with an id, of input and later also of the latest response */
    int n_inputs;          /* of items */
    char *previous;
    /* The conversation that the request continues and extends; NULL: none. */
    char *conversation;
    ek_response_store *conversations; /* its store; NULL: nothing is added */
    ek_new_items added;               /* the items of this request */
    struct ek_conversation_ask *ask;  /* a request about conversations themselves */
    size_t output_from, n_output;     /* the bytes of the latest response that hold its items */
    /* The stream so far. */
    int n_events, n_logprobs;
    bool background, queued; /* queued: the stream began with queued's events */
    bool begun, cut;         /* cut: the open call ends unfinished */
    ek_blocks blocks;
    ek_buf name, args, closing; /* the open call's; closing completes a cut call's arguments */
    int call, kind;
    ek_custom_input custom; /* the input that args has so far */
} ek_responses;

/* EINVAL for metadata beyond the API's limits: 16 pairs of texts, keys of 64 characters, values of 512. */
ek_err ek_responses_check_metadata(ek_api_request *r, const json_t *body);
/* Reads the field `tools` into r->tools. */
ek_err ek_responses_tools(ek_api_request *r, const json_t *body);
/* Declares an item's tools (a list) at the end of m, the last message of the conversation. */
ek_err ek_responses_bring(ek_api_request *r, ek_message *m, const json_t *tools);
/* Appends ,"name":… of a called function, and ,"namespace":… if it has one. */
void ek_responses_put_name(ek_buf *out, const ek_responses *o, const ek_buf *name);

/* Appends a list of items to the conversation. Consecutive reasoning, messages and calls of the assistant become one
 * message; calls' arguments are counted, then parsed. Errors begin with "input[I]: ": EINVAL, or one of counting. */
ek_err ek_responses_items(ek_api_request *r, const json_t *items, const ek_api_limits *limits);

/* Appends an item's id in quotes; it follows from the response's id and the item's index. */
void ek_responses_put_id(ek_buf *out, const ek_api_reply *r, const char *prefix, int index);
/* The two halves of a stream's frame; further members come between them. */
void ek_responses_frame_open(ek_buf *out, const ek_api_reply *r, const char *type);
void ek_responses_frame_close(ek_buf *out, const ek_api_reply *r);
/* Opens a frame about the open item, up to its "output_index"; prefix: of its id. */
void ek_responses_item_open(ek_buf *out, const ek_api_reply *r, const char *type, const char *prefix);

/* A call as an item of its tool's type, and its frames in a stream: start, a piece of the arguments, end. closing
 * completes the arguments of a cut call; else it is empty. */
typedef struct ek_responses_call {
    int index, call; /* index: the item's; call: ek_reply_event.call */
    const ek_buf *name, *args, *closing;
} ek_responses_call;
void ek_responses_put_call(ek_buf *out, const ek_api_reply *r, const ek_responses_call *c);
void ek_responses_open_call(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e);
void ek_responses_call_piece(ek_buf *out, const ek_api_reply *r, const char *s, size_t n);
void ek_responses_close_call(ek_buf *out, const ek_api_reply *r);

/* Replaces references in the list *items by the items that they name; *items may become a new list. earlier: the items
 * before them; a reference to an earlier item is dropped. Errors begin with "input[I]: ": EINVAL, ENOTFOUND with the
 * id, or one of counting. */
ek_err ek_responses_resolve(json_t **items, const json_t *earlier, const ek_api_limits *limits);
/* Writes own->input and the positions of the items that can be referred to. */
void ek_responses_keep_input(ek_responses *o, const json_t *items);
/* Appends the user's messages in a list of items to own->users. */
void ek_responses_keep_users(ek_responses *o, const json_t *items);
/* Appends a list of items in the form that conversations keep: normalised, with ids that are unique among seen and the
 * list. seen: an object with the present ids; those of the items are added. Counts the needed memory. */
ek_err ek_responses_add_items(ek_new_items *out, const json_t *items, json_t *seen, const ek_api_limits *limits);
/* Adds the ids in a list of items to seen. */
void ek_responses_see(json_t *seen, const json_t *items);
/* Adds the items of request and reply to the request's conversation. response is the latest one that was put. */
void ek_responses_extend(ek_responses *o, const ek_buf *response);
void ek_conversation_ask_free(struct ek_conversation_ask *a); /* NULL is allowed */
/* Makes r's own. */
ek_responses *ek_responses_open(ek_api_request *r);
/* Appends an item in its stored form: id is its first member, and members that are unknown here and in the API are
 * left out. */
void ek_responses_put_kept(ek_buf *out, const json_t *item, const char *id);

/* Appends a response with this status and keeps its items' positions. error: the sentence of a failed response, else
 * NULL. */
void ek_responses_put(ek_buf *out, const ek_api_reply *r, const char *status, const char *error);
/* Keeps the latest response in o's store, if there is one; takes over response and leaves it empty. */
void ek_responses_keep(const ek_api_reply *r, ek_buf *response);

/* As in ek_dialect. */
ek_err ek_responses_read(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
ek_err ek_responses_read_compact(ek_api_request *r, const json_t *body, const ek_api_limits *limits);
void ek_responses_queued(ek_buf *out, const ek_api_reply *r, bool events);
void ek_responses_cancelled(ek_buf *out, const ek_api_reply *r);

#endif
