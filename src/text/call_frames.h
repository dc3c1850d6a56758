/* The writing side of call_args.c: JSON out, one container at a time. Inside src/text. */
#ifndef EK_TEXT_CALL_FRAMES_H
#define EK_TEXT_CALL_FRAMES_H

#include "text/call_args.h"

enum {
    KEY_START, /* before a key, or the end of the object */
    KEY_BARE,
    KEY_QUOTED,
    KEY_JSON,
    KEY_SINGLE,
    COLON, /* after a quoted key */
    VALUE, /* before a value */
    BARE,  /* a word without quotes; held */
    HOLD,  /* one that is no literal: only <|"|> or the end says what it is */
    TEXT,  /* between <|"|> and <|"|> */
    JSON,
    SINGLE,
    AFTER, /* a value */
    DONE
};

ek_args_frame *ek_args_top(ek_args *a);
bool ek_args_is_closer(const ek_args *a, char c);
void ek_args_fail(ek_args *a);

/* Into out, unless the value is muted or the call is bad. */
void ek_args_emit(ek_args *a, const char *s, size_t n);
void ek_args_emit_char(ek_args *a, char c);
void ek_args_emit_escaped(ek_args *a, const char *s, size_t n);
void ek_args_emit_text(ek_args *a, const char *s, size_t n); /* with quotes */

void ek_args_begin_value(ek_args *a);
void ek_args_end_value(ek_args *a);
void ek_args_end_key(ek_args *a, const char *key, size_t n);
void ek_args_push(ek_args *a, char opener);
void ek_args_pop(ek_args *a);
void ek_args_close_with(ek_args *a, char c);

#endif
