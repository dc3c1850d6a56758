#include "ops/kv/kv.h"

#include <string.h>

#include "ops/kv/kv_codec.h"

const char *ek_kv_format_name(ek_kv_format f)
{
    return ek_kv_codecs[f].name;
}

ek_kv_format ek_kv_start_format(ek_kv_format f)
{
    if (ek_kv_codecs[f].bits >= 16) return f;
    return ek_kv_codecs[f].rule == EK_KV_ROTATED ? EK_KV_I12 : EK_KV_BF16;
}

static int find_format(const char *s, size_t n)
{
    if (n > 3 && memcmp(s + n - 3, ".32", 3) == 0) { /* the group of a width without one */
        n -= 3;
        if (memchr(s, '.', n)) return -1;
        int f = find_format(s, n);
        return f >= 0 && ek_kv_codecs[f].group == 32 ? f : -1;
    }
    for (int f = 0; f < EK_KV_FORMAT_COUNT; f++)
        if (strlen(ek_kv_codecs[f].name) == n && memcmp(ek_kv_codecs[f].name, s, n) == 0) return f;
    return -1;
}

#define LISTED(id, name, rule, bits, group) " " name ","

ek_err ek_kv_format_parse(const char *s, ek_kv_format *k, ek_kv_format *v)
{
    const char *colon = strchr(s, ':');
    int fk = find_format(s, colon ? (size_t)(colon - s) : strlen(s));
    int fv = colon ? find_format(colon + 1, strlen(colon + 1)) : fk;
    if (fk < 0 || fv < 0)
        return ek_fail(
            EK_EINVAL,
            "'%.32s' is no format of keys and values; there are" EK_KV_FORMATS(LISTED) " and two of them as K:V", s);
    *k = (ek_kv_format)fk, *v = (ek_kv_format)fv;
    return EK_OK;
}

/* Bytes of scales and biases of a head's page. */
static size_t scales(ek_kv_format f, int head_dim)
{
    return (ek_kv_codecs[f].rule == EK_KV_AFFINE ? 2 : 1) * ek_kv_scales(f, head_dim);
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
