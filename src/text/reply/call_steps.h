/* The steps of reading a call's arguments (call_args.h): what ends them needs the same ones. Inside src/text. */
#ifndef EK_TEXT_CALL_STEPS_H
#define EK_TEXT_CALL_STEPS_H

#include "text/reply/call_frames.h"

static inline bool ek_args_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Of the container that is open. */
static inline const ek_call_names *ek_args_known_names(const ek_args *a)
{
    return &a->known[a->names].names;
}

/* One character. */
void ek_args_step(ek_args *a, char c);

/* Begins to hold what follows, until the state says what it is. */
void ek_args_begin_held(ek_args *a, int state);
/* What is held is decoded in place: it stood between JSON quotes. */
void ek_args_decode_json(ek_args *a);
/* What is held is a text, and the whole value. */
void ek_args_end_text(ek_args *a);
/* A bare word is the whole value. */
void ek_args_emit_bare(ek_args *a, const char *s, size_t n);

/* The first n bytes that are held are a key without quotes. */
void ek_args_end_bare_key(ek_args *a, size_t n);
/* A bare key that met no ':': `k=v`, or nothing that can be understood. */
void ek_args_end_without_colon(ek_args *a);
/* What is held became a name that is known and perhaps more, or none. */
void ek_args_end_named(ek_args *a);

#endif
