/* What the files of the dialect of OpenAI's Responses API share. Inside src/serve. */
#ifndef EK_SERVE_RESPONSES_H
#define EK_SERVE_RESPONSES_H

#include "serve/api/blocks.h"
#include "serve/api/tools.h"
#include "serve/store/conversations.h"

enum { EK_RESPONSES_QUEUED = 2 }; /* events that ek_responses_queued writes */

/* Of a request, for its reply: ek_api_request.own. */
typedef struct ek_responses {
    ek_buf echo;       /* members of the response that repeat the request: ,"instructions":…,… */
    json_t *spaces;    /* an object: [namespace, name] by the name that the model knows; NULL without namespaces */
    json_t *shell_ids; /* an object: call_id by the id of the items of type local_shell_call; NULL without */
    bool encrypt;      /* include reasoning.encrypted_content */
    bool counting;     /* only the tokens of the prompt are wanted */
    bool compacting;   /* the reply is an item of type compaction */
    bool compact;      /* the reply is a response.compaction: of its own path */
    const struct ek_context *context; /* of the request; NULL: nothing is asked for */
    ek_api_summary *stands_for;       /* the conversation; NULL: none */
    ek_buf users;                     /* of that: the messages of the user, as items with commas between */
    bool summary;                     /* thoughts are given as their summary, not as content */
    /* To be stored: the store, else NULL; the items of this request as a JSON list; what they continue. */
    ek_response_store *store;
    uint64_t owner;
    ek_buf input;
    ek_stored_items items; /* of input, later of the response that was written last too: those with an id */
    int n_inputs;          /* of items */
    char *previous;
    /* A conversation that it continues and adds to; NULL: none. */
    char *conversation;
    ek_response_store *conversations; /* where it is; NULL: nothing is added */
    ek_new_items added;               /* the items of this request */
    struct ek_conversation_ask *ask;  /* of a request about conversations themselves */
    size_t output_from, n_output;     /* of the response that was written last: the bytes that are its items */
    /* Of the stream so far. */
    int n_events, n_logprobs;
    bool background, queued; /* made without its client; the stream has begun with that */
    bool begun, cut;         /* cut: the open call ends unfinished */
    ek_blocks blocks;
    ek_buf name, args, closing; /* of the open call; closing: what a cut one lacks */
    int call, kind;
    ek_custom_input custom; /* of args so far */
} ek_responses;

/* EINVAL for metadata beyond what the API documents: 16 pairs of texts, keys of 64 characters, values of 512. */
ek_err ek_responses_check_metadata(ek_api_request *r, const json_t *body);
/* Writes own->echo. ETOOLARGE for more than 512 KiB, instructions left out. */
ek_err ek_responses_echo(ek_api_request *r, const json_t *body);
/* The field `tools` into r->tools. */
ek_err ek_responses_tools(ek_api_request *r, const json_t *body);
/* Tools that an item brings, a list, declared at the end of m, the last message of the conversation. */
ek_err ek_responses_bring(ek_api_request *r, ek_message *m, const json_t *tools);
/* An item of a tool that is no function, as the item that a function's would be: a new reference, NULL for others. */
json_t *ek_responses_plain(ek_responses *o, const json_t *item);
/* ,"name":… of a called function, and ,"namespace":… if it has one. */
void ek_responses_put_name(ek_buf *out, const ek_responses *o, const ek_buf *name);

/* Items (a list) to the end of the conversation. Reasoning, messages and calls of the assistant that follow each other
 * become one message; the arguments of calls are counted, then parsed. "input[I]: …": EINVAL, or what counting says. */
ek_err ek_responses_items(ek_api_request *r, const json_t *items, const ek_api_limits *limits);

/* "…", the id of an item: it follows from the response's and its place. */
void ek_responses_put_id(ek_buf *out, const ek_api_reply *r, const char *prefix, int index);
/* A frame of a stream, between whose halves its further members stand. */
void ek_responses_frame_open(ek_buf *out, const ek_api_reply *r, const char *type);
void ek_responses_frame_close(ek_buf *out, const ek_api_reply *r);

/* A call as an item of its tool's type, and the frames of one in a stream: its start, a piece of its arguments, its
 * end. closing: what its arguments lack; empty where it was not cut. */
typedef struct ek_responses_call {
    int index, call; /* of the item; ek_reply_event.call */
    const ek_buf *name, *args, *closing;
} ek_responses_call;
void ek_responses_put_call(ek_buf *out, const ek_api_reply *r, const ek_responses_call *c);
void ek_responses_open_call(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e);
void ek_responses_call_piece(ek_buf *out, const ek_api_reply *r, const char *s, size_t n);
void ek_responses_close_call(ek_buf *out, const ek_api_reply *r);

/* Replaces the items by reference in the list *items (a reference of the caller's, to a list of this or a new one) by
 * what they refer to. earlier: the items that stand before them; a reference to one that is there already stands for
 * nothing. "input[I]: …": EINVAL, ENOTFOUND with the id, or what counting says. */
ek_err ek_responses_resolve(json_t **items, const json_t *earlier, const ek_api_limits *limits);
/* Writes own->input, and notes which of its items can be referred to. */
void ek_responses_keep_input(ek_responses *o, const json_t *items);
/* Appends the messages of the user among items, a list, to own->users. */
void ek_responses_keep_users(ek_responses *o, const json_t *items);
/* Appends items, a list, as conversations keep them: normalised, each with an id that neither seen nor the list has.
 * seen: an object with the ids that are there, to which those of the items are added. Counts what that takes. */
ek_err ek_responses_add_items(ek_new_items *out, const json_t *items, json_t *seen, const ek_api_limits *limits);
/* What has an id in a list, as members of an object. */
void ek_responses_see(json_t *seen, const json_t *items);
/* Adds the request's items and those of the reply to its conversation. o->n_output and what else was noted: of
 * response, the one that was put last. */
void ek_responses_extend(ek_responses *o, const ek_buf *response);
void ek_conversation_ask_free(struct ek_conversation_ask *a); /* NULL is fine */
/* own of r, which is made. */
ek_responses *ek_responses_open(ek_api_request *r);
/* Appends an item as it is stored: without what is neither read here nor of the API. */
void ek_responses_put_kept(ek_buf *out, const json_t *item);

/* A response with this status. error: of one that failed, else NULL. Notes where in out its items stand. */
void ek_responses_put(ek_buf *out, const ek_api_reply *r, const char *status, const char *error);
/* Keeps it, in the store of o if there is one. response, the last that was put, is taken over and left empty. */
void ek_responses_keep(const ek_api_reply *r, ek_buf *response);

/* The writers of a reply, as in ek_dialect. */
void ek_responses_queued(ek_buf *out, const ek_api_reply *r, bool events);
void ek_responses_cancelled(ek_buf *out, const ek_api_reply *r);
void ek_responses_begin(ek_buf *out, const ek_api_reply *r, int choice);
void ek_responses_event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e);
void ek_responses_finish(ek_buf *out, const ek_api_reply *r, int choice);
void ek_responses_compact_end(ek_buf *out, const ek_api_reply *r);
void ek_responses_end(ek_buf *out, const ek_api_reply *r);
void ek_responses_failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text);

#endif
