/* The line of `--log cache`: how much of a prompt came from the prefix cache, and where and by what it left what is
 * cached. */
#ifndef EK_CHAT_CACHE_NOTE_H
#define EK_CHAT_CACHE_NOTE_H

#include "base/buf.h"
#include "chat/prompt.h"
#include "engine/engine.h"

/* Appends, without a newline: counts, and if an earlier prompt went on differently: position, message (the n-th turn
 * of the prompt, from 1), both tokens and the text around the place, in the prompt and in the cache. */
void ek_cache_note(ek_buf *out, const ek_chat_model *m, const ek_cache_report *r);

#endif
