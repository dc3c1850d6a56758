#define _GNU_SOURCE /* mremap */
#include "serve/http/http.h"

#include <stdlib.h>
#include <string.h>

#include "base/linux.h"

enum { MAPPED = 256 << 10 };

static bool grow(ek_body *b, size_t need)
{
    size_t cap = b->cap ? b->cap : 1024;
    while (cap < need) cap *= 2;
    char *data;
    if (b->mapped) {
        data = mremap(b->data, b->cap, cap, MREMAP_MAYMOVE);
        if (data == MAP_FAILED) return false;
    } else if (cap >= MAPPED) {
        data = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return false;
        if (b->len) memcpy(data, b->data, b->len);
        free(b->data);
        b->mapped = true;
    } else {
        data = realloc(b->data, cap);
        if (!data) return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

bool ek_body_add(ek_body *b, const char *bytes, size_t n)
{
    if (b->len + n + 1 > b->cap && !grow(b, b->len + n + 1)) return false;
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

void ek_body_fini(ek_body *b)
{
    if (b->mapped) munmap(b->data, b->cap);
    else free(b->data);
    *b = (ek_body){0};
}

const char *ek_body_text(const ek_body *b)
{
    return b->data ? b->data : "";
}
