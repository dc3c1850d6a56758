/* Splits a model's reply, token by token, into visible content, reasoning and tool calls.
 *
 * Markers are found by token id, never by searching text: text that looks like a marker stays
 * text. The events are a function of the tokens alone, whether they arrive one by one or all
 * at once.
 *
 * Text of events is well-formed UTF-8 in whole characters. */
#ifndef EK_TEXT_REPLY_H
#define EK_TEXT_REPLY_H

#include "base/buf.h"
#include "base/err.h"
#include "text/json/json.h"
#include "text/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

/* The meaning of a token for the splitter. EK_MARK_OTHER: any other special token; it is dropped. */
typedef enum ek_mark {
    EK_MARK_TEXT,          /* not special */
    EK_MARK_EOS,           /* <eos> */
    EK_MARK_TURN_CLOSE,    /* <turn|> */
    EK_MARK_RESPONSE_OPEN, /* <|tool_response>: a stop too */
    EK_MARK_RESPONSE_CLOSE,
    EK_MARK_TURN_OPEN,
    EK_MARK_TOOL_OPEN,
    EK_MARK_TOOL_CLOSE,
    EK_MARK_CALL_OPEN,
    EK_MARK_CALL_CLOSE,
    EK_MARK_QUOTE, /* <|"|> */
    EK_MARK_CHANNEL_OPEN,
    EK_MARK_CHANNEL_CLOSE,
    EK_MARK_OTHER,
    EK_MARK_COUNT
} ek_mark;

/* The ids of a tokenizer's markers, by name; -1: the tokenizer has none. */
typedef struct ek_marks {
    int32_t id[EK_MARK_COUNT]; /* TEXT and OTHER: -1 */
} ek_marks;

void ek_marks_find(ek_marks *m, const ek_tokenizer *t);

typedef enum ek_reply_kind {
    EK_REPLY_CONTENT,    /* text */
    EK_REPLY_REASONING,  /* text */
    EK_REPLY_CALL_START, /* text: the function's name; call: its index from 0 */
    /* text: a fragment of compact JSON. A call's fragments, at least one, concatenate to a valid JSON object at
     * CALL_END. */
    EK_REPLY_CALL_ARGS,
    EK_REPLY_CALL_END,
    /* Instead of CALL_END: the token limit ended the call. The fragments are its beginning; text: what would complete
     * them to a JSON object ("null}"). */
    EK_REPLY_CALL_CUT,
    /* Only with stream_calls, instead of CALL_END: the started call is malformed beyond repair. Drop it if that is
     * still possible; sent fragments stand, and text is that of CALL_CUT. The next call gets the next index. A CONTENT
     * event with the call's raw text follows. */
    EK_REPLY_CALL_DROP,
    EK_REPLY_STOP /* mark: the stop marker, or EK_MARK_CALL_CLOSE after one_call */
} ek_reply_kind;

typedef struct ek_reply_event {
    ek_reply_kind kind;
    const char *text; /* valid during the call, NUL-terminated */
    size_t n;
    int call;     /* CALL_*: index */
    ek_mark mark; /* STOP */
} ek_reply_event;

typedef void ek_reply_sink_fn(void *arg, const ek_reply_event *e);

typedef struct ek_reply_opts {
    bool tools_active; /* tools are given and tool_choice is not none */
    bool one_call;     /* parallel_tool_calls false: stop after the first call */
    /* A call's events come while it is written: for replies whose calls cannot be malformed (grammar.h). Otherwise they
     * come after its end, because until then it may turn out to be text. */
    bool stream_calls;
    bool ignore_eos; /* stop markers are dropped instead of ending the reply */
    /* A reply that starts with the text "thought\n" has opened its channel; for thinking on, or a prompt that ended
     * with an empty channel (ek_reply_start detects the latter). */
    bool lenient_start;
    /* Borrowed until the reply is closed; NULL: none. Gives bare values their types: `zip:01234` stays a string if the
     * schema wants a string. */
    const json_t *tools;
    ek_reply_sink_fn *sink;
    void *arg;
} ek_reply_opts;

typedef struct ek_reply ek_reply;

/* Opens a reply; opts is copied, t is borrowed. t may be NULL for a reply fed by ek_reply_feed_text only. Never fails;
 * close with ek_reply_close (NULL is allowed). */
ek_reply *ek_reply_open(const ek_tokenizer *t, const ek_reply_opts *opts);
void ek_reply_close(ek_reply *r);

/* Sets the initial state from the prompt: inside the reasoning when the prompt left its
 * channel open. Call before the first token. */
void ek_reply_start(ek_reply *r, const int32_t *prompt, size_t n);

/* The kind of a token, for logprobs and usage. */
typedef enum ek_token_kind {
    EK_TOKEN_CONTENT,   /* visible text (it may be held back for a while) */
    EK_TOKEN_REASONING, /* reasoning text, its header and markers */
    EK_TOKEN_CALL,      /* a call and its markers */
    EK_TOKEN_MARKUP     /* stop markers, stray markers, anything dropped */
} ek_token_kind;

/* Feeds one token. Stop ids that only the model's configuration lists are not detected here: the engine stops at them,
 * and the caller calls ek_reply_end. Tokens after a STOP are ignored. */
ek_token_kind ek_reply_feed(ek_reply *r, int32_t token);
/* Feeds text in which markers are spelled out: for model output kept as text. Every name of
 * the Gemma 4 control tokens counts as its marker. The text may be cut anywhere; ek_reply_end flushes. */
void ek_reply_feed_text(ek_reply *r, const char *text, size_t n);
/* Ends the reply: writes held-back text. truncated: the token or context limit ended it; an unfinished call is
 * truncated (one without a name is dropped). Otherwise it ends as at a stop marker, without the STOP event. */
void ek_reply_end(ek_reply *r, bool truncated);

bool ek_reply_stopped(const ek_reply *r);  /* STOP was sent */
int ek_reply_calls(const ek_reply *r);     /* completed calls so far */
int ek_reply_malformed(const ek_reply *r); /* calls that were returned as content, for statistics */

/* The whole answer, collected from events: give ek_reply_collect and a zeroed ek_answer as
 * sink and arg, or call it from a sink of your own. */
typedef struct ek_answer_call {
    char *name;
    int index;      /* ek_reply_event.call */
    ek_buf args;    /* a JSON object; the beginning of one if the call was cut off */
    ek_buf closing; /* for a truncated call: the text that completes args to a JSON object; else empty */
} ek_answer_call;

/* A run of one kind, in the order of the answer. */
typedef struct ek_answer_part {
    ek_reply_kind kind; /* CONTENT, REASONING: bytes from .. from + n of that text; CALL_START: calls[from] */
    size_t from, n;
} ek_answer_part;

typedef struct ek_answer {
    ek_buf content, reasoning;
    ek_answer_call *calls;
    ek_answer_part *parts;
    int n_calls, cap_calls, n_parts, cap_parts;
    bool open; /* the last call has not ended */
} ek_answer;

void ek_reply_collect(void *answer, const ek_reply_event *e);
void ek_answer_fini(ek_answer *a);
/* {"content": text or null, "reasoning_content": text or null, "tool_calls": [{"name", "arguments": {…}}]}: null for
 * empty texts; truncated calls are left out. A new reference. */
json_t *ek_answer_json(const ek_answer *a);

/* Writes a call's id: prefix and 24 hex digits. It is a function of (request, index), so a repeated request
 * repeats its ids. out has room for strlen(prefix) + 25 bytes. */
void ek_call_id(char *out, const char *prefix, const char *request, int index);

/* Stop strings: a streaming search in visible text. Text is held back only while it may be the start of a match. */

enum { EK_STOP_MAX = 64, EK_STOP_BYTES = 4096 }; /* maximum strings, maximum bytes per string */

typedef struct ek_stop ek_stop;

/* Copies n strings; empty ones are ignored. EINVAL beyond the limits. */
ek_err ek_stop_open(ek_stop **out, const char *const *strings, const size_t *lengths, int n);
void ek_stop_close(ek_stop *s);

/* Takes more text; appends to out the text that is certain to be visible. Returns -1, or the index of the matched
 * string: out then ends before the match, and all later text is ignored (the same index is returned again). The match
 * that ends first wins, and among matches that end together the longest. The division of the text does not matter. s
 * may be NULL: no strings. */
int ek_stop_feed(ek_stop *s, const char *text, size_t n, ek_buf *out);
/* The text ended, or something else interrupts it: appends the held-back text; nothing after a match. Later text is
 * searched separately. */
void ek_stop_end(ek_stop *s, ek_buf *out);

/* --- arguments of a call as clients send them back: truncated JSON, or JSON with a model's errors. Inside src/text and
 * src/serve. --- */

/* The maximum that ek_call_repair builds from this text; linear time. */
void ek_call_repair_scan(ek_json_size *out, const char *text, size_t n);
/* Reads text that is nearly a JSON object, or one written as a JSON string. It repairs: a text that is cut off, also in
 * a string, a number or a word; commas before a closer; quotes '…' and quotes inside quotes; words of Python; keys and
 * words without quotes; missing values (null); closers that are missing, wrong or too many. The escapes are the lenient
 * reader's (json.h). A new reference to an object, or NULL if the meaning is not clear: a text that does not begin with
 * a brace, a key without a value, text after the object, nesting beyond EK_JSON_DEPTH. Linear time. */
json_t *ek_call_repair(const char *text, size_t n);

#endif
