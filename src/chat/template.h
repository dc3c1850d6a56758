/* Makes the JSON values that the chat template reads from a conversation. Inside src/chat. */
#ifndef EK_CHAT_TEMPLATE_H
#define EK_CHAT_TEMPLATE_H

#include "chat/conversation.h"

/* The list of messages for ek_chat_render, a new reference; c is not changed. The order of the
 * blocks is kept: a message of the assistant in which text follows calls, or calls follow visible text, becomes
 * several, because the template would write the text behind the results. A first system text that
 * starts with "<|think|>" loses it and sets *think_mark. */
json_t *ek_template_messages(const ek_conversation *c, bool *think_mark);

#endif
