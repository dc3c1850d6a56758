#include "ops/kv.h"

#include <string.h>

#include "ops/kv_layout.h"

static const char *const names[EK_KV_FORMAT_COUNT] = {[EK_KV_F32] = "f32", [EK_KV_F16] = "f16", [EK_KV_BF16] = "bf16",
                                                      [EK_KV_I16] = "16",  [EK_KV_Q8] = "8",    [EK_KV_Q4] = "4"};

const char *ek_kv_format_name(ek_kv_format f)
{
    return names[f];
}

static int find_format(const char *s, size_t n)
{
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        if (strlen(names[f]) == n && memcmp(names[f], s, n) == 0) return f;
    return -1;
}

ek_err ek_kv_format_parse(const char *s, ek_kv_format *k, ek_kv_format *v)
{
    const char *colon = strchr(s, ':');
    int fk = find_format(s, colon ? (size_t)(colon - s) : strlen(s));
    int fv = colon ? find_format(colon + 1, strlen(colon + 1)) : fk;
    if (fk < 0 || fv < 0)
        return ek_fail(EK_EINVAL,
                       "'%.32s' is no format of keys and values; there are 16, f16, bf16, f32, 8, 4, and two of them "
                       "as K:V",
                       s);
    *k = (ek_kv_format)fk, *v = (ek_kv_format)fv;
    return EK_OK;
}

/* Bytes of scales and biases of a head's page. */
static size_t scales(ek_kv_format f, int head_dim)
{
    if (f == EK_KV_I16) return EK_PAGE_TOKENS * sizeof(float);
    return f == EK_KV_Q4 ? 2 * ek_kv_scales(head_dim) : f == EK_KV_Q8 ? ek_kv_scales(head_dim) : 0;
}

size_t ek_kv_k_bytes(ek_kv_format k, int head_dim)
{
    return ek_kv_k_codes(k, head_dim) + scales(k, head_dim);
}

size_t ek_kv_v_bytes(ek_kv_format v, int head_dim)
{
    return ek_kv_v_codes(v, head_dim) + scales(v, head_dim);
}

size_t ek_kv_block_bytes(ek_kv_format k, ek_kv_format v, int n_kv_heads, int head_dim)
{
    if (head_dim < 4 || head_dim > EK_MAX_HEAD_DIM || head_dim % 4) return 0;
    return (size_t)n_kv_heads * (ek_kv_k_bytes(k, head_dim) + ek_kv_v_bytes(v, head_dim));
}
