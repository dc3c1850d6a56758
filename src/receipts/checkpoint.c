/* Checkpoints of a log, and the proof that a receipt is an entry of the log. */
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/hash/hash.h"
#include "receipts/log.h"

enum { MAX_NOTE = 4096, KEY_HASH = 4 };

/* The hash of a note's key begins with the key's algorithm: 1, Ed25519. */
static void note_key(uint8_t out[KEY_HASH], const char *name, const ek_public_key *key)
{
    ek_buf b = {0};
    uint8_t h[32];
    ek_buf_fmt(&b, "%s\n", name);
    ek_buf_char(&b, 1);
    ek_buf_add(&b, key->a, sizeof key->a);
    ek_sha256(h, b.data, b.len);
    memcpy(out, h, KEY_HASH);
    ek_buf_fini(&b);
}

static void put_body(ek_buf *out, const char *origin, size_t size, const ek_hash *root)
{
    ek_buf_fmt(out, "%s\n%zu\n", origin, size);
    ek_base64_encode(out, root->h, EK_HASH);
    ek_buf_char(out, '\n');
}

ek_err ek_checkpoint_write(ek_buf *out, const char *origin, size_t size, const ek_hash *root, const ek_signing_key *key)
{
    ek_buf body = {0};
    uint8_t sig[KEY_HASH + EK_SIGNATURE];
    put_body(&body, origin, size, root);
    note_key(sig, origin, ek_signing_key_public(key));
    const ek_err err = ek_sign(key, sig + KEY_HASH, body.data, body.len);
    ek_buf_add(out, body.data, body.len);
    ek_buf_fmt(out, "\n\xe2\x80\x94 %s ", origin);
    ek_base64_encode(out, sig, sizeof sig);
    ek_buf_char(out, '\n');
    ek_buf_fini(&body);
    return err;
}

/* The next line of text, without its newline; false: there is none. */
static bool line_of(const char **at, const char *end, const char **line, size_t *n)
{
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    if (!stop) return false;
    *line = *at, *n = (size_t)(stop - *at);
    *at = stop + 1;
    return true;
}

static bool read_sig(uint8_t out[KEY_HASH + EK_SIGNATURE], const char *line, size_t n, const char *origin)
{
    ek_buf bytes = {0};
    const size_t head = 4 + strlen(origin) + 1; /* a dash of three bytes and a blank, the name and a blank */
    const bool good = n > head && !memcmp(line, "\xe2\x80\x94 ", 4) && !memcmp(line + 4, origin, strlen(origin)) &&
                      line[head - 1] == ' ' && ek_base64_decode(&bytes, line + head, n - head) &&
                      bytes.len == KEY_HASH + EK_SIGNATURE;
    if (good) memcpy(out, bytes.data, bytes.len);
    ek_buf_fini(&bytes);
    return good;
}

static ek_err read_body(char origin[MAX_NOTE], size_t *size, ek_hash *root, const char **at, const char *end)
{
    const char *name, *count, *sum, *blank;
    size_t n_name, n_count, n_sum, n_blank;
    ek_buf bytes = {0}, again = {0};
    const char *const begin = *at;
    if (!line_of(at, end, &name, &n_name) || !line_of(at, end, &count, &n_count) || !line_of(at, end, &sum, &n_sum))
        return ek_fail(EK_EFORMAT, "a checkpoint has three lines and more");
    const char *const stop = *at;
    bool good = line_of(at, end, &blank, &n_blank) && n_blank == 0 && n_count > 0 && n_count < 20 && n_name > 0 &&
                ek_base64_decode(&bytes, sum, n_sum) && bytes.len == EK_HASH;
    if (good) {
        memcpy(root->h, bytes.data, EK_HASH);
        *size = (size_t)strtoull(count, NULL, 10);
        memcpy(origin, name, n_name);
        origin[n_name] = '\0';
        put_body(&again, origin, *size, root); /* one form only */
        good = again.len == (size_t)(stop - begin) && !memcmp(again.data, begin, again.len);
    }
    ek_buf_fini(&bytes), ek_buf_fini(&again);
    return good ? EK_OK : ek_fail(EK_EFORMAT, "this is no checkpoint");
}

ek_err ek_checkpoint_read(size_t *size, ek_hash *root, bool *good, const char *text, size_t n, const ek_public_key *key)
{
    char origin[MAX_NOTE];
    uint8_t sig[KEY_HASH + EK_SIGNATURE], id[KEY_HASH];
    const char *at = text, *const end = text + n, *line;
    size_t n_line;
    *good = false;
    if (n >= MAX_NOTE) return ek_fail(EK_EFORMAT, "a checkpoint of %zu bytes, less than %d are taken", n, MAX_NOTE);
    EK_TRY(read_body(origin, size, root, &at, end));
    const size_t n_body = (size_t)(at - text) - 1;
    note_key(id, origin, key);
    while (!*good && line_of(&at, end, &line, &n_line)) /* others may have signed, too */
        if (read_sig(sig, line, n_line, origin) && !memcmp(sig, id, KEY_HASH))
            EK_TRY(ek_signature_check(good, key, sig + KEY_HASH, text, n_body));
    return EK_OK;
}

static int read_path(ek_hash path[EK_PATH_MAX], const json_t *list)
{
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > EK_PATH_MAX) return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!ek_json_is_text(v) || !ek_hash_read(&path[i], json_string_value(v), json_string_length(v))) return -1;
    }
    return (int)n;
}

ek_err ek_receipt_logged(bool *good, size_t *size, const ek_receipt *r, const char *kept, size_t n_kept,
                         const ek_public_key *key)
{
    ek_hash path[EK_PATH_MAX], root, entry;
    const json_t *index = ek_json_get(r->log, "index");
    const int n = read_path(path, ek_json_get(r->log, "path"));
    if (!kept) kept = ek_json_get_text(r->log, "checkpoint", &n_kept);
    *good = false;
    if (n < 0 || !kept || !json_is_integer(index) || json_integer_value(index) < 0)
        return ek_fail(EK_EFORMAT, "the receipt has no path into a log: GET /v1/receipts/ID gives it");
    EK_TRY(ek_checkpoint_read(size, &root, good, kept, n_kept, key));
    ek_receipt_entry(&entry, r);
    const ek_hash leaf = ek_tree_leaf(entry.h, EK_HASH);
    *good = *good && ek_tree_has(&root, *size, (size_t)json_integer_value(index), &leaf, path, n);
    return EK_OK;
}
