/* The top-level members of bodies that clients of today send. One that is not among them may change what is asked, as
 * one that continues a conversation does: it is refused, where ignoring it would answer something else in silence. */
#ifndef EK_SERVE_MEMBERS_H
#define EK_SERVE_MEMBERS_H

#include "serve/api/dialect.h"

typedef enum ek_member_apis {
    EK_MEMBERS_CHAT = 1,
    EK_MEMBERS_COMPLETIONS = 2,
    EK_MEMBERS_RESPONSES = 4,
    EK_MEMBERS_ANTHROPIC = 8,
    EK_MEMBERS_OLLAMA_CHAT = 16,
    EK_MEMBERS_OLLAMA_GENERATE = 32
} ek_member_apis;

/* EINVAL with the name of a member that this API does not have, unless it is null. */
ek_err ek_members_check(ek_api_request *r, const json_t *body, ek_member_apis api);

#endif
