/* draft: a drafter model's proposals after given tokens and the model's own next token, for comparison with other
 * programs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli/frame/open.h"
#include "ops/rows/rows.h"

/* The pages of one sequence. There are no others. */
typedef struct bed {
    ek_kv_memory kv;
    size_t bytes[EK_PAGE_KINDS];
    ek_seq seq;
    int32_t *page;
    ek_scratch *scratch;
    float *logits; /* of one row */
} bed;

static ek_err open_bed(bed *b, const ek_model *m, int n_tokens, int chunk)
{
    const ek_kv_layout *layout = ek_model_kv_layout(m);
    int n_pages = n_tokens / EK_PAGE_TOKENS + 1;
    *b = (bed){.page = ek_alloc(sizeof *b->page * (size_t)n_pages)};
    for (int i = 0; i < n_pages; i++) b->page[i] = i;
    for (int k = 0; k < EK_PAGE_KINDS; k++) {
        b->kv.stride[k] = layout->page_bytes[k];
        b->bytes[k] = layout->page_bytes[k] * (size_t)n_pages;
        if (b->bytes[k]) b->kv.base[k] = ek_alloc_big(b->bytes[k]);
        if (b->bytes[k] && !b->kv.base[k]) return EK_ENOMEM;
    }
    for (int k = 0; k < EK_KIND_COUNT; k++) {
        b->seq.page[k] = b->page;
        b->seq.end[k] = n_pages;
    }
    b->logits = ek_alloc(sizeof *b->logits * (size_t)(ek_model_config(m)->vocab_size + 15));
    return ek_scratch_open(&b->scratch, m, chunk, 1, n_tokens + 1);
}

static void close_bed(bed *b)
{
    ek_scratch_close(b->scratch);
    for (int k = 0; k < EK_PAGE_KINDS; k++) ek_free_big(b->kv.base[k], b->bytes[k]);
    free(b->logits);
    free(b->page);
}

/* Runs the model over the prompt in chunks. Leaves the logits and the state of its last row. */
static ek_err feed(bed *b, const ek_model *m, const ek_list *ids, int chunk)
{
    ek_row *row = ek_alloc(sizeof *row * (size_t)chunk);
    ek_err err = EK_OK;
    for (int at = 0, n; at < ids->n && !err; at += n) {
        n = ids->n - at < chunk ? ids->n - at : chunk;
        for (int i = 0; i < n; i++)
            row[i] = ek_text_row(ids->v[at + i], at + i, 0, at + i == ids->n - 1, ek_model_config(m)->sliding_window);
        err = ek_model_forward(m, b->scratch, &b->kv, row, n, &b->seq, 1, b->logits, ek_model_config(m)->vocab_size);
    }
    free(row);
    return err;
}

/* Drafts into token[0..n). Writes the logits of each token to file, if given. */
static ek_err draft(const bed *b, ek_drafter *d, const ek_list *ids, int32_t bonus, int32_t *token, int n, FILE *file)
{
    const ek_config *c = ek_model_config(ek_drafter_target(d));
    size_t vocab = (size_t)c->vocab_size, bytes = sizeof(float) * (size_t)c->hidden_size;
    float *logits = ek_alloc(sizeof *logits * (vocab + 15)), *state = ek_alloc(bytes);
    memcpy(state, ek_scratch_hidden(b->scratch, 0), bytes);
    ek_drafter_row row = {.seq = &b->seq, .n = ids->n, .token = bonus, .state = state};
    ek_err err = ek_drafter_reserve(d, 1, ids->n + 1);
    for (int i = 0; i < n && !err; i++) {
        err = ek_drafter_step(d, &b->kv, &row, 1, logits, (ptrdiff_t)(vocab + 15) / 16 * 16);
        token[i] = row.token;
        if (!err && file && fwrite(logits, sizeof *logits, vocab, file) != vocab)
            err = ek_fail(EK_EIO, "the logits cannot be written: %s", strerror(errno));
    }
    free(logits);
    free(state);
    return err;
}

static void print(const ek_cli *cli, int32_t bonus, const int32_t *token)
{
    printf(cli->json ? "{\"bonus\":%d,\"draft\":[" : "%d:", bonus);
    for (int i = 0; i < (int)cli->tokens; i++)
        printf(cli->json ? "%s%d" : " %s%d", cli->json && i ? "," : "", token[i]);
    puts(cli->json ? "]}" : "");
}

/* Checks of --ids that need the model. */
static ek_err check_ids(const ek_list *ids, const ek_config *c)
{
    if (ids->n >= c->max_position_embeddings)
        return ek_fail(EK_ETOOLONG, "%d tokens do not fit: the context is %d", ids->n, c->max_position_embeddings);
    for (int i = 0; i < ids->n; i++)
        if (ids->v[i] >= c->vocab_size)
            return ek_fail(EK_EINVAL, "token id %d, the vocabulary has %d", ids->v[i], c->vocab_size);
    return EK_OK;
}

static ek_err run(const ek_cli *cli, const ek_opened *m, FILE *file)
{
    const ek_config *c = ek_model_config(m->model);
    bed b;
    int32_t token[64];
    ek_err err = open_bed(&b, m->model, cli->ids.n, ek_cli_chunk(cli));
    if (!err) err = feed(&b, m->model, &cli->ids, ek_cli_chunk(cli));
    if (!err) {
        ek_row_ops ops;
        ek_row_init(&ops, ek_model_cpu(m->model));
        int32_t bonus = ops.argmax(b.logits, c->vocab_size);
        err = draft(&b, m->drafter, &cli->ids, bonus, token, (int)cli->tokens, file);
        if (!err) print(cli, bonus, token);
    }
    close_bed(&b);
    return err;
}

int ek_cmd_draft(const ek_cli *cli)
{
    if (!cli->has.ids) return ek_cli_wrong(cli, "--ids is missing: the tokens of the prompt, as in --ids 2,17,9");
    if (!cli->has.drafter) return ek_cli_wrong(cli, "--drafter is missing: the folder of the drafter model");
    ek_opened m;
    FILE *file = NULL;
    ek_open_opts o;
    if (ek_cli_open_opts(&o, cli)) return ek_cli_failed(cli);
    o.device = "cpu"; /* as it computes */
    if (ek_cli_open_model(&m, cli, &o)) return ek_cli_failed(cli);
    if (check_ids(&cli->ids, ek_model_config(m.model)))
        return ek_opened_close(&m), ek_cli_wrong(cli, "%s", ek_err_text());
    ek_err err = EK_OK;
    if (cli->has.out && !(file = fopen(cli->out, "wb"))) err = ek_file_failed(cli->out);
    if (!err) err = run(cli, &m, file);
    if (file && fclose(file) && !err) err = ek_file_failed(cli->out);
    if (file && err && ek_is_file(cli->out)) remove(cli->out); /* nothing may take half a result for a whole one */
    ek_opened_close(&m);
    return err ? ek_cli_failed(cli) : 0;
}
