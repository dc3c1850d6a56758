#include "beside.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash/rng.h"

static ek_err open_beside(void *arg, const ek_executor_sizes *sizes)
{
    beside *b = arg;
    b->sizes = *sizes;
    const size_t logits = (size_t)sizes->max_logits;
    for (int i = 0; i < 2; i++) {
        beside_step *s = &b->step[i];
        s->token = ek_alloc(sizeof *s->token * logits);
        s->digest = ek_alloc(sizeof *s->digest * logits);
    }
    const ek_config *c = b->inner.config;
    b->logits = ek_alloc(sizeof *b->logits * logits * (size_t)c->vocab_size);
    b->late = ek_alloc(sizeof *b->late * logits * (size_t)c->vocab_size);
    b->all = ek_alloc(sizeof *b->all * logits);
    memset(b->all, true, sizeof *b->all * logits);
    ek_sampler_open(&b->sampler, 0, c->vocab_size, c->suppress, c->n_suppress);
    b->row = ek_alloc(sizeof *b->row * (size_t)sizes->max_rows);
    b->draw = ek_alloc(sizeof *b->draw * logits);
    return b->inner.open(b->inner.arg, sizes);
}

/* Rows of logits of the step, to where its end finds them, or its draws. */
static void keep(beside *b, beside_step *to, const ek_step *s, float *logits)
{
    const size_t vocab = (size_t)b->inner.config->vocab_size;
    for (int r = 0, at = s->first_logits; r < s->n_rows; r++) {
        if (!s->row[r].wants_logits) continue;
        if (s->shown[at])
            memcpy(logits + vocab * (size_t)at, b->inner.logits(b->inner.arg, at), vocab * sizeof *logits);
        if (s->digested[at] && !s->draws_later) to->digest[at] = b->inner.digest(b->inner.arg, at);
        at++;
    }
    to->n_draws = s->n_draws;
    for (int i = 0; i < s->n_draws; i++) to->token[i] = s->draw[i].token;
}

static ek_err begin_beside(void *arg, const ek_step *s)
{
    beside *b = arg;
    EK_ASSERT(b->n_begun - b->n_ended == (s->follows ? 1 : 0) && !b->waits);
    EK_ASSERT(!s->draws_later || (s->follows && !b->draws_at_once));
    if (s->follows && !b->obliging && ek_mix64(b->n_begun) % 8 == 0) {
        b->refused++;
        return ek_fail(EK_EUNSUPPORTED, "not now");
    }
    const beside_step *front = &b->step[b->n_ended % 2];
    memcpy(b->row, s->row, sizeof *b->row * (size_t)s->n_rows);
    if (s->n_draws && !s->draws_later) memcpy(b->draw, s->draw, sizeof *b->draw * (size_t)s->n_draws);
    for (int i = 0; s->follows && i < s->n_draws; i++) EK_ASSERT(s->draws_later || !s->shown[i]);
    for (int r = 0; s->follows && r < s->n_rows; r++) {
        EK_ASSERT(s->follows[r] < front->n_draws);
        b->prompts += s->follows[r] < 0;
        if (s->follows[r] < 0) continue;
        b->row[r].token = front->token[s->follows[r]] < 0 ? 0 : front->token[s->follows[r]];
    }
    ek_step own = *s;
    own.row = b->row, own.draw = b->draw, own.follows = NULL;
    if (s->draws_later) own.n_draws = 0, own.shown = b->all, own.masks = NULL; /* the draws may be anything yet */
    EK_TRY(b->inner.step(b->inner.arg, &own));
    keep(b, &b->step[b->n_begun % 2], &own, s->draws_later ? b->late : b->logits);
    b->followed += s->follows != NULL;
    b->waits = s->draws_later;
    b->n_begun++;
    return EK_OK;
}

static ek_err draw_beside(void *arg, const ek_step *s)
{
    beside *b = arg;
    const int vocab = b->inner.config->vocab_size;
    beside_step *to = &b->step[b->n_ended % 2];
    EK_ASSERT(b->waits && s->draws_later && b->n_begun == b->n_ended + 1);
    b->waits = false;
    if (!b->obliging && ek_mix64(b->n_begun ^ 0x1057) % 16 == 0) {
        b->lost++, b->n_begun--;
        return ek_fail(EK_EBUSY, "the rows got lost");
    }
    ek_masks_wait(s->masks);
    to->n_draws = s->n_draws;
    for (int i = 0; i < s->n_draws; i++) {
        const ek_draw *d = &s->draw[i];
        const float *row = b->late + (ptrdiff_t)d->logits * vocab;
        to->token[i] = EK_DRAW_NOT_FINITE;
        if (ek_logits_finite(row, vocab))
            to->token[i] = ek_sample(b->sampler, row, d->allowed, d->sampling, d->tokens, d->n_prompt, d->n_tokens);
        if (s->digested[d->logits]) to->digest[d->logits] = ek_logits_digest(row, vocab);
        if (s->shown[d->logits]) memcpy(b->logits + (ptrdiff_t)d->logits * vocab, row, (size_t)vocab * sizeof *row);
    }
    b->drawn_late++;
    return EK_OK;
}

static ek_err end_beside(void *arg, const ek_step *s)
{
    beside *b = arg;
    const beside_step *of = &b->step[b->n_ended % 2];
    EK_ASSERT(b->n_ended < b->n_begun && of->n_draws == s->n_draws);
    EK_ASSERT(!b->waits || b->n_begun == b->n_ended + 2); /* only the step behind may still wait for its draws */
    b->n_ended++;
    if (b->n_ended < b->n_begun && !b->obliging && ek_mix64(~b->n_ended) % 16 == 0) {
        b->failed++;
        return ek_fail(EK_EBUSY, "the draws got lost");
    }
    for (int i = 0; i < s->n_draws; i++) s->draw[i].token = of->token[i];
    return EK_OK;
}

static ek_err step_beside(void *arg, const ek_step *s)
{
    EK_TRY(begin_beside(arg, s));
    return end_beside(arg, s);
}

static const float *logits_beside(void *arg, int row)
{
    const beside *b = arg;
    return b->logits + (size_t)b->inner.config->vocab_size * (size_t)row;
}

static uint64_t digest_beside(void *arg, int row)
{
    const beside *b = arg;
    return b->step[(b->n_ended - 1) % 2].digest[row];
}

static void copy_beside(void *arg, ek_layer_kind kind, int32_t from, int32_t to)
{
    const beside *b = arg;
    b->inner.copy_page(b->inner.arg, kind, from, to);
}

static void read_beside(void *arg, ek_layer_kind kind, int32_t page, void *out)
{
    const beside *b = arg;
    b->inner.read_page(b->inner.arg, kind, page, out);
}

static void write_beside(void *arg, ek_layer_kind kind, int32_t page, const void *in)
{
    const beside *b = arg;
    b->inner.write_page(b->inner.arg, kind, page, in);
}

static void poison_beside(void *arg, ek_layer_kind kind, int32_t page)
{
    const beside *b = arg;
    b->inner.poison_page(b->inner.arg, kind, page);
}

static const char *broken_beside(void *arg)
{
    const beside *b = arg;
    return b->inner.broken ? b->inner.broken(b->inner.arg) : NULL;
}

static void close_beside(void *arg)
{
    beside *b = arg;
    EK_ASSERT(b->n_begun == b->n_ended);
    for (int i = 0; i < 2; i++) free(b->step[i].token), free(b->step[i].digest);
    ek_sampler_close(b->sampler);
    free(b->late), free(b->all), free(b->logits), free(b->row), free(b->draw);
    b->inner.close(b->inner.arg);
}

ek_executor beside_executor(beside *b, ek_executor inner)
{
    ek_executor x = inner;
    b->inner = inner;
    x.arg = b;
    x.begins_prompts = true;
    x.open = open_beside, x.step = step_beside, x.begin = begin_beside, x.end = end_beside;
    x.draw = b->draws_at_once ? NULL : draw_beside;
    x.logits = logits_beside, x.digest = digest_beside;
    x.copy_page = copy_beside, x.read_page = read_beside, x.write_page = write_beside, x.poison_page = poison_beside;
    x.broken = broken_beside, x.close = close_beside;
    return x;
}
