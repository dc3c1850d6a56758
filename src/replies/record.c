#include "replies/record.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"
#include "base/hash/hash.h"
#include "tensor/dtype.h"

enum { HEAD = 48, SUM = 32, PROB = EK_REPLY_PROBS };
static const char magic[8] = "ekreply2";

struct ek_reply_record {
    atomic_int refs;
    int n, n_probs;
    ek_reply_origin origin;
    size_t size;
    ek_reply_key key;
    const uint8_t *tokens, *rows, *probs, *ask;
    size_t n_ask;
    uint8_t bytes[];
};

/* --- a draft --- */

static void add_probs(ek_buf *b, const ek_logprobs *p)
{
    ek_buf_le(b, ek_f32_bits(p->self.logprob), 4);
    for (int i = 0; i < EK_LOGPROBS_MAX; i++) {
        const bool has = i < p->n_top;
        ek_buf_le(b, has ? (uint32_t)p->top[i].token : UINT32_MAX, 4);
        ek_buf_le(b, has ? ek_f32_bits(p->top[i].logprob) : 0, 4);
    }
}

void ek_reply_draft_add(ek_reply_draft *d, int32_t token, uint64_t row, const ek_logprobs *probs)
{
    if (d->n == EK_REPLY_MAX_TOKENS) return; /* the tokens so far are a valid record */
    ek_buf_le(&d->tokens, (uint32_t)token, 4);
    ek_buf_le(&d->rows, row, 8);
    if (probs && d->n_probs == d->n) {
        add_probs(&d->probs, probs);
        d->n_probs++;
    }
    d->n++;
}

void ek_reply_draft_begin(ek_reply_draft *d, const ek_reply_record *r, int n)
{
    ek_logprobs probs = {0};
    for (int i = 0; i < n; i++) {
        const bool has = i < r->n_probs;
        if (has) ek_reply_record_probs(r, i, EK_LOGPROBS_MAX, &probs);
        ek_reply_draft_add(d, ek_reply_record_token(r, i), ek_reply_record_row(r, i), has ? &probs : NULL);
    }
}

void ek_reply_draft_fini(ek_reply_draft *d)
{
    ek_buf_fini(&d->tokens);
    ek_buf_fini(&d->rows);
    ek_buf_fini(&d->probs);
    *d = (ek_reply_draft){0};
}

/* --- a record --- */

static ek_reply_record *new_record(size_t size)
{
    ek_reply_record *r = ek_alloc(sizeof *r + size);
    atomic_init(&r->refs, 1);
    r->size = size;
    return r;
}

/* Sets pointers into the bytes, whose sizes were checked. */
static void place(ek_reply_record *r)
{
    const uint8_t *p = r->bytes + HEAD;
    const size_t n = (size_t)r->n;
    memcpy(r->key.h, r->bytes + sizeof magic, sizeof r->key.h);
    r->tokens = p, p += 4 * n;
    r->rows = p, p += 8 * n;
    r->probs = p, p += PROB * (size_t)r->n_probs;
    r->n_ask = (size_t)ek_get_le(p, 4);
    r->ask = p + 4;
}

ek_reply_record *ek_reply_record_make(const ek_reply_key *k, ek_reply_draft *d, const char *ask, size_t n_ask)
{
    EK_ASSERT(d->n >= 1);
    if (!ask || n_ask > EK_REPLY_MAX_ASK) n_ask = 0;
    ek_reply_record *r = new_record(HEAD + d->tokens.len + d->rows.len + d->probs.len + 4 + n_ask + SUM);
    uint8_t *p = r->bytes;
    memcpy(p, magic, sizeof magic);
    memcpy(p + sizeof magic, k->h, sizeof k->h);
    ek_put_le(p + HEAD - 8, (uint32_t)d->n, 4);
    ek_put_le(p + HEAD - 4, (uint32_t)d->n_probs, 4);
    p += HEAD;
    const ek_buf *const of[] = {&d->tokens, &d->rows, &d->probs};
    for (int i = 0; i < 3; i++) {
        if (of[i]->len) memcpy(p, of[i]->data, of[i]->len);
        p += of[i]->len;
    }
    ek_put_le(p, n_ask, 4);
    if (n_ask) memcpy(p + 4, ask, n_ask);
    p += 4 + n_ask;
    ek_sha256(p, r->bytes, (size_t)(p - r->bytes));
    r->n = d->n, r->n_probs = d->n_probs;
    place(r);
    ek_reply_draft_fini(d);
    return r;
}

static ek_err check_tokens(const uint8_t *p, int n, int n_vocab)
{
    for (int i = 0; i < n; i++)
        if (ek_get_le(p + 4 * (size_t)i, 4) >= (uint64_t)n_vocab)
            return ek_fail(EK_EFORMAT, "token %d of a stored reply is %u, the vocabulary has %d", i,
                           (unsigned)ek_get_le(p + 4 * (size_t)i, 4), n_vocab);
    return EK_OK;
}

static ek_err check_probs(const void *probs, int n, int n_vocab)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < EK_LOGPROBS_MAX; k++) {
            const uint64_t token = ek_get_le((const uint8_t *)probs + (size_t)i * PROB + 4 + 8 * (size_t)k, 4);
            if (token >= (uint64_t)n_vocab && token != UINT32_MAX)
                return ek_fail(EK_EFORMAT, "token %d of a stored reply has a likely one of %u, the vocabulary has %d",
                               i, (unsigned)token, n_vocab);
        }
    return EK_OK;
}

ek_err ek_reply_draft_check_probs(const ek_reply_draft *d, int n_vocab)
{
    return check_probs(ek_buf_text(&d->probs), d->n_probs, n_vocab);
}

ek_err ek_reply_record_read(ek_reply_record **out, const ek_reply_key *k, ek_reply_origin origin, int n_vocab,
                            const void *bytes, size_t size)
{
    const uint8_t *b = bytes;
    uint8_t sum[SUM];
    if (size < HEAD + 12 + 4 + SUM) return ek_fail(EK_EFORMAT, "a stored reply of %zu bytes", size);
    if (memcmp(b, magic, sizeof magic) != 0) return ek_fail(EK_EFORMAT, "a stored reply of another version");
    if (k && memcmp(b + sizeof magic, k->h, sizeof k->h) != 0) return ek_fail(EK_EFORMAT, "it is of another key");
    const uint64_t n = ek_get_le(b + HEAD - 8, 4);
    const uint64_t n_probs = ek_get_le(b + HEAD - 4, 4);
    if (n < 1 || n > EK_REPLY_MAX_TOKENS || n_probs > n)
        return ek_fail(EK_EFORMAT, "a stored reply of %u tokens, %u with log-probabilities", (unsigned)n,
                       (unsigned)n_probs);
    const size_t fixed = HEAD + 12 * (size_t)n + PROB * (size_t)n_probs + 4 + SUM;
    if (size < fixed) return ek_fail(EK_EFORMAT, "a stored reply of %zu bytes, %zu are needed", size, fixed);
    const uint64_t n_ask = ek_get_le(b + fixed - SUM - 4, 4);
    if (n_ask > EK_REPLY_MAX_ASK || size != fixed + n_ask)
        return ek_fail(EK_EFORMAT, "a stored reply of %zu bytes, %zu are needed", size, fixed + (size_t)n_ask);
    ek_sha256(sum, b, size - SUM);
    if (memcmp(sum, b + size - SUM, SUM) != 0) return ek_fail(EK_EFORMAT, "a stored reply whose sum is wrong");
    EK_TRY(check_tokens(b + HEAD, (int)n, n_vocab));
    EK_TRY(check_probs(b + HEAD + 12 * (size_t)n, (int)n_probs, n_vocab));
    ek_reply_record *r = new_record(size);
    memcpy(r->bytes, b, size);
    r->n = (int)n, r->n_probs = (int)n_probs, r->origin = origin;
    place(r);
    *out = r;
    return EK_OK;
}

void ek_reply_record_set_origin(ek_reply_record *r, ek_reply_origin origin)
{
    r->origin = origin;
}

ek_reply_record *ek_reply_record_retain(ek_reply_record *r)
{
    if (r) atomic_fetch_add(&r->refs, 1);
    return r;
}

void ek_reply_record_release(ek_reply_record *r)
{
    if (r && atomic_fetch_sub(&r->refs, 1) == 1) free(r);
}

ek_reply_origin ek_reply_record_origin(const ek_reply_record *r)
{
    return r->origin;
}

const ek_reply_key *ek_reply_record_key(const ek_reply_record *r)
{
    return &r->key;
}

int ek_reply_record_tokens(const ek_reply_record *r)
{
    return r->n;
}

int ek_reply_record_n_probs(const ek_reply_record *r)
{
    return r->n_probs;
}

int32_t ek_reply_record_token(const ek_reply_record *r, int i)
{
    return (int32_t)ek_get_le(r->tokens + 4 * (size_t)i, 4);
}

uint64_t ek_reply_record_row(const ek_reply_record *r, int i)
{
    return ek_get_le(r->rows + 8 * (size_t)i, 8);
}

const void *ek_reply_record_rows(const ek_reply_record *r)
{
    return r->rows;
}

const void *ek_reply_record_all_probs(const ek_reply_record *r)
{
    return r->probs;
}

void ek_reply_record_probs(const ek_reply_record *r, int i, int n_top, ek_logprobs *out)
{
    EK_ASSERT(i < r->n_probs && n_top <= EK_LOGPROBS_MAX);
    const uint8_t *p = r->probs + PROB * (size_t)i;
    out->self = (ek_logprob){ek_reply_record_token(r, i), ek_bits_f32((uint32_t)ek_get_le(p, 4))};
    out->n_top = 0;
    for (int k = 0; k < n_top; k++) {
        const uint64_t token = ek_get_le(p + 4 + 8 * (size_t)k, 4);
        if (token == UINT32_MAX) break;
        out->top[out->n_top++] = (ek_logprob){(int32_t)token,
                                              ek_bits_f32((uint32_t)ek_get_le(p + 8 + 8 * (size_t)k, 4))};
    }
}

const char *ek_reply_record_ask(const ek_reply_record *r, size_t *n)
{
    *n = r->n_ask;
    return (const char *)r->ask;
}

const void *ek_reply_record_bytes(const ek_reply_record *r, size_t *n)
{
    *n = r->size;
    return r->bytes;
}

bool ek_reply_record_covers(const ek_reply_record *a, const ek_reply_record *b)
{
    return a->n >= b->n && a->n_probs >= b->n_probs && (a->n_ask > 0 || b->n_ask == 0) &&
           memcmp(a->tokens, b->tokens, 4 * (size_t)b->n) == 0 && memcmp(a->rows, b->rows, 8 * (size_t)b->n) == 0;
}

bool ek_reply_record_contradicts(const ek_reply_record *a, const ek_reply_record *b)
{
    const size_t n = (size_t)(a->n < b->n ? a->n : b->n);
    return memcmp(a->tokens, b->tokens, 4 * n) != 0 || memcmp(a->rows, b->rows, 8 * n) != 0;
}

ek_reply_record *ek_reply_record_merge(ek_reply_record *a, ek_reply_record *b)
{
    if (ek_reply_record_covers(a, b)) return ek_reply_record_retain(a);
    if (ek_reply_record_covers(b, a)) return ek_reply_record_retain(b);
    const ek_reply_record *longer = a->n >= b->n ? a : b, *more = a->n_probs >= b->n_probs ? a : b,
                          *asked = a->n_ask ? a : b;
    ek_reply_draft d = {0};
    ek_reply_draft_begin(&d, more, more->n_probs);
    for (int i = more->n_probs; i < longer->n; i++)
        ek_reply_draft_add(&d, ek_reply_record_token(longer, i), ek_reply_record_row(longer, i), NULL);
    ek_reply_record *r = ek_reply_record_make(&a->key, &d, (const char *)asked->ask, asked->n_ask);
    r->origin = a->origin != EK_REPLY_COMPUTED ? a->origin : b->origin;
    return r;
}
