/* replies: writes a store's replies to a file, and a file's replies into a store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "cli/serve/serve_replies.h"
#include "replies/backends.h"

/* --- export --- */

/* A reply in the store: its content key, by which lines are sorted, and its own key. */
typedef struct entry {
    ek_reply_key content, key;
    int n, n_probs;
} entry;

typedef struct exporting {
    const ek_cli *cli;
    FILE *file;
    double since; /* seconds since 1970 */
    const char *identity;
    char *empty;             /* the identity of the first store without such replies */
    ek_tokenizer *tokenizer; /* the tokenizer of --model; NULL: the replies have other tokens, so they get no text */
    char words[EK_CHAT_NAME];
    entry *entry;
    size_t n, cap;
    size_t written, without; /* without: number of replies whose requests were not kept */
    size_t damaged;          /* number of replies whose requests cannot be read */
    char why[200];           /* the reason for the first of these */
    ek_signing_key *key;     /* NULL: nobody signs */
} exporting;

static bool note(void *arg, ek_reply_record *r)
{
    exporting *x = arg;
    ek_buf line = {0};
    entry e = {.key = *ek_reply_record_key(r), .n = ek_reply_record_tokens(r), .n_probs = ek_reply_record_n_probs(r)};
    const ek_err err = ek_cassette_line(&line, r, x->identity, NULL, &e.content, NULL);
    if (err == EK_EINVAL) {
        x->without++;
    } else if (err) {
        if (x->damaged++ == 0) snprintf(x->why, sizeof x->why, "%s", ek_err_text());
    } else {
        if (x->n == x->cap) {
            x->cap = x->cap ? 2 * x->cap : 1024;
            x->entry = ek_realloc(x->entry, x->cap * sizeof *x->entry);
        }
        x->entry[x->n++] = e;
    }
    ek_buf_fini(&line);
    return true;
}

/* Orders by content key. If several owners have one key, the entry with the most information comes first. */
static int by_content(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int order = memcmp(x->content.h, y->content.h, sizeof x->content.h);
    if (order) return order;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    if (x->n_probs != y->n_probs) return x->n_probs > y->n_probs ? -1 : 1;
    return memcmp(x->key.h, y->key.h, sizeof x->key.h);
}

static void text_of(ek_buf *out, const exporting *x, const ek_reply_record *r)
{
    const int n = ek_reply_record_tokens(r);
    int32_t *tokens = ek_alloc((size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) tokens[i] = ek_reply_record_token(r, i);
    ek_decode(x->tokenizer, tokens, (size_t)n, false, out);
    free(tokens);
}

static ek_err write_entry(exporting *x, const ek_reply_backend *disk, const entry *e, ek_cassette_end *end)
{
    char sum[65];
    ek_buf line = {0}, text = {0};
    ek_reply_record *r = disk->find(disk->arg, &e->key, &e->content, 0);
    if (!r) return EK_OK; /* damaged since */
    if (x->tokenizer) text_of(&text, x, r);
    ek_err err = ek_cassette_line(&line, r, x->identity, x->tokenizer ? &text : NULL, NULL, sum);
    if (!err && fwrite(line.data, 1, line.len, x->file) != line.len)
        err = ek_fail(EK_EIO, "the file cannot be written");
    if (!err) ek_cassette_end_add(end, sum), x->written++;
    ek_reply_record_release(r);
    ek_buf_fini(&line);
    ek_buf_fini(&text);
    return err;
}

static ek_err write_entries(exporting *x, const ek_reply_backend *disk)
{
    ek_buf line = {0};
    ek_cassette_end end;
    ek_err err = EK_OK;
    ek_cassette_head(&line, x->identity);
    fwrite(line.data, 1, line.len, x->file);
    ek_cassette_end_init(&end);
    if (x->n) qsort(x->entry, x->n, sizeof *x->entry, by_content);
    for (size_t i = 0; i < x->n && !err; i++) {
        const bool again = i > 0 && !memcmp(x->entry[i].content.h, x->entry[i - 1].content.h, EK_REPLY_KEY);
        if (!again) err = write_entry(x, disk, &x->entry[i], &end);
    }
    ek_buf_clear(&line);
    const ek_cassette_signer signer = {ek_trust_sign, x->key, x->key ? ek_signing_key_public(x->key)->id : NULL};
    if (!err) err = ek_cassette_end_line(&line, x->identity, &end, x->key ? &signer : NULL);
    if (!err) fwrite(line.data, 1, line.len, x->file);
    ek_buf_fini(&line);
    return err;
}

static ek_err export_store(void *arg, const char *identity)
{
    exporting *x = arg;
    ek_reply_backend disk;
    ek_tokenizer *tokenizer = x->tokenizer;
    const ek_reply_disk_opts o = {
        .dir = x->cli->cache_dir, .identity = identity, .n_vocab = EK_MAX_VOCAB, .max_bytes = 1e18, .read_only = true};
    EK_TRY(ek_reply_disk_open(&disk, &o));
    x->identity = identity;
    x->n = 0;
    if (!strstr(identity, x->words)) x->tokenizer = NULL;
    ek_err err = ek_reply_disk_each(&disk, x->since, note, x);
    if (!err && x->n) err = write_entries(x, &disk);
    else if (!err && !x->empty) x->empty = ek_strdup(identity);
    x->tokenizer = tokenizer;
    disk.close(disk.arg);
    return err;
}

/* "30m", "12h", "7d": seconds. */
static bool read_age(const char *text, double *out)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    char *end;
    const double n = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (end == text || !unit || end[1] || !(n >= 0 && n < 1e9)) return false;
    *out = n * seconds[unit - units];
    return true;
}

/* Opens the tokenizer of --model, so that lines have a text. Other models' lines have no text. */
static void open_words(exporting *x, ek_opened *m)
{
    ek_open_opts o;
    *m = (ek_opened){0};
    if (ek_cli_open_opts(&o, x->cli) || ek_open_without_weights(m, &o)) return;
    const ek_config *c = ek_model_config(m->model);
    x->tokenizer = m->chat.tokenizer;
    ek_chat_model_name(x->words, &m->chat, c->stop, c->n_stop);
}

static ek_err write_file(exporting *x, const char *path)
{
    ek_new_file file;
    EK_TRY(ek_new_file_open(&file, path, 0600));
    x->file = file.to;
    ek_err err = ek_reply_disk_list(x->cli->cache_dir, export_store, x);
    if (!err && x->written == 0 && x->empty) { /* --since of a quiet day: a file of no replies is one, too */
        x->identity = x->empty, x->n = 0;
        err = write_entries(x, NULL);
    }
    return ek_new_file_close(&file, err);
}

static int export_to(const ek_cli *cli, const char *path)
{
    exporting x = {.cli = cli, .words = "?"};
    double age;
    ek_opened m;
    if (cli->has.since) {
        if (!read_age(cli->since, &age))
            return ek_cli_wrong(cli, "--since %.40s: a time is needed, as in 30m, 12h or 7d", cli->since);
        x.since = ek_unix_now() - age;
    }
    open_words(&x, &m);
    ek_err err = cli->has.sign ? ek_signing_key_open(&x.key, cli->sign) : EK_OK;
    if (!err) err = write_file(&x, path);
    ek_signing_key_close(x.key);
    ek_opened_close(&m);
    free(x.entry);
    free(x.empty);
    if (err) return ek_cli_refused(cli, err);
    ek_cli_put(stdout, path);
    printf(": %zu replies\n", x.written);
    if (x.without)
        fprintf(
            stderr,
            "evenkeel replies: %zu more replies cannot be exported, because the server did not keep what was asked: "
            "start it with --cache-replies-prompts\n",
            x.without);
    if (x.damaged)
        fprintf(stderr, "evenkeel replies: %zu more replies are left out, because their requests cannot be read: %s\n",
                x.damaged, x.why);
    return x.damaged > 0;
}

/* --- import --- */

enum { BATCH = 256 };

typedef struct importing {
    const ek_cli *cli;
    char *identity; /* the identity of the open store */
    ek_reply_backend disk;
    ek_reply_record *record[BATCH];
    int n;
    size_t refused, written;
    ek_trust trust;
    ek_err err; /* the first error of a store; nothing is stored afterwards */
    char why[512];
} importing;

static void fail(importing *m, ek_err err)
{
    if (m->err || !err) return;
    m->err = err;
    snprintf(m->why, sizeof m->why, "%s", ek_err_text());
}

static void write_batch(importing *m)
{
    static const uint64_t nobody[BATCH];
    if (m->n && !m->err) fail(m, m->disk.write(m->disk.arg, m->record, nobody, m->n));
    if (!m->err) m->written += (size_t)m->n;
    for (int i = 0; i < m->n; i++) ek_reply_record_release(m->record[i]);
    m->n = 0;
}

static void close_store(importing *m)
{
    write_batch(m);
    if (m->identity) m->disk.close(m->disk.arg);
    free(m->identity);
    m->identity = NULL;
}

static bool wants(void *arg, const char *identity)
{
    importing *m = arg;
    const ek_reply_disk_opts o = {.dir = m->cli->cache_dir,
                                  .identity = identity,
                                  .n_vocab = EK_MAX_VOCAB,
                                  .max_bytes = 1e18}; /* the server sets the limit */
    if (m->err) return false;
    if (m->identity && !strcmp(m->identity, identity)) return true;
    close_store(m);
    fail(m, ek_reply_disk_open(&m->disk, &o));
    if (!m->err) m->identity = ek_strdup(identity);
    return !m->err;
}

/* The line has the content key. The store's key is that of requests without an API key and a salt. */
static void take(void *arg, const char *identity, ek_reply_record *r)
{
    importing *m = arg;
    size_t n;
    ek_reply_key key;
    ek_reply_draft d = {0};
    const char *ask = ek_reply_record_ask(r, &n);
    (void)identity;
    ek_reply_key_for(&key, ek_reply_record_key(r), 0, NULL, 0);
    ek_reply_draft_begin(&d, r, ek_reply_record_tokens(r));
    m->record[m->n++] = ek_reply_record_make(&key, &d, ask, n);
    ek_reply_record_release(r);
    if (m->n == BATCH) write_batch(m);
}

static void refuse(void *arg, size_t number, const char *reason)
{
    enum { TOLD = 20 };
    importing *m = arg;
    if (m->refused++ < TOLD) fprintf(stderr, "evenkeel replies: line %zu is not taken: %s\n", number, reason);
}

static bool is_trusted(void *arg, const char *key, const char *signature, size_t n_signature, const void *message,
                       size_t n)
{
    return ek_trust_has(&((const importing *)arg)->trust, key, signature, n_signature, message, n);
}

static int import_from(const ek_cli *cli, const char *path)
{
    importing m = {.cli = cli};
    ek_cassette_counts counts;
    const ek_cassette_read how = {.n_vocab = EK_MAX_VOCAB,
                                  .with_asks = true,
                                  .wants = wants,
                                  .take = take,
                                  .refuse = refuse,
                                  .trusts = cli->has.trust ? is_trusted : NULL,
                                  .arg = &m};
    ek_err err = ek_trust_open(&m.trust, &cli->trust);
    if (!err) err = ek_cassette_read_file(&counts, path, &how);
    close_store(&m);
    ek_trust_close(&m.trust);
    if (!err && m.err) err = ek_fail(m.err, "%s; %zu replies were taken before", m.why, m.written);
    if (err) return ek_cli_refused(cli, err);
    ek_cli_put(stdout, path);
    printf(": %zu replies taken, %zu lines refused\n", m.written, counts.refused + counts.others);
    return counts.refused + counts.others > 0;
}

int ek_cmd_replies(const ek_cli *cli)
{
    const char *what = cli->args.v[0];
    const bool out = !strcmp(what, "export");
    if (!out && strcmp(what, "import") != 0)
        return ek_cli_wrong(cli, "%.40s: export FILE or import FILE is needed", what);
    if (!cli->has.cache_dir) return ek_cli_wrong(cli, "--cache-dir DIR is missing: the folder of a server's store");
    return out ? export_to(cli, cli->args.v[1]) : import_from(cli, cli->args.v[1]);
}
