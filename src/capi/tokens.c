/* Text to tokens and back. */
#include <string.h>

#include "capi/state.h"

size_t evenkeel_tokenize(const evenkeel *e, const char *text, size_t n, int special, int32_t *tokens, size_t room)
{
    ek_ids ids = {0};
    const ek_err err = ek_encode(e->m.chat.tokenizer, text, n, NULL, special ? EK_CONTROL_ALL : 0, &ids);
    const size_t found = err ? 0 : ids.len, fit = found < room ? found : room;
    if (fit > 0) memcpy(tokens, ids.data, fit * sizeof *tokens);
    ek_ids_fini(&ids);
    return found;
}

size_t evenkeel_detokenize(const evenkeel *e, const int32_t *tokens, size_t n, int special, char *text, size_t room)
{
    ek_buf out = {0};
    ek_decode(e->m.chat.tokenizer, tokens, n, !special, &out);
    const size_t found = out.len, fit = found < room ? found : room;
    if (fit > 0) memcpy(text, out.data, fit);
    ek_buf_fini(&out);
    return found;
}

const char *evenkeel_token(const evenkeel *e, int32_t token, size_t *n)
{
    return ek_tokenizer_bytes(e->m.chat.tokenizer, token, n);
}
