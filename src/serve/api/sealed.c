#include "serve/api/sealed.h"

#include <string.h>

#include "base/hash/base64.h"

static const char prefix[] = "ek1+";
enum { PREFIX = sizeof prefix - 1 };

void ek_seal(ek_buf *out, const char *text, size_t n)
{
    ek_buf_str(out, prefix);
    ek_base64_encode(out, text, n);
}

bool ek_unseal(ek_buf *out, const char *s, size_t n)
{
    return n >= PREFIX && memcmp(s, prefix, PREFIX) == 0 && (n - PREFIX) % 4 == 0 &&
           ek_base64_decode(out, s + PREFIX, n - PREFIX);
}
