/* What headers of a request ask for beside its body, for clients and proxies that do not touch bodies. What the body
 * says of the same wins.
 *
 * x-evenkeel-resume: true. The stream's events say how it goes on, as evenkeel.resume true (serve/resume/resume.h).
 *
 * x-evenkeel-role: prefill. Another replica writes the reply, as kv_transfer_params.do_remote_decode true. decode,
 * both: this one writes it, whatever --role says.
 *
 * prefer: if-available. Status 412 unless the prompt's whole pages are cached (RFC 7240; llm-d's coordinator). */
#ifndef EK_SERVE_WISHES_H
#define EK_SERVE_WISHES_H

#include "serve/http/http.h"

typedef enum ek_wish { EK_WISH_NONE, EK_WISH_YES, EK_WISH_NO } ek_wish;

typedef struct ek_wishes {
    bool resume;
    bool if_available;
    ek_wish prefill;
} ek_wishes;

/* EINVAL with a sentence that begins with the header's name. */
ek_err ek_wishes_read(ek_wishes *out, const ek_exchange *x);

/* Whether a list of preferences has this token, in any case, alone or with parameters; not inside of quotes. */
bool ek_prefers(const char *list, const char *token);

#endif
