#include "engine/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash/hash.h"
#include "engine/executor.h"
#include "engine/sample/sampler.h"

enum { MAX_STOP_IDS = 4096, MAX_SPANS = 65536 };

static ek_err check_tokens(const char *what, const int32_t *token, int n, int vocab_size)
{
    for (int i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= vocab_size)
            return ek_fail(EK_EINVAL, "%s %d is token %d, the vocabulary has %d", what, i, token[i], vocab_size);
    return EK_OK;
}

/* Whether the span's rows see each other in some layers, so that they are computed together. */
static bool is_whole(const ek_prompt_span *s)
{
    return s->mutual[EK_FULL] || s->mutual[EK_SLIDING];
}

static ek_err check_whole(const ek_prompt_span *s, const ek_request_opts *o, const ek_request_rules *rules)
{
    int n = s->end - s->first, shown = s->end - (o->prompt_logits_from > s->first ? o->prompt_logits_from : s->first);
    if (n > rules->whole)
        return ek_fail(EK_EINVAL,
                       "positions %d to %d see each other, which takes a step of %d rows; a step has %d (chunk)",
                       s->first, s->end - 1, n, rules->whole);
    if (o->on_prompt_logits && shown > rules->max_prompt_logits)
        return ek_fail(EK_EINVAL,
                       "positions %d to %d see each other and want %d rows of prompt logits in one step, %d fit",
                       s->first, s->end - 1, shown, rules->max_prompt_logits);
    int64_t max = (int64_t)o->n_tokens - o->n_replied + o->max_tokens;
    for (int k = EK_SLIDING; k < EK_PAGE_KINDS; k += EK_KIND_COUNT) {
        int pages = ek_page_table_max(rules->layout, (ek_layer_kind)k, max < rules->ctx ? (int)max : rules->ctx, n);
        if (pages > rules->n_pages[k])
            return ek_fail(EK_ETOOLONG, "positions %d to %d see each other, which takes %d sliding pages, there are %d",
                           s->first, s->end - 1, pages, rules->n_pages[k]);
    }
    return EK_OK;
}

static ek_err check_spans(const ek_request_opts *o, const ek_request_rules *rules)
{
    if (o->n_spans < 0 || o->n_spans > MAX_SPANS)
        return ek_fail(EK_EINVAL, "%d spans, at most %d are possible", o->n_spans, MAX_SPANS);
    for (int i = 0, end = 0; i < o->n_spans; i++) {
        const ek_prompt_span *s = &o->span[i];
        if (s->first < end || s->end <= s->first || s->end > o->n_tokens)
            return ek_fail(EK_EINVAL, "span %d is [%d, %d); spans ascend within [%d, %d)", i, s->first, s->end, end,
                           o->n_tokens);
        end = s->end;
        if (is_whole(s)) EK_TRY(check_whole(s, o, rules));
    }
    return EK_OK;
}

/* The span of a part for the decoder; its embedding comes later. The model decides whether rows of an image see each
 * other: in models with a tower in sliding layers within the window (transformers, Gemma4ForConditionalGeneration); in
 * models without a tower in all layers, and the window does not limit rows inside an image
 * (Gemma4UnifiedForConditionalGeneration). */
static ek_prompt_span span_of(const ek_part *part, const ek_request_rules *rules)
{
    const bool mutual = rules->mutual && part->media->kind != EK_PART_SOUND;
    const bool everywhere = mutual && rules->encoder->everywhere;
    return (ek_prompt_span){.first = part->first,
                            .end = part->first + part->media->tokens,
                            .mutual = {[EK_SLIDING] = mutual, [EK_FULL] = everywhere},
                            .uncut = everywhere};
}

static ek_err check_parts(const ek_request_opts *o, const ek_request_rules *rules)
{
    if (o->n_parts < 0 || o->n_parts > MAX_SPANS)
        return ek_fail(EK_EINVAL, "%d pictures and sounds, at most %d are possible", o->n_parts, MAX_SPANS);
    if (o->n_parts > 0 && o->n_spans > 0)
        return ek_fail(EK_EINVAL, "%d spans beside %d pictures and sounds", o->n_spans, o->n_parts);
    for (int i = 0; i < o->n_parts; i++)
        if (!rules->encoder->takes[o->part[i].media->kind])
            return ek_fail(EK_EUNSUPPORTED, "this model takes no %ss", ek_part_name(o->part[i].media->kind));
    if (!rules->encoder->begin || o->n_spans > 0) return EK_OK; /* without towers the ids are ordinary tokens */
    EK_TRY(ek_parts_check(o->part, o->n_parts, o->tokens, o->n_tokens - o->n_replied, rules->media));
    for (int i = 0; i < o->n_parts; i++) {
        const ek_prompt_span s = span_of(&o->part[i], rules);
        if (is_whole(&s)) EK_TRY(check_whole(&s, o, rules));
    }
    return EK_OK;
}

static bool is_in(const int32_t *list, int n, int32_t token)
{
    for (int i = 0; i < n; i++)
        if (list[i] == token) return true;
    return false;
}

/* A reply that has ended cannot be resumed. */
static ek_err check_replied(const ek_request_opts *o, const ek_request_rules *rules)
{
    const int32_t *reply = o->tokens + o->n_tokens - o->n_replied;
    for (int i = 0; i < o->n_replied; i++)
        if ((!o->ignore_eos && is_in(rules->stop, rules->n_stop, reply[i])) || is_in(o->stop, o->n_stop, reply[i]))
            return ek_fail(EK_EINVAL, "the reply ended with its token %d, %d, and %d of it are given", i, reply[i],
                           o->n_replied);
    return EK_OK;
}

ek_err ek_request_check(const ek_request_opts *o, const ek_request_rules *rules)
{
    if (o->n_tokens < 1 || !o->tokens) return ek_fail(EK_EINVAL, "a prompt needs at least one token");
    if (o->max_tokens < 1) return ek_fail(EK_EINVAL, "max_tokens is %d, it must be 1 or more", o->max_tokens);
    if (o->n_tokens >= rules->ctx)
        return ek_fail(EK_ETOOLONG, "%d prompt tokens do not fit: the context is %d, one of them for the reply",
                       o->n_tokens, rules->ctx);
    if (o->n_replied < 0 || o->n_replied >= o->n_tokens || o->n_replied >= o->max_tokens)
        return ek_fail(EK_EINVAL, "%d of %d tokens are a reply of at most %d: a prompt comes before and a token behind",
                       o->n_replied, o->n_tokens, o->max_tokens);
    if (o->n_stop < 0 || o->n_stop > MAX_STOP_IDS)
        return ek_fail(EK_EINVAL, "%d stop ids, at most %d are possible", o->n_stop, MAX_STOP_IDS);
    if (o->prompt_logits_from < 0) return ek_fail(EK_EINVAL, "prompt logits from position %d", o->prompt_logits_from);
    EK_TRY(check_tokens("prompt position", o->tokens, o->n_tokens, rules->vocab_size));
    EK_TRY(check_tokens("stop id", o->stop, o->n_stop, rules->vocab_size));
    EK_TRY(check_replied(o, rules));
    EK_TRY(check_spans(o, rules));
    EK_TRY(check_parts(o, rules));
    return ek_sampling_check(&o->sampling, rules->vocab_size);
}

static void *copy(const void *p, size_t bytes)
{
    void *q = ek_alloc(bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

static void copy_spans(ek_request *r, const ek_request_opts *o, int hidden_size)
{
    r->media.n_spans = o->n_spans;
    r->media.span = copy(o->span, sizeof *o->span * (size_t)o->n_spans);
    r->media.longest_piece = 1;
    for (int i = 0; i < r->media.n_spans; i++) {
        ek_prompt_span *s = &r->media.span[i];
        int n = s->end - s->first;
        if (s->embedding) s->embedding = copy(s->embedding, sizeof(float) * (size_t)n * (size_t)hidden_size);
        if (is_whole(s) && n > r->media.longest_piece) r->media.longest_piece = n;
    }
}

static void take_parts(ek_request *r, const ek_request_opts *o, const ek_request_rules *rules)
{
    r->media.n_parts = r->media.n_spans = o->n_parts;
    r->media.part = ek_alloc(sizeof *r->media.part * (size_t)r->media.n_parts);
    r->media.span = ek_realloc(r->media.span, sizeof *r->media.span * (size_t)r->media.n_parts);
    for (int i = 0; i < r->media.n_parts; i++) {
        ek_media *m = ek_media_retain(o->part[i].media);
        r->media.part[i].media = m;
        r->media.span[i] = span_of(&o->part[i], rules);
        if (is_whole(&r->media.span[i]) && m->tokens > r->media.longest_piece) r->media.longest_piece = m->tokens;
        r->media.n_tokens[m->kind == EK_PART_SOUND] += m->tokens;
    }
}

static ek_content_id id_of(const void *what, size_t n)
{
    char hash[65];
    ek_content_id id;
    ek_sha256_hex(hash, what, n);
    hash[32] = '\0';
    id.h[1] = strtoull(hash + 16, NULL, 16);
    hash[16] = '\0';
    id.h[0] = strtoull(hash, NULL, 16);
    return id;
}

/* The id of an embedding, or of a span whose positions see each other: each position gets the hash of the whole
 * span. */
static ek_content_id content_of(const ek_prompt_span *s, const int32_t *tokens, int hidden_size)
{
    size_t n = (size_t)(s->end - s->first);
    struct {
        char hash[65];
        uint8_t embedded, mutual[EK_KIND_COUNT], uncut;
        int32_t first, end;
    } whole;
    memset(&whole, 0, sizeof whole);
    if (s->embedding) ek_sha256_hex(whole.hash, s->embedding, n * (size_t)hidden_size * sizeof *s->embedding);
    else ek_sha256_hex(whole.hash, tokens + s->first, n * sizeof *tokens);
    whole.embedded = s->embedding != NULL;
    for (int k = 0; k < EK_KIND_COUNT; k++) whole.mutual[k] = s->mutual[k];
    whole.uncut = s->uncut;
    whole.first = s->first, whole.end = s->end;
    return id_of(&whole, sizeof whole);
}

/* The id of a picture or sound, by its content and its towers. A sound's rows see only earlier ones, but its content
 * hash covers the whole sound. */
static ek_content_id content_of_part(const ek_request *r, int i, const ek_encoder *encoder)
{
    struct {
        uint8_t digest[32], towers[32];
        int32_t kind, first, end, mutual, uncut;
    } whole;
    memset(&whole, 0, sizeof whole);
    memcpy(whole.digest, r->media.part[i].media->digest, sizeof whole.digest);
    memcpy(whole.towers, encoder->digest, sizeof whole.towers);
    whole.kind = (int32_t)r->media.part[i].media->kind;
    whole.first = r->media.span[i].first, whole.end = r->media.span[i].end;
    whole.mutual = is_whole(&r->media.span[i]), whole.uncut = r->media.span[i].uncut;
    ek_content_id id = id_of(&whole, sizeof whole);
    id.h[0] = ek_media_name(r->media.part[i].media); /* half of it is the content's public name in reports of pages */
    return id;
}

static void set_content(ek_request *r)
{
    for (int i = 0; i < r->media.n_spans; i++)
        if (r->media.span[i].embedding || is_whole(&r->media.span[i])) r->cache.n_content = r->media.span[i].end;
    if (r->cache.n_content == 0) return;
    r->cache.content = ek_alloc(sizeof *r->cache.content * (size_t)r->cache.n_content);
    for (int i = 0; i < r->media.n_spans; i++) {
        const ek_prompt_span *s = &r->media.span[i];
        if (!s->embedding && !is_whole(s)) continue;
        ek_content_id id = content_of(s, r->tokens, r->hidden_size);
        for (int pos = s->first; pos < s->end; pos++) r->cache.content[pos] = id;
    }
}

void ek_request_name_parts(ek_request *r, const ek_encoder *encoder)
{
    EK_ASSERT(encoder->loaded && r->media.n_parts > 0 && !r->cache.content);
    r->cache.n_content = r->media.span[r->media.n_parts - 1].end;
    r->cache.content = ek_alloc(sizeof *r->cache.content * (size_t)r->cache.n_content);
    for (int i = 0; i < r->media.n_parts; i++) {
        ek_content_id id = content_of_part(r, i, encoder);
        for (int pos = r->media.span[i].first; pos < r->media.span[i].end; pos++) r->cache.content[pos] = id;
    }
}

ek_request *ek_request_new(const ek_request_opts *o, const ek_request_rules *rules)
{
    ek_request *r = ek_alloc(sizeof *r);
    int64_t max = (int64_t)o->n_tokens - o->n_replied + o->max_tokens;
    r->state = EK_WAITING;
    r->arrived = ek_now();
    r->max_tokens = max < rules->ctx ? (int)max : rules->ctx;
    r->n_given = r->n_tokens = o->n_tokens;
    r->n_prompt = o->n_tokens - o->n_replied;
    r->tokens = ek_alloc(sizeof *r->tokens * (size_t)r->max_tokens);
    memcpy(r->tokens, o->tokens, sizeof *r->tokens * (size_t)o->n_tokens);
    ek_page_table_init(&r->table, rules->layout, r->max_tokens);
    r->hidden_size = rules->hidden_size;
    r->window = r->table.window;
    copy_spans(r, o, rules->hidden_size);
    if (o->n_parts > 0) take_parts(r, o, rules);
    else set_content(r);
    r->cache.salt = o->cache_salt, r->cache.owner = o->cache_owner;
    if (o->cache_salt_text) r->cache.salt_name = ek_salt_name_make(o->cache_salt_text, o->cache_salt_len);
    r->turn.client = o->client;
    r->cache.min_cached = o->min_cached, r->cache.publish = o->publish;
    r->cache.on_cache = o->on_cache;
    r->cache.reading = o->reading;
    if (rules->drafts) {
        ek_ngram_init(&r->draft.ngram, r->max_tokens);
        ek_ngram_add(&r->draft.ngram, r->tokens, r->n_tokens, false);
    }
    r->draft.credit = EK_DRAFT_CREDIT;
    r->draft.remote.right = 0.75f;
    r->draft.drafter_right = 0.75f; /* a typical rate of published drafters; adapts within some tokens */
    r->sampling = o->sampling;
    r->sampling.bias = copy(o->sampling.bias, sizeof *o->sampling.bias * (size_t)o->sampling.n_bias);
    int n_own = o->ignore_eos ? 0 : rules->n_stop;
    r->n_stop = n_own + o->n_stop;
    r->stop = ek_alloc(sizeof *r->stop * (size_t)r->n_stop);
    if (n_own) memcpy(r->stop, rules->stop, sizeof *r->stop * (size_t)n_own);
    if (o->n_stop) memcpy(r->stop + n_own, o->stop, sizeof *r->stop * (size_t)o->n_stop);
    r->sink = o->sink;
    r->arg = o->arg;
    r->user = o->user;
    r->on_prompt_logits = o->on_prompt_logits;
    r->reply_logits = o->reply_logits, r->reply_digest = o->reply_digest;
    if (o->mask) r->mask = *o->mask;
    r->next_prompt_logits = o->on_prompt_logits && o->prompt_logits_from < o->n_tokens ? o->prompt_logits_from
                                                                                       : o->n_tokens;
    return r;
}

void ek_request_free(ek_request *r)
{
    ek_page_table_fini(&r->table);
    for (int i = 0; i < r->media.n_spans && r->media.n_parts == 0; i++)
        free((void *)(uintptr_t)r->media.span[i].embedding);
    for (int i = 0; i < r->media.n_parts; i++) {
        EK_ASSERT(!r->media.part[i].feature);
        ek_media_release(r->media.part[i].media);
    }
    free(r->media.part);
    free(r->media.span);
    free(r->cache.content);
    ek_salt_name_release(r->cache.salt_name);
    ek_ngram_fini(&r->draft.ngram);
    free(r->tokens);
    free((void *)(uintptr_t)r->sampling.bias);
    free(r->stop);
    free(r);
}

bool ek_request_is_stop(const ek_request *r, int32_t token)
{
    return is_in(r->stop, r->n_stop, token);
}

/* The span of a position, or NULL. */
static const ek_prompt_span *span_at(const ek_request *r, int pos)
{
    for (int i = 0; i < r->media.n_spans && r->media.span[i].first <= pos; i++)
        if (pos < r->media.span[i].end) return &r->media.span[i];
    return NULL;
}

ek_seq ek_table_seq(const ek_page_table *t, int slot)
{
    ek_seq seq = {.slot = slot};
    for (int k = 0; k < EK_KIND_COUNT; k++)
        seq.page[k] = t->page[k], seq.first[k] = t->first[k], seq.end[k] = t->end[k];
    return seq;
}

ek_seq ek_request_seq(const ek_request *r)
{
    return ek_table_seq(&r->table, r->slot);
}

ek_row ek_request_row(const ek_request *r, int pos, int seq, bool wants_logits)
{
    ek_row row = ek_text_row(r->tokens[pos], pos, seq, wants_logits, r->window);
    const ek_prompt_span *s = span_at(r, pos);
    if (!s) return row;
    EK_ASSERT(s->embedding || r->media.n_parts == 0); /* a row of features never equals the placeholder's */
    if (s->embedding) row.embedding = s->embedding + (ptrdiff_t)(pos - s->first) * r->hidden_size;
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        if (!s->mutual[k]) continue;
        row.visible[k].end = s->end;
        if (s->uncut && row.visible[k].lo > s->first) row.visible[k].lo = s->first;
    }
    return row;
}

int ek_request_cut(const ek_request *r, int n)
{
    const ek_prompt_span *s = span_at(r, r->n_done + n);
    return s && is_whole(s) && s->first < r->n_done + n ? s->first - r->n_done : n;
}

int ek_request_before_span(const ek_request *r, int n)
{
    const ek_prompt_span *s = span_at(r, n);
    return s && is_whole(s) ? s->first : n;
}

int ek_request_piece(const ek_request *r)
{
    const ek_prompt_span *s = span_at(r, r->n_done);
    return s && is_whole(s) ? s->end - r->n_done : 1;
}

int ek_request_ready(const ek_request *r, int n)
{
    for (int i = r->media.first_part; i < r->media.n_parts && r->media.span[i].first < r->n_done + n; i++)
        if (!r->media.part[i].feature && r->media.span[i].end > r->n_done)
            return r->media.span[i].first > r->n_done ? r->media.span[i].first - r->n_done : 0;
    return n;
}

int ek_request_prompt_logits(const ek_request *r, int n)
{
    int first = r->n_done > r->next_prompt_logits ? r->n_done : r->next_prompt_logits;
    int end = r->n_done + n < r->n_given ? r->n_done + n : r->n_given;
    return end > first ? end - first : 0;
}
