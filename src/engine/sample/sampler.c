#include "engine/sample/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"
#include "engine/sample/choose.h"
#include "ops/math.h"
#include "ops/rows/rows.h"
#include "tensor/dtype.h"

struct ek_sampler {
    ek_row_ops rows;
    int vocab_size;
    int32_t *suppress;
    int n_suppress;
    float *z;         /* the row with all changes */
    int32_t *replied; /* times a token occurs in the reply; zero between draws */
    uint8_t *occurs;  /* whether a token occurs in the history; zero between draws */
    int32_t *touched; /* the tokens with occurs set */
    ek_choose choose;
};

void ek_sampler_open(ek_sampler **out, unsigned cpu, int vocab_size, const int32_t *suppress, int n_suppress)
{
    ek_sampler *s = ek_alloc(sizeof *s);
    size_t n = (size_t)vocab_size;
    ek_row_init(&s->rows, cpu);
    s->vocab_size = vocab_size;
    s->n_suppress = n_suppress;
    s->suppress = ek_alloc(sizeof *s->suppress * (size_t)n_suppress);
    if (n_suppress) memcpy(s->suppress, suppress, sizeof *suppress * (size_t)n_suppress);
    s->z = ek_alloc(sizeof *s->z * n);
    s->replied = ek_alloc(sizeof *s->replied * n);
    s->occurs = ek_alloc(n);
    s->touched = ek_alloc(sizeof *s->touched * n);
    ek_choose_init(&s->choose, vocab_size);
    *out = s;
}

void ek_sampler_close(ek_sampler *s)
{
    if (!s) return;
    free(s->suppress);
    free(s->z);
    free(s->replied);
    free(s->occurs);
    free(s->touched);
    ek_choose_fini(&s->choose);
    free(s);
}

static ek_err in_range(const char *name, float x, float min, float max)
{
    if (x >= min && x <= max) return EK_OK;
    return ek_fail(EK_EINVAL, "%s is %g, it must be between %g and %g", name, x, min, max);
}

/* The bounds keep every value on the way to a token finite. */
ek_err ek_sampling_check(const ek_sampling *o, int vocab_size)
{
    EK_TRY(in_range("temperature", o->temperature, 0, 1000));
    EK_TRY(in_range("top_p", o->top_p, 0, 1));
    EK_TRY(in_range("min_p", o->min_p, 0, 1));
    EK_TRY(in_range("repetition_penalty", o->repetition_penalty, 1e-3f, 1e3f));
    EK_TRY(in_range("presence_penalty", o->presence_penalty, -1000, 1000));
    EK_TRY(in_range("frequency_penalty", o->frequency_penalty, -1000, 1000));
    if (o->top_k < 0) return ek_fail(EK_EINVAL, "top_k is %d, it must be 0 (off) or more", o->top_k);
    if (o->n_bias < 0) return ek_fail(EK_EINVAL, "%d entries of logit_bias", o->n_bias);
    for (int i = 0; i < o->n_bias; i++) {
        const ek_logit_bias *b = &o->bias[i];
        if (b->token < 0 || b->token >= vocab_size)
            return ek_fail(EK_EINVAL, "logit_bias names token %d, the vocabulary has %d", b->token, vocab_size);
        if (b->bias != -INFINITY) EK_TRY(in_range("a logit_bias", b->bias, -1000, 1000));
    }
    return EK_OK;
}

ek_sampling ek_sampling_greedy(void)
{
    return (ek_sampling){.top_p = 1, .repetition_penalty = 1};
}

/* The random words of tokens 4 block to 4 block + 3. */
static void noise_words(uint32_t word[4], uint64_t seed, int pos, int purpose, uint32_t block)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {(uint32_t)pos, block, (uint32_t)purpose, 0};
    ek_philox(word, counter, key);
}

/* NaN and infinity have all exponent bits set. */
uint64_t ek_logits_digest(const float *x, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        sum += ek_mix64((uint64_t)i << 32 | u);
    }
    return sum;
}

bool ek_logits_finite(const float *x, int n)
{
    uint32_t bad = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        bad |= (u & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

/* Keeps top descending; a later equal value goes behind, so that the lower id stays first. */
static void insert(ek_logprobs *out, int n_top, int32_t token, float x)
{
    if (out->n_top == n_top) {
        if (n_top == 0 || x <= out->top[n_top - 1].logprob) return;
        out->n_top--;
    }
    int i = out->n_top++;
    for (; i > 0 && out->top[i - 1].logprob < x; i--) out->top[i] = out->top[i - 1];
    out->top[i] = (ek_logprob){token, x};
}

void ek_logprobs_of(ek_logprobs *out, const float *logits, int n_vocab, int32_t token, int n_top)
{
    float max = -INFINITY;
    double sum = 0;
    out->n_top = 0;
    for (int i = 0; i < n_vocab; i++) {
        if (logits[i] > max) max = logits[i];
        insert(out, n_top, i, logits[i]);
    }
    for (int i = 0; i < n_vocab; i++) sum += (double)ek_exp(logits[i] - max);
    double zero = (double)max + ek_ln64(sum);
    out->self = (ek_logprob){token, (float)((double)logits[token] - zero)};
    for (int i = 0; i < out->n_top; i++) out->top[i].logprob = (float)((double)out->top[i].logprob - zero);
}

/* Repetition over prompt and reply as in transformers; presence and frequency over the reply. A token is changed once,
 * in whatever order tokens are visited. */
static void penalise(ek_sampler *s, const ek_sampling *o, const int32_t *tokens, int n_prompt, int n_tokens)
{
    int n = 0;
    for (int i = 0; i < n_tokens; i++) {
        int32_t t = tokens[i];
        if (i >= n_prompt) s->replied[t]++;
        if (s->occurs[t]) continue;
        s->occurs[t] = 1;
        s->touched[n++] = t;
    }
    for (int i = 0; i < n; i++) {
        int32_t t = s->touched[i];
        float z = s->z[t];
        if (o->repetition_penalty != 1) z = z < 0 ? z * o->repetition_penalty : z / o->repetition_penalty;
        if (s->replied[t] > 0) {
            z -= o->presence_penalty;
            z -= o->frequency_penalty * (float)s->replied[t];
        }
        s->z[t] = z;
        s->occurs[t] = 0;
        s->replied[t] = 0;
    }
}

static bool is_allowed(const uint64_t *allowed, int32_t token)
{
    return allowed[token / 64] >> token % 64 & 1;
}

static bool suppressed(const ek_sampler *s, int32_t token)
{
    for (int i = 0; i < s->n_suppress; i++)
        if (s->suppress[i] == token) return true;
    return false;
}

/* z = logits, -inf where not allowed. Most words are nearly full or nearly empty. */
static void mask(float *z, const float *logits, const uint64_t *allowed, int n)
{
    for (int first = 0; first < n; first += 64) {
        int lanes = n - first < 64 ? n - first : 64;
        uint64_t word = allowed[first / 64];
        bool majority = __builtin_popcountll(word) > 32;
        if (majority) memcpy(z + first, logits + first, sizeof *z * (size_t)lanes);
        else
            for (int i = 0; i < lanes; i++) z[first + i] = -INFINITY;
        for (uint64_t other = majority ? ~word : word; other; other &= other - 1) {
            int i = first + __builtin_ctzll(other);
            if (i < n) z[i] = majority ? -INFINITY : logits[i];
        }
    }
}

/* The row after the mask, suppress_tokens, bias and penalties, in s->z. */
static void process(ek_sampler *s, const float *logits, const uint64_t *allowed, const ek_sampling *o,
                    const int32_t *tokens, int n_prompt, int n_tokens)
{
    if (allowed) mask(s->z, logits, allowed, s->vocab_size);
    else memcpy(s->z, logits, sizeof *logits * (size_t)s->vocab_size);
    for (int i = 0; i < s->n_suppress; i++) s->z[s->suppress[i]] = -INFINITY;
    for (int i = 0; i < o->n_bias; i++) s->z[o->bias[i].token] += o->bias[i].bias;
    if (ek_sampling_has_penalties(o)) penalise(s, o, tokens, n_prompt, n_tokens);
}

/* The best candidate so far: the largest z + g, ties to the lowest id. */
struct best {
    float sum;
    float slack; /* the distance below `sum` within which an exact z + g can still round up to it, with a margin */
    int32_t token;
};

/* Whether no noise can lift z to the best sum. Rounding preserves order, so no candidate is lost. */
static bool out_of_reach(const struct best *b, float z)
{
    return b->token >= 0 && z + EK_MAX_GUMBEL < b->sum;
}

/* Whether this word's noise cannot lift z to the best sum, without computing a logarithm. z + g reaches the best only
 * if E <= exp(z - best). Since E > v, n must then be below 2^32 exp(z - best). The chord of 2^x between integers lies
 * above 2^x by up to 6 percent; it is computed by reading a scaled x as the bits of a float. Every rounding, here and
 * in z + g, is within the slack; a word that is kept in vain costs only time. NaN, of rows that are not finite, rejects
 * nothing. */
static bool word_too_large(const struct best *b, float z, uint32_t word)
{
    float x = (z - b->sum + b->slack) * 1.442695f + 32;
    if (!(x < 64)) return false;
    if (x < -1) return true;
    return (float)word > ek_bits_f32((uint32_t)(int32_t)((x + 127) * 0x1p23f));
}

static void consider(struct best *b, float z, int32_t token, uint32_t word)
{
    if (b->token >= 0 && word_too_large(b, z, word)) return;
    float sum = z + ek_standard_gumbel(word);
    if (b->token >= 0 && (sum < b->sum || (sum == b->sum && token > b->token))) return;
    *b = (struct best){sum, 0x1p-23f * fabsf(sum) + 4e-5f, token};
}

/* Draws when every token is a candidate. The likeliest token comes first, because most others then need no
 * logarithm. */
static int32_t draw_from_all(const float *z, int n, int32_t top, const ek_sampling *o, int pos)
{
    struct best b = {.token = -1};
    uint32_t word[4];
    noise_words(word, o->seed, pos, EK_NOISE_SAMPLE, (uint32_t)top / 4);
    consider(&b, z[top], top, word[top % 4]);
    for (int32_t first = 0; first < n; first += 4) {
        int lanes = n - first < 4 ? n - first : 4;
        float highest = z[first];
        for (int i = 1; i < lanes; i++) highest = z[first + i] > highest ? z[first + i] : highest;
        if (out_of_reach(&b, highest)) continue;
        noise_words(word, o->seed, pos, EK_NOISE_SAMPLE, (uint32_t)first / 4);
        for (int i = 0; i < lanes; i++)
            if (first + i != top && z[first + i] > -INFINITY) consider(&b, z[first + i], first + i, word[i]);
    }
    return b.token;
}

/* Draws from candidates in order (z descending, id ascending) until one of the limits ends them. */
static int32_t draw_from_best(ek_sampler *s, const float *z, float top, const ek_sampling *o, int pos)
{
    bool cut_k = o->top_k > 0 && o->top_k < s->vocab_size;
    int k = cut_k ? o->top_k : s->vocab_size;
    ek_choose *c = &s->choose;
    ek_choose_start(c, z, cut_k ? k : 256);
    float total = 0;
    if (o->top_p < 1) {
        if (cut_k) {
            ek_candidate next;
            for (int i = 0; i < k && ek_choose_next(c, &next) && next.z > -INFINITY; i++) total += ek_exp(next.z - top);
            ek_choose_again(c);
        } else {
            total = s->rows.sum_exp(z, s->vocab_size, top);
        }
    }
    struct best b = {.token = -1};
    float sum = 0;
    ek_candidate next;
    for (int i = 0; i < k && ek_choose_next(c, &next) && next.z > -INFINITY; i++) {
        if (o->top_p < 1 || o->min_p > 0) {
            float w = ek_exp(next.z - top);
            if (i > 0 && o->top_p < 1 && !(sum < o->top_p * total)) break;
            if (i > 0 && w < o->min_p) break;
            sum += w;
        }
        /* in descending order: if one candidate cannot win, no later one can */
        if (out_of_reach(&b, next.z)) break;
        uint32_t word[4];
        noise_words(word, o->seed, pos, EK_NOISE_SAMPLE, (uint32_t)next.id / 4);
        consider(&b, next.z, next.id, word[next.id % 4]);
    }
    return b.token;
}

int32_t ek_sample(ek_sampler *s, const float *logits, const uint64_t *allowed, const ek_sampling *o,
                  const int32_t *tokens, int n_prompt, int n_tokens)
{
    bool plain = o->n_bias == 0 && !ek_sampling_has_penalties(o), greedy = o->temperature < EK_MIN_TEMPERATURE;
    int n = s->vocab_size;
    const float *z = logits;
    int32_t top = s->rows.argmax(logits, n);
    /* If nothing changes a logit and the best token may be taken, the others need not be looked at. */
    bool done = plain && greedy && !suppressed(s, top) && (!allowed || is_allowed(allowed, top));
    if (!done && (allowed || !plain || s->n_suppress)) {
        process(s, logits, allowed, o, tokens, n_prompt, n_tokens);
        z = s->z;
        top = s->rows.argmax(z, n);
    }
    if (z[top] == -INFINITY) return -1;
    if (greedy) return top;
    if (o->temperature != 1) {
        for (int i = 0; i < n; i++) s->z[i] = z[i] / o->temperature;
        z = s->z;
        top = s->rows.argmax(z, n); /* the division may have produced ties */
    }
    bool all = (o->top_k == 0 || o->top_k >= n) && o->top_p >= 1 && o->min_p <= 0;
    return all ? draw_from_all(z, n, top, o, n_tokens) : draw_from_best(s, z, z[top], o, n_tokens);
}
