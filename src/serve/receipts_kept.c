/* A server's keys, its log, and its stored receipts. Event thread. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "serve/receipts.h"

enum { MAX_KEPT = 4096, MAX_BYTES = 64 << 20, HOUR = 3600 };

static ek_err open_log(ek_receipts *k, const char *path)
{
    char origin[64];
    snprintf(origin, sizeof origin, "evenkeel/%.16s", ek_signing_key_public(k->keys->key)->id);
    EK_TRY(ek_receipt_log_open(&k->log, path, origin, false));
    k->hour = ek_unix_time() / HOUR;
    return EK_OK;
}

ek_err ek_receipts_open(ek_server *s, const ek_server_opts *o)
{
    if (!o->receipt_key) return EK_OK;
    ek_signing_key *key;
    EK_TRY(ek_signing_key_open(&key, o->receipt_key));
    ek_receipts *k = ek_alloc(sizeof *k);
    k->key_file = ek_strdup(o->receipt_key);
    memcpy(k->weights, o->weights_sha256, sizeof k->weights);
    memcpy(k->tokenizer, o->tokenizer_sha256, sizeof k->tokenizer);
    k->keys = ek_alloc(sizeof *k->keys);
    *k->keys = (ek_server_key){.key = key, .from = ek_unix_time()};
    s->receipts = k;
    k->hides_lengths = o->receipts_hide_lengths;
    if (o->receipt_log) EK_TRY(open_log(k, o->receipt_log));
    if (o->receipt_openings) EK_TRY(ek_openings_open(&k->openings, o->receipt_openings));
    ek_log(EK_LOG_INFO, "event=receipts key=%s weights=%s", ek_signing_key_public(key)->id, k->weights);
    return EK_OK;
}

static void drop_oldest(ek_receipts *k)
{
    ek_kept_receipt *r = k->oldest;
    k->oldest = r->newer;
    if (k->oldest) k->oldest->next = NULL;
    else k->newest = NULL;
    k->n_kept--;
    k->kept_bytes -= r->text.len;
    ek_kept_receipt_release(r);
}

void ek_kept_receipt_release(void *receipt)
{
    ek_kept_receipt *r = receipt;
    if (--r->n_refs > 0) return;
    ek_buf_fini(&r->text);
    free(r->id);
    free(r);
}

/* --- the root of an hour --- */

static void mark(ek_receipts *k)
{
    k->mark_err = ek_receipt_log_mark(k->log, ek_unix_time(), &k->marked, &k->root);
    if (k->mark_err) snprintf(k->mark_why, sizeof k->mark_why, "%s", ek_err_text());
}

static void say_mark(const ek_receipts *k)
{
    char root[65];
    ek_hash_text(root, &k->root);
    if (k->mark_err) ek_log(EK_LOG_ERROR, "event=receipts_root_failed reason=\"%s\"", k->mark_why);
    else if (k->marked > 0)
        ek_log(EK_LOG_INFO, "event=receipts_root origin=%s size=%zu root=%s", ek_receipt_log_origin(k->log), k->marked,
               root);
}

static ek_receipts *of_job(ek_job *j)
{
    return (ek_receipts *)(void *)((char *)j - offsetof(ek_receipts, marking));
}

static void run_mark(ek_job *j)
{
    mark(of_job(j));
}

static void mark_done(ek_job *j)
{
    of_job(j)->marks = false;
    say_mark(of_job(j));
}

/* On a worker, because syncing a disk can take long. */
void ek_receipts_tick(ek_server *s)
{
    ek_receipts *k = s->receipts;
    if (!k || !k->log || k->marks || k->hour == ek_unix_time() / HOUR) return;
    k->hour = ek_unix_time() / HOUR;
    if (ek_receipt_log_size(k->log) == k->marked) return;
    k->marks = true;
    k->marking = (ek_job){.run = run_mark, .done = mark_done, .large = true};
    ek_workers_add_always(s->workers, &k->marking);
}

ek_err ek_receipts_ready(const ek_server *s)
{
    const ek_receipts *k = s->receipts;
    if (k && k->log) EK_TRY(ek_receipt_log_ready(k->log));
    return k && k->openings ? ek_openings_ready(k->openings) : EK_OK;
}

bool ek_receipts_logs(const ek_server *s)
{
    return s->receipts && s->receipts->log;
}

bool ek_receipts_waits(const ek_server *s)
{
    return s->receipts && (s->receipts->log || s->receipts->openings);
}

size_t ek_receipts_root(const ek_server *s, char root[65])
{
    const ek_receipts *k = s->receipts;
    if (!k || !k->log || k->marks) return 0;
    ek_hash_text(root, &k->root);
    return k->marked;
}

size_t ek_receipts_log_size(const ek_server *s)
{
    return ek_receipts_logs(s) ? ek_receipt_log_size(s->receipts->log) : 0;
}

void ek_receipts_close(ek_server *s)
{
    ek_receipts *k = s->receipts;
    if (!k) return;
    if (k->log) mark(k), say_mark(k);
    ek_receipt_log_close(k->log);
    ek_openings_close(k->openings);
    while (k->oldest) drop_oldest(k);
    for (ek_server_key *key; (key = k->keys) != NULL;) {
        k->keys = key->older;
        ek_signing_key_close(key->key);
        free(key);
    }
    free(k->key_file);
    free(k);
    s->receipts = NULL;
}

/* Appends an entry in which the old key signs the new one, so that clients who trust the old key can follow. */
static ek_err log_rotation(ek_receipts *k, const ek_signing_key *key)
{
    char when[EK_STATEMENT_TIME];
    size_t index;
    ek_hash entry;
    ek_buf payload = {0}, text = {0};
    const ek_public_key *next = ek_signing_key_public(key);
    ek_statement_time(when, ek_unix_time());
    ek_buf_fmt(&payload,
               "{\"_type\":\"urn:evenkeel:rotation:1\",\"from\":\"%s\",\"time\":\"%s\",\"to\":\"%s\",\"x\":\"",
               ek_signing_key_public(k->keys->key)->id, when, next->id);
    ek_base64_encode(&payload, next->a, sizeof next->a);
    ek_buf_str(&payload, "\"}");
    ek_err err = ek_receipt_seal(&text, payload.data, payload.len, k->keys->key);
    ek_buf_char(&text, '}');
    ek_sha256(entry.h, text.data, text.len);
    if (!err) err = ek_receipt_log_add(k->log, &entry, ek_buf_text(&text), &index);
    ek_buf_fini(&payload), ek_buf_fini(&text);
    return err;
}

void ek_receipts_reload(ek_server *s)
{
    ek_receipts *k = s->receipts;
    ek_signing_key *key;
    if (!k) return;
    if (k->openings && ek_openings_reopen(k->openings))
        ek_log(EK_LOG_ERROR, "event=receipts_openings_stay reason=\"%s\"", ek_err_text());
    if (ek_signing_key_open(&key, k->key_file)) {
        ek_log(EK_LOG_ERROR, "event=receipts_key_stays reason=\"%s\"", ek_err_text());
        return;
    }
    if (!strcmp(ek_signing_key_public(key)->id, ek_signing_key_public(k->keys->key)->id)) {
        ek_signing_key_close(key);
        return;
    }
    if (k->log && log_rotation(k, key)) {
        ek_log(EK_LOG_ERROR, "event=receipts_key_stays reason=\"%s\"", ek_err_text());
        ek_signing_key_close(key);
        return;
    }
    ek_server_key *next = ek_alloc(sizeof *next);
    k->keys->until = ek_unix_time();
    *next = (ek_server_key){.older = k->keys, .key = key, .from = k->keys->until};
    k->keys = next;
    ek_log(EK_LOG_INFO, "event=receipts_key key=%s before=%s", ek_signing_key_public(key)->id,
           ek_signing_key_public(next->older->key)->id);
}

const ek_signing_key *ek_receipts_key(const ek_server *s)
{
    return s->receipts ? s->receipts->keys->key : NULL;
}

uint64_t ek_receipts_count(const ek_server *s)
{
    return s->receipts ? s->receipts->made : 0;
}

void ek_receipts_keep(ek_server *s, uint64_t owner, const char *id, ek_buf *text)
{
    ek_receipts *k = s->receipts;
    k->made++;
    if (text->len > MAX_BYTES / 4) {
        ek_buf_fini(text);
        return;
    }
    ek_kept_receipt *r = ek_alloc(sizeof *r);
    *r = (ek_kept_receipt){.next = k->newest, .n_refs = 1, .owner = owner, .id = ek_strdup(id), .text = *text};
    *text = (ek_buf){0};
    if (r->next) r->next->newer = r;
    else k->oldest = r;
    k->newest = r;
    k->n_kept++;
    k->kept_bytes += r->text.len;
    while (k->n_kept > MAX_KEPT || k->kept_bytes > MAX_BYTES) drop_oldest(k);
}
