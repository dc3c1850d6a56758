#include "ops/kv.h"

#include <string.h>

static const struct {
    const char *name;
    size_t element; /* bytes; 0: not available */
} formats[EK_KV_FORMAT_COUNT] = {
    [EK_KV_F32] = {"f32", 4}, [EK_KV_BF16] = {"bf16", 2}, [EK_KV_Q8] = {"8", 0}, [EK_KV_Q4] = {"4", 0}};

const char *ek_kv_format_name(ek_kv_format f)
{
    return formats[f].name;
}

static int find_format(const char *s, size_t n)
{
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        if (strlen(formats[f].name) == n && memcmp(formats[f].name, s, n) == 0) return f;
    return -1;
}

ek_err ek_kv_format_parse(const char *s, ek_kv_format *k, ek_kv_format *v)
{
    const char *colon = strchr(s, ':');
    int fk = find_format(s, colon ? (size_t)(colon - s) : strlen(s));
    int fv = colon ? find_format(colon + 1, strlen(colon + 1)) : fk;
    if (fk < 0 || fv < 0)
        return ek_fail(EK_EINVAL, "'%.32s' is no format of keys and values; there are f32, bf16, 8, 4, and two of them "
                                  "as K:V",
                       s);
    *k = (ek_kv_format)fk, *v = (ek_kv_format)fv;
    return EK_OK;
}

size_t ek_kv_block_bytes(ek_kv_format k, ek_kv_format v, int n_kv_heads, int head_dim)
{
    if (!formats[k].element || !formats[v].element || head_dim < 4 || head_dim > EK_MAX_HEAD_DIM || head_dim % 4)
        return 0;
    return (size_t)n_kv_heads * (ek_kv_k_bytes(k, head_dim) + ek_kv_v_bytes(v, head_dim));
}

size_t ek_kv_k_bytes(ek_kv_format k, int head_dim)
{
    return formats[k].element * EK_PAGE_TOKENS * (size_t)head_dim;
}

size_t ek_kv_v_bytes(ek_kv_format v, int head_dim)
{
    return formats[v].element * EK_PAGE_TOKENS * (size_t)head_dim;
}
