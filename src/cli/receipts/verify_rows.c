/* Recomputes the rows of a reply, as a prompt. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine/cpu.h"
#include "chat/bounds.h"
#include "cli/receipts/verify.h"

typedef struct pass {
    const ek_receipt *receipt;
    const ek_opened *m;
    ek_sampling sampling;
    ek_sampler *sampler;
    ek_grammar *grammar;
    ek_bounds bounds;
    bool masks; /* bounds are known */
    int from, to, n_prompt, n_vocab, n_seen;
    int32_t *tokens; /* prompt, then reply */
    ek_hash *root;   /* of each row */
    uint64_t *allowed;
    int wrong; /* the first row that differs, -1: none */
    char why[200];
    bool failed, done;
} pass;

ek_err ek_verify_open(ek_opened *m, const ek_cli *cli, const ek_receipt *r)
{
    ek_cli own = *cli;
    char kv[64], acts[8];
    const char *at = strstr(r->statement.profile, " kv="), *a = strstr(r->statement.profile, " a=");
    if (at && !strcmp(cli->kv, "i12") && sscanf(at, " kv=%63[a-z0-9.:]", kv) == 1) own.kv = kv;
    if (a && !strcmp(cli->activations, "auto") && sscanf(a, " a=%7[a-z0-9]", acts) == 1) own.activations = acts;
    return ek_cli_open_engine(m, &own, true, 1, 1);
}

bool ek_verify_model(ek_report *out, const ek_receipt *r, ek_opened *m)
{
    const ek_statement *s = &r->statement;
    const char *profile = ek_model_numerics_id(m->model);
    char weights[EK_MODEL_DIGEST], tokenizer[EK_MODEL_DIGEST];
    if (ek_model_sha256(weights, tokenizer, m->path, m->towers ? ek_towers_file(m->towers) : NULL, m->pool)) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "model", "%s", ek_err_text());
        return false;
    }
    const bool same = !strcmp(weights, s->weights), words = !strcmp(tokenizer, s->tokenizer);
    ek_report_add(out, same ? EK_VERIFIED_OK : EK_VERIFIED_WRONG, "model", "the weights have SHA-256 %s%s%s", weights,
                  same ? "" : ", in the receipt ", same ? "" : s->weights);
    ek_report_add(out, words ? EK_VERIFIED_OK : EK_VERIFIED_WRONG, "tokenizer", "its files have SHA-256 %s%s%s",
                  tokenizer, words ? "" : ", in the receipt ", words ? "" : s->tokenizer);
    if (!strcmp(profile, s->profile)) {
        ek_report_add(out, EK_VERIFIED_OK, "arithmetic", "%s", profile);
        return same && words;
    }
    ek_report_add(out, same ? EK_VERIFIED_CANNOT : EK_VERIFIED_WRONG, "arithmetic",
                  "here it is \"%s\", in the receipt \"%s\" (--kv, --weights, --activations, or another version)",
                  profile, s->profile);
    return false;
}

/* --- a row --- */

static void differ(pass *p, int i, const char *why)
{
    if (p->wrong >= 0) return;
    p->wrong = i;
    snprintf(p->why, sizeof p->why, "%s", why);
}

static void compare_draw(pass *p, int i, const float *logits)
{
    const int32_t token = p->receipt->opening.reply[i];
    const uint64_t *allowed = NULL;
    if (p->masks) {
        bool all = true;
        ek_mask mask = ek_bounds_mask(&p->bounds);
        mask.look(mask.arg, NULL, 0, p->allowed, &all);
        allowed = all ? NULL : p->allowed;
    } else if (p->receipt->statement.form.any) {
        return; /* the mask is unknown */
    }
    const int32_t drawn = ek_sample(p->sampler, logits, allowed, &p->sampling, p->tokens, p->n_prompt, p->n_prompt + i);
    char why[200];
    snprintf(why, sizeof why, "the model draws token %d there, the reply has %d", (int)drawn, (int)token);
    if (drawn != token) differ(p, i, why);
}

static void accept(pass *p, int i)
{
    ek_mask mask = ek_bounds_mask(&p->bounds);
    if (p->masks) mask.accept(mask.arg, p->receipt->opening.reply[i]);
}

static void on_row(void *user, int pos, const float *logits)
{
    pass *p = user;
    const int i = pos + 1 - p->n_prompt;
    if (i < p->from || i >= p->to) return;
    const ek_hash *want = p->receipt->opening.row;
    ek_row_root(&p->root[i], logits, p->n_vocab, ek_model_pool(p->m->model));
    p->n_seen++;
    compare_draw(p, i, logits);
    if (want && !ek_hash_equal(&p->root[i], &want[i])) differ(p, i, "its row of logits is another one");
    accept(p, i);
}

static void on_event(void *arg, const ek_event *e)
{
    pass *p = arg;
    if (e->finish == EK_FINISH_NONE) return;
    p->done = true;
    p->failed = e->finish == EK_FINISH_ERROR;
    if (p->failed) snprintf(p->why, sizeof p->why, "%.190s", e->text ? e->text : "the request failed");
}

/* --- the pass --- */

static void open_sampling(pass *p)
{
    const ek_statement *s = &p->receipt->statement;
    const ek_config *c = ek_model_config(p->m->model);
    ek_logit_bias *bias = ek_alloc(((size_t)s->sampling.n_bias + 1) * sizeof *bias);
    for (int i = 0; i < s->sampling.n_bias; i++)
        bias[i] = (ek_logit_bias){s->sampling.bias[i].token, s->sampling.bias[i].bias};
    p->sampling = (ek_sampling){.temperature = s->sampling.temperature,
                                .top_k = s->sampling.top_k,
                                .top_p = s->sampling.top_p,
                                .min_p = s->sampling.min_p,
                                .repetition_penalty = s->sampling.repetition_penalty,
                                .presence_penalty = s->sampling.presence_penalty,
                                .frequency_penalty = s->sampling.frequency_penalty,
                                .seed = s->sampling.seed,
                                .bias = bias,
                                .n_bias = s->sampling.n_bias};
    ek_sampler_open(&p->sampler, ek_cpu_detect(), c->vocab_size, c->suppress, c->n_suppress);
}

/* Opens the bounds that restricted the tokens, at the first row that is compared. */
static ek_err open_bounds(pass *p, const ek_turn_prompt *prompt)
{
    const ek_statement *s = &p->receipt->statement;
    const ek_opening *o = &p->receipt->opening;
    if (!s->form.any) return EK_OK;
    if (o->n_form > 0) EK_TRY(ek_form_grammar(&p->grammar, p->m->chat.vocab, o->form, o->n_form));
    ek_bounds_init(&p->bounds, &p->m->chat, p->grammar, s->form.max_thinking, prompt->ids.data, prompt->ids.len,
                   s->form.thinking);
    p->bounds.n_vocab = p->n_vocab;
    p->masks = true;
    p->allowed = ek_alloc((size_t)ek_mask_words(p->n_vocab) * sizeof *p->allowed);
    for (int i = 0; i < p->from; i++) accept(p, i);
    return EK_OK;
}

static ek_err run(pass *p, const ek_turn_prompt *prompt)
{
    const ek_opening *o = &p->receipt->opening;
    EK_TRY(ek_sampling_check(&p->sampling, p->n_vocab));
    EK_TRY(open_bounds(p, prompt));
    for (int i = 0; i < p->n_prompt; i++) p->tokens[i] = prompt->ids.data[i];
    for (size_t i = 0; i < o->n_reply; i++) p->tokens[p->n_prompt + (int)i] = o->reply[i];
    const ek_request_opts r = {.tokens = p->tokens,
                               .n_tokens = p->n_prompt + p->to - 1,
                               .max_tokens = 1,
                               .part = prompt->part,
                               .n_parts = prompt->n_parts,
                               .sampling = ek_sampling_greedy(),
                               .ignore_eos = true,
                               .prompt_logits_from = p->n_prompt - 1 + p->from,
                               .on_prompt_logits = on_row,
                               .sink = on_event,
                               .arg = p,
                               .user = p};
    EK_TRY(ek_engine_submit(p->m->engine, &r, NULL));
    while (!p->done && ek_engine_step(p->m->engine)) {
    }
    if (p->failed || !p->done) return ek_fail(EK_EIO, "%s", p->why);
    if (p->n_seen != p->to - p->from)
        return ek_fail(EK_EINTERNAL, "the engine computed %d of %d rows", p->n_seen, p->to - p->from);
    return EK_OK;
}

/* All rows were computed, and none contradicts an opened part of the receipt. */
static void judge(ek_report *out, const pass *p)
{
    const ek_opening *o = &p->receipt->opening;
    const bool whole = p->from == 0 && p->to == (int)o->n_reply, roots = o->row != NULL;
    const bool drawn = p->masks || !p->receipt->statement.form.any;
    if (p->wrong >= 0) {
        ek_report_add(out, EK_VERIFIED_WRONG, "rows", "row %d of %zu: %s", p->wrong, o->n_reply, p->why);
        return;
    }
    if (whole) {
        const ek_hash salt = ek_commit_salt(&o->secret, EK_LABEL_ROWS),
                      root = ek_receipt_rows(&salt, o->reply, p->root, o->n_reply);
        const bool same = ek_hash_equal(&root, &p->receipt->statement.rows);
        ek_report_add(out, same ? EK_VERIFIED_OK : EK_VERIFIED_WRONG, "rows",
                      same ? "all %zu rows of logits were computed again and have the signed root%s"
                           : "the %zu rows of logits have another root than was signed%s",
                      o->n_reply, same && drawn ? "; each token is what the model draws from its row" : "");
    } else {
        ek_report_add(out, roots ? EK_VERIFIED_OK : EK_VERIFIED_CANNOT, "rows",
                      roots ? "rows %d to %d were computed again and are as signed"
                            : "rows %d to %d: the receipt has no row_roots, and a span needs them",
                      p->from, p->to - 1);
        ek_report_add(out, EK_VERIFIED_UNCHECKED, "other rows",
                      "%d of %zu were not computed: a token that was changed there would not be found",
                      (int)o->n_reply - (p->to - p->from), o->n_reply);
    }
    if (!drawn) ek_report_add(out, EK_VERIFIED_UNCHECKED, "draws", "the mask of the form is not opened");
}

void ek_verify_rows(ek_report *out, const ek_receipt *r, const ek_opened *m, const ek_turn_prompt *prompt, int from,
                    int to)
{
    const int n_reply = (int)r->opening.n_reply, n_vocab = ek_engine_vocab(m->engine);
    pass p = {.receipt = r,
              .m = m,
              .from = from,
              .to = to,
              .n_prompt = (int)prompt->ids.len,
              .n_vocab = n_vocab,
              .wrong = -1};
    for (int i = 0; i < n_reply; i++)
        if (r->opening.reply[i] >= n_vocab) {
            ek_report_add(out, EK_VERIFIED_WRONG, "rows", "token %d of the reply is %d; the model has %d", i,
                          (int)r->opening.reply[i], n_vocab);
            return;
        }
    if (to <= from) {
        ek_report_add(out, EK_VERIFIED_OK, "rows", "there are none to compute");
        return;
    }
    p.tokens = ek_alloc(((size_t)p.n_prompt + (size_t)n_reply) * sizeof *p.tokens);
    p.root = ek_alloc((size_t)n_reply * sizeof *p.root);
    open_sampling(&p);
    if (run(&p, prompt)) ek_report_add(out, EK_VERIFIED_CANNOT, "rows", "%s", ek_err_text());
    else judge(out, &p);
    ek_sampler_close(p.sampler);
    ek_bounds_fini(&p.bounds);
    ek_grammar_close(p.grammar);
    free((void *)(uintptr_t)p.sampling.bias);
    free(p.tokens), free(p.root), free(p.allowed);
}
