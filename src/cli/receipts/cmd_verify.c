/* verify. Exit status 0: every possible check succeeded; 1: another answer; 2: a check is impossible. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/frame/terminal.h"
#include "cli/receipts/verify.h"
#include "receipts/log.h"

enum { MAX_PROMPT = 128 << 20 };

void ek_report_add(ek_report *r, ek_verified how, const char *name, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    r->check = ek_realloc(r->check, (size_t)(r->n + 1) * sizeof *r->check);
    r->check[r->n++] = (ek_check){.name = name, .how = how, .text = ek_strdup(line)};
}

/* The exit status. */
static int report_status(const ek_report *r)
{
    int status = 0;
    for (int i = 0; i < r->n; i++) {
        if (r->check[i].how == EK_VERIFIED_WRONG) return 1;
        if (r->check[i].how == EK_VERIFIED_CANNOT) status = 2;
    }
    return status;
}

static void report_fini(ek_report *r)
{
    for (int i = 0; i < r->n; i++) free(r->check[i].text);
    free(r->check);
    *r = (ek_report){0};
}

/* --- the output --- */

typedef struct said {
    const ek_cli *cli;
    bool rows; /* the model was asked for rows */
    ek_buf json;
    int status;
} said;

static bool holds(const ek_report *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->check[i].name, name)) return r->check[i].how == EK_VERIFIED_OK;
    return false;
}

static const char *verdict_of(const ek_report *r)
{
    const int status = report_status(r);
    return status == 1        ? "another answer"
           : status == 2      ? "cannot be checked"
           : holds(r, "rows") ? "verified"
                              : "signed";
}

/* What a valid receipt proves, and what no receipt proves. */
static int sentences(const char *out[8], const ek_report *r, bool proven)
{
    int n = 0;
    if (!proven) {
        out[n++] = "that the key's holder gave no other answer to the same question";
        out[n++] = "the time, the hardware, who made the weights, and that nobody read the prompt";
        if (!holds(r, "your prompt")) out[n++] = "that the prompt is yours (--prompt FILE)";
        if (!holds(r, "rows")) out[n++] = "that the model gives these tokens (--model)";
        return n;
    }
    if (report_status(r) != 0) return 0;
    if (holds(r, "signature")) out[n++] = "the key's holder signed this statement";
    if (holds(r, "rows") && holds(r, "model"))
        out[n++] =
            "the tokens follow from these weights, arithmetic, prompt and options, at every row that was computed";
    if (holds(r, "your prompt")) out[n++] = "the prompt has nothing beside yours";
    if (holds(r, "log")) out[n++] = "the receipt was in the log before that checkpoint";
    return n;
}

static void put_line(const char *what, const char *name, const char *text)
{
    printf("%-9s %-12s ", what, name);
    ek_cli_put(stdout, text);
    putchar('\n');
}

static void print(const ek_report *r, int i, int n)
{
    static const char *const words[] = {"ok", "WRONG", "cannot", "unchecked"};
    const char *text[8];
    if (n > 1) printf("receipt %d of %d\n", i, n);
    for (int k = 0; k < r->n; k++) put_line(words[r->check[k].how], r->check[k].name, r->check[k].text);
    for (int side = 1; side >= 0; side--)
        for (int k = 0, m = sentences(text, r, side); k < m; k++)
            printf("%-22s %s\n", side ? "proven:" : "not proven:", text[k]);
    printf("%s\n", verdict_of(r));
}

static void put_sentences(ek_buf *out, const char *name, const ek_report *r, bool proven)
{
    const char *text[8];
    const int n = sentences(text, r, proven);
    ek_buf_fmt(out, ",\"%s\":[", name);
    for (int k = 0; k < n; k++) {
        if (k) ek_buf_char(out, ',');
        ek_json_quote(out, text[k], strlen(text[k]));
    }
    ek_buf_char(out, ']');
}

static void put_json(said *s, const ek_report *r)
{
    static const char *const words[] = {"ok", "wrong", "cannot", "unchecked"};
    ek_buf *out = &s->json;
    ek_buf_fmt(out, "%s{\"verdict\":\"%s\",\"status\":%d,\"checks\":[", out->len ? "," : "", verdict_of(r),
               report_status(r));
    for (int k = 0; k < r->n; k++) {
        ek_buf_fmt(out, "%s{\"name\":\"%s\",\"result\":\"%s\",\"text\":", k ? "," : "", r->check[k].name,
                   words[r->check[k].how]);
        ek_json_quote(out, r->check[k].text, strlen(r->check[k].text));
        ek_buf_char(out, '}');
    }
    ek_buf_char(out, ']');
    put_sentences(out, "proven", r, true);
    put_sentences(out, "not_proven", r, false);
    ek_buf_char(out, '}');
}

static void say(said *s, const ek_report *r, int i, int n)
{
    const int status = report_status(r);
    if (s->cli->json) put_json(s, r);
    else print(r, i, n);
    if (status == 1 || (status == 2 && s->status == 0)) s->status = status;
}

/* --- the checks --- */

static void check_signature(ek_report *out, const ek_receipt *r, const ek_public_key *key)
{
    ek_signed how;
    if (ek_receipt_signed(&how, r, key)) ek_report_add(out, EK_VERIFIED_CANNOT, "signature", "%s", ek_err_text());
    else if (how == EK_SIGNED_GOOD) ek_report_add(out, EK_VERIFIED_OK, "signature", "by key %s", key->id);
    else if (how == EK_SIGNED_WRONG)
        ek_report_add(out, EK_VERIFIED_WRONG, "signature",
                      "it is not what key %s signed: the statement was changed, or another made it", key->id);
    else
        ek_report_add(out, EK_VERIFIED_CANNOT, "signature", "the receipt is of key %s, --key has %s", r->statement.key,
                      key->id);
}

/* The signature can show that a receipt was changed, even if the receipt cannot be read. */
static void check_unread(ek_report *out, const ek_receipt *r, const ek_public_key *key)
{
    ek_signed how;
    char why[512];
    snprintf(why, sizeof why, "%s", ek_err_text());
    if (r->n_signatures > 0 && !ek_receipt_signed(&how, r, key) && how == EK_SIGNED_WRONG) check_signature(out, r, key);
    ek_report_add(out, EK_VERIFIED_CANNOT, "form", "%s", why);
}

static void check_opening(ek_report *out, const ek_receipt *r)
{
    const char *label = r->has_opening ? ek_receipt_opens(r) : NULL;
    if (!r->has_opening)
        ek_report_add(out, EK_VERIFIED_UNCHECKED, "opening", "the receipt has none: its commitments say nothing");
    else if (label) ek_report_add(out, EK_VERIFIED_WRONG, "opening", "%s are not those that were signed", label);
    else
        ek_report_add(out, EK_VERIFIED_OK, "opening", "%zu tokens of the prompt and %zu of the reply are as signed",
                      r->opening.n_prompt, r->opening.n_reply);
}

/* A:B, rows from A to B - 1; either may be missing. */
static ek_err read_span(int *from, int *to, const ek_cli *cli, int n)
{
    char rest;
    *from = 0, *to = n;
    if (!cli->has.span) return EK_OK;
    const char *s = cli->span;
    bool good = strchr(s, ':') != NULL;
    if (good && *s != ':') good = sscanf(s, "%9d%c", from, &rest) == 2 && rest == ':';
    if (good && strchr(s, ':')[1]) good = sscanf(strchr(s, ':') + 1, "%9d%c", to, &rest) == 1;
    if (!good || *from < 0 || *from > *to || *to > n)
        return ek_fail(EK_EINVAL, "--span %.40s: A:B with 0 <= A <= B <= %d is needed", s, n);
    return EK_OK;
}

typedef struct verifying {
    const ek_cli *cli;
    ek_public_key key;
    ek_buf text, prompt, checkpoint;
    json_t *file; /* the text's file, which may be a whole reply */
    int n;        /* receipts in it */
    ek_opened m;
    bool opened;
} verifying;

/* Receipt i belongs to choice i. */
static void check_rows(verifying *v, ek_report *out, const ek_receipt *r, int i, ek_asked *asked)
{
    const ek_opening *o = &r->opening;
    ek_turn_prompt *prompt = &asked->prompt;
    int from, to;
    if (!ek_verify_model(out, r, &v->m)) return;
    if (!r->has_opening || !o->prompt || !o->reply) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "rows", "the receipt does not open the tokens");
        return;
    }
    ek_verify_reply(out, r, &v->m, asked, v->file, i, v->n);
    if (read_span(&from, &to, v->cli, (int)o->n_reply)) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "rows", "%s", ek_err_text());
        return;
    }
    if (prompt->ids.len == 0 && r->statement.prompt.n_media > 0) {
        ek_report_add(out, EK_VERIFIED_CANNOT, "rows", "the prompt has %d pictures or sounds: they come with --prompt",
                      r->statement.prompt.n_media);
        return;
    }
    for (size_t t = 0; prompt->ids.len < o->n_prompt; t++) ek_ids_add(&prompt->ids, o->prompt[t]);
    ek_verify_rows(out, r, &v->m, prompt, from, to);
}

/* Checks that the receipt was in the log before a checkpoint: the one beside it, or a kept one. */
static void check_log(verifying *v, ek_report *out, const ek_receipt *r)
{
    bool good;
    size_t size;
    const bool kept = v->cli->has.checkpoint;
    if (!kept && !ek_json_get(r->log, "path")) return;
    if (ek_receipt_logged(&good, &size, r, kept ? ek_buf_text(&v->checkpoint) : NULL, v->checkpoint.len, &v->key))
        ek_report_add(out, kept ? EK_VERIFIED_CANNOT : EK_VERIFIED_WRONG, "log", "%s", ek_err_text());
    else if (good)
        ek_report_add(out, EK_VERIFIED_OK, "log", "the receipt is among the %zu entries of %s checkpoint", size,
                      kept ? "your" : "a signed");
    else
        ek_report_add(out, EK_VERIFIED_WRONG, "log",
                      "the receipt is not among the %zu entries of %s checkpoint: it came later, or the log is another",
                      size, kept ? "your" : "its");
}

static void check_all(verifying *v, ek_report *out, const ek_receipt *r, int i)
{
    ek_asked asked = {0};
    bool good = true;
    ek_report_add(out, EK_VERIFIED_OK, "form", "one reading, version %d, at %s", EK_STATEMENT_VERSION,
                  r->statement.time);
    check_signature(out, r, &v->key);
    check_opening(out, r);
    check_log(v, out, r);
    if (v->cli->has.model && !v->opened && report_status(out) != 1) {
        good = !ek_verify_open(&v->m, v->cli, r);
        v->opened = good;
        if (!good) ek_report_add(out, EK_VERIFIED_CANNOT, "model", "%s", ek_err_text());
    }
    if (v->cli->has.prompt__verify && good)
        ek_verify_prompt(out, r, v->opened ? &v->m.chat : NULL, v->opened ? ek_model_config(v->m.model) : NULL,
                         ek_buf_text(&v->prompt), v->prompt.len, &asked);
    if (v->opened && report_status(out) != 1) check_rows(v, out, r, i, &asked);
    ek_asked_fini(&asked);
}

static ek_err read_all(verifying *v)
{
    const ek_cli *cli = v->cli;
    if (!cli->has.key__verify)
        return ek_fail(EK_EINVAL, "--key PUB is needed: the public key that its signer gave you");
    EK_TRY(ek_public_key_read(&v->key, cli->key__verify));
    EK_TRY(strcmp(cli->arg, "-") ? ek_file_read(&v->text, cli->arg, EK_RECEIPT_BYTES)
                                 : ek_fd_read(&v->text, STDIN_FILENO, EK_RECEIPT_BYTES));
    if (cli->has.prompt__verify) EK_TRY(ek_file_read(&v->prompt, cli->prompt__verify, MAX_PROMPT));
    if (cli->has.checkpoint) EK_TRY(ek_file_read(&v->checkpoint, cli->checkpoint, 1 << 16));
    return EK_OK;
}

static ek_err verify(verifying *v, said *s)
{
    EK_TRY(read_all(v));
    const ek_err unread = ek_receipts_parse(&v->file, &v->n, ek_buf_text(&v->text), v->text.len);
    for (int i = 0; i < v->n || (unread && i == 0); i++) {
        ek_receipt r = {0};
        ek_report report = {0};
        if (unread || ek_receipt_of_file(&r, v->file, i)) check_unread(&report, &r, &v->key);
        else check_all(v, &report, &r, i);
        say(s, &report, i, v->n);
        report_fini(&report);
        ek_receipt_fini(&r);
    }
    return EK_OK;
}

int ek_cmd_verify(const ek_cli *cli)
{
    verifying v = {.cli = cli};
    said s = {.cli = cli};
    const ek_err err = verify(&v, &s);
    if (err) {
        ek_cli_failed(cli);
        s.status = 2;
    } else if (cli->json) {
        printf("{\"status\":%d,\"receipts\":[%s]}\n", s.status, ek_buf_text(&s.json));
    }
    ek_opened_close(&v.m);
    json_decref(v.file);
    ek_buf_fini(&v.text), ek_buf_fini(&v.prompt), ek_buf_fini(&v.checkpoint), ek_buf_fini(&s.json);
    return s.status;
}
