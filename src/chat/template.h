/* Makes the JSON values that the chat template reads from a conversation. Inside src/chat. */
#ifndef EK_CHAT_TEMPLATE_H
#define EK_CHAT_TEMPLATE_H

#include "chat/conversation.h"

/* The list of messages for ek_chat_render, a new reference; c is not changed. The results of tools stand behind the
 * messages of their calls (order.h), the blocks of the assistant in the order in which the template can say them
 * (order.h): a message in which text follows calls, or calls follow visible text, becomes several, because the template
 * would write the text behind the results. A first system text that starts with "<|think|>" loses it and sets
 * *think_mark. EINVAL for a result whose call is nowhere; *out is then NULL. */
ek_err ek_template_messages(json_t **out, const ek_conversation *c, bool *think_mark);

#endif
