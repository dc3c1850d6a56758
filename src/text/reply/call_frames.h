/* States of the argument parser (ek_args.state) and its JSON output, one container at a time; for call_args.c.
 * Inside src/text. */
#ifndef EK_TEXT_CALL_FRAMES_H
#define EK_TEXT_CALL_FRAMES_H

#include "text/reply/call_args.h"

enum {
    KEY_START, /* before a key, or the end of the object */
    KEY_NAMED, /* what may become one of the names that are known */
    KEY_BARE,
    KEY_QUOTED,
    KEY_JSON,
    KEY_SINGLE,
    COLON, /* after a quoted key */
    VALUE, /* before a value */
    BARE,  /* a word without quotes, kept in held */
    HOLD,  /* a word that is no literal: <|"|> or the end decides what it is */
    TEXT,  /* between <|"|> and <|"|> */
    JSON,
    SINGLE,
    AFTER, /* after a value */
    DONE
};

ek_args_frame *ek_args_top(ek_args *a); /* the innermost open container; depth > 0 */
bool ek_args_is_closer(const ek_args *a, char c);
void ek_args_fail(ek_args *a); /* marks the call bad */

/* Append to out, unless the value is muted or the call is bad. */
void ek_args_emit(ek_args *a, const char *s, size_t n);
void ek_args_emit_char(ek_args *a, char c);
void ek_args_emit_escaped(ek_args *a, const char *s, size_t n);
void ek_args_emit_text(ek_args *a, const char *s, size_t n); /* escaped, with quotes */

void ek_args_begin_value(ek_args *a);
void ek_args_end_value(ek_args *a);
void ek_args_end_key(ek_args *a, const char *key, size_t n);
void ek_args_push(ek_args *a, char opener);
void ek_args_pop(ek_args *a);
void ek_args_close_with(ek_args *a, char c);

#endif
