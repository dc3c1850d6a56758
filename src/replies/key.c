#include "replies/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/hash.h"
#include "base/encoding.h"

static void add_bytes(ek_sha256_state *s, const void *p, size_t n)
{
    ek_sha256_add_u64(s, n);
    if (n) ek_sha256_add(s, p, n);
}

static void add_float(ek_sha256_state *s, float x)
{
    uint32_t bits;
    x = x == 0 ? 0 : x; /* -0 has the same effect as 0 */
    memcpy(&bits, &x, sizeof bits);
    ek_sha256_add_u64(s, bits);
}

static void begin(ek_sha256_state *s, const char *domain)
{
    ek_sha256_init(s);
    add_bytes(s, domain, strlen(domain));
}

/* --- sampling --- */

typedef struct indexed {
    ek_logit_bias bias;
    int at;
} indexed;

/* Orders by token. Entries of one token stay in their order. */
static int by_token(const void *a, const void *b)
{
    const indexed *x = a, *y = b;
    if (x->bias.token != y->bias.token) return x->bias.token < y->bias.token ? -1 : 1;
    return x->at - y->at;
}

int ek_reply_bias(ek_logit_bias *out, const ek_sampling *o)
{
    indexed *list = ek_alloc(((size_t)o->n_bias + 1) * sizeof *list);
    int n = 0;
    for (int i = 0; i < o->n_bias; i++)
        if (o->bias[i].bias != 0) list[n++] = (indexed){o->bias[i], i};
    qsort(list, (size_t)n, sizeof *list, by_token);
    for (int i = 0; i < n; i++) out[i] = list[i].bias;
    free(list);
    return n;
}

static void add_bias(ek_sha256_state *s, const ek_sampling *o)
{
    ek_logit_bias *list = ek_alloc(((size_t)o->n_bias + 1) * sizeof *list);
    const int n = ek_reply_bias(list, o);
    ek_sha256_add_u64(s, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        ek_sha256_add_u64(s, (uint32_t)list[i].token);
        add_float(s, list[i].bias);
    }
    free(list);
}

bool ek_reply_is_decided(const ek_sampling *s, bool has_seed)
{
    return has_seed || s->temperature < EK_MIN_TEMPERATURE;
}

/* A greedy reply draws nothing, so options that change the draw are left out. */
static void add_sampling(ek_sha256_state *s, const ek_sampling *o)
{
    const bool draws = o->temperature >= EK_MIN_TEMPERATURE;
    ek_sha256_add_u64(s, draws);
    if (draws) {
        add_float(s, o->temperature);
        add_float(s, o->top_p);
        add_float(s, o->min_p);
        ek_sha256_add_u64(s, (uint64_t)o->top_k);
        ek_sha256_add_u64(s, o->seed);
    }
    add_float(s, o->repetition_penalty);
    add_float(s, o->presence_penalty);
    add_float(s, o->frequency_penalty);
    add_bias(s, o);
}

/* --- the rest --- */

static void add_tokens(ek_sha256_state *s, const int32_t *tokens, int n)
{
    uint8_t b[1024];
    size_t used = 0;
    ek_sha256_add_u64(s, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        ek_put_le(b + used, (uint32_t)tokens[i], 4);
        used += 4;
        if (used < sizeof b && i + 1 < n) continue;
        ek_sha256_add(s, b, used);
        used = 0;
    }
}

static void add_parts(ek_sha256_state *s, const ek_reply_ask *a)
{
    ek_sha256_add_u64(s, (uint64_t)a->n_parts);
    for (int i = 0; i < a->n_parts; i++) {
        ek_sha256_add_u64(s, (uint64_t)a->part[i].first);
        ek_sha256_add_u64(s, (uint64_t)a->part[i].media->kind);
        add_bytes(s, a->part[i].media->digest, sizeof a->part[i].media->digest);
    }
}

static void add_mask(ek_sha256_state *s, const ek_reply_ask *a)
{
    ek_sha256_add_u64(s, a->masked);
    if (!a->masked) return;
    const char *program = a->program ? a->program : "";
    add_bytes(s, program, strlen(program));
    ek_sha256_add_u64(s, a->form != NULL);
    if (a->form) add_bytes(s, a->form, strlen(a->form));
    ek_sha256_add_u64(s, (uint64_t)a->max_thinking);
    ek_sha256_add_u64(s, a->thinking);
}

void ek_reply_content_key(ek_reply_key *out, const ek_reply_ask *a)
{
    ek_sha256_state s;
    begin(&s, "evenkeel.reply.1");
    add_bytes(&s, a->identity, strlen(a->identity));
    add_tokens(&s, a->tokens, a->n_tokens);
    add_parts(&s, a);
    add_sampling(&s, a->sampling);
    add_mask(&s, a);
    ek_sha256_end_bytes(&s, out->h);
}

void ek_reply_parts_of(ek_reply_parts *out, const ek_reply_ask *a)
{
    ek_sha256_state s;
    begin(&s, "media");
    add_parts(&s, a);
    ek_sha256_end_bytes(&s, out->media.h);
    begin(&s, "bias");
    add_bias(&s, a->sampling);
    ek_sha256_end_bytes(&s, out->bias.h);
    begin(&s, "mask");
    add_mask(&s, a);
    ek_sha256_end_bytes(&s, out->mask.h);
}

void ek_reply_key_for(ek_reply_key *out, const ek_reply_key *content, uint64_t owner, const char *salt, size_t n)
{
    ek_sha256_state s;
    begin(&s, "evenkeel.reply.1.salt");
    add_bytes(&s, content->h, sizeof content->h);
    ek_sha256_add_u64(&s, owner);
    ek_sha256_add_u64(&s, salt != NULL);
    add_bytes(&s, salt, salt ? n : 0);
    ek_sha256_end_bytes(&s, out->h);
}

void ek_reply_key_text(char out[EK_REPLY_KEY_TEXT], const ek_reply_key *k)
{
    for (int i = 0; i < EK_REPLY_KEY; i++) snprintf(out + 2 * i, 3, "%02x", k->h[i]);
}

bool ek_reply_key_read(ek_reply_key *out, const char *text, size_t n)
{
    if (n != 2 * EK_REPLY_KEY) return false;
    for (int i = 0; i < EK_REPLY_KEY; i++) {
        const int byte = ek_hex_byte(text + 2 * i, n - 2 * (size_t)i);
        if (byte < 0) return false;
        out->h[i] = (uint8_t)byte;
    }
    return true;
}
