/* State of the reply parser, shared by reply.c (transitions) and reply_feed.c (input). Inside src/text. */
#ifndef EK_TEXT_REPLY_STATE_H
#define EK_TEXT_REPLY_STATE_H

#include "text/reply/call_args.h"
#include "text/reply/reply.h"
#include "text/utf8.h"

typedef enum {
    CONTENT,
    HEADER, /* after <|channel>, before the newline */
    REASONING,
    CALL_HEAD, /* before the arguments */
    CALL_ARGS,
    CALL_BAD, /* the call is malformed; only its raw text is kept */
    AFTER_CALL,
    STOPPED
} reply_state;

struct ek_reply {
    const ek_tokenizer *t;
    ek_reply_opts opts;
    ek_marks marks;
    reply_state state;
    ek_utf8_stream utf8;
    ek_buf text; /* the latest output of the UTF-8 decoder */
    ek_buf lead; /* CONTENT: a first text that may become "thought\n"; AFTER_CALL: white space */
    bool ended;
    bool fresh; /* no content yet, so the lenient start is still possible */
    ek_buf header;
    bool newline;     /* REASONING: a newline is held back */
    ek_buf head, raw; /* of the call: the text before the arguments; the whole text */
    ek_args args;
    int n_started, n_done, n_malformed;
    ek_buf spelled; /* ek_reply_feed_text: the beginning of a possible marker */
    ek_buf event;
};

void ek_reply_on_bytes(ek_reply *r, const char *s, size_t n); /* text that may end anywhere, even inside a character */
void ek_reply_on_mark(ek_reply *r, ek_mark m);
void ek_reply_drain(ek_reply *r);                 /* an unfinished character becomes U+FFFD */
void ek_reply_flush(ek_reply *r, bool truncated); /* the end: emits held-back text */
void ek_reply_open_channel(ek_reply *r);
bool ek_reply_header_is_thought(const ek_reply *r);
bool ek_reply_is_stop(const ek_reply *r, ek_mark m);

/* The names of the reply's markers. Inside src/text. */

const char *ek_mark_text(ek_mark m); /* the spelling of a marker; "" for TEXT and OTHER */

#endif
