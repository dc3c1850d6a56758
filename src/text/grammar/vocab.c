#include "text/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"
#include "text/grammar/vocab_data.h"

/* Characters of a token that is nothing but the body of a string; 0 if it is something else. *may: whether it may
 * at least begin in one. */
static uint32_t body_chars(ek_body body, const ek_piece *e, bool *may)
{
    uint32_t chars = 0;
    *may = true;
    for (uint32_t i = 0; i < e->n; chars++) {
        uint32_t cp;
        int len = ek_utf8_next((const char *)e->s + i, e->n - i, &cp);
        if (len < 0) return 0;
        if (body == EK_BODY_JSON && (cp == '"' || cp == '\\')) return 0;
        if (body == EK_BODY_JSON && cp < 0x20) {
            *may = false;
            return 0;
        }
        i += (uint32_t)len;
    }
    return chars <= EK_VOCAB_CHARS ? chars : 0;
}

static void build_body(ek_vocab *v, ek_body body, const ek_piece *e, uint32_t n)
{
    size_t row = (size_t)v->n_words;
    uint64_t *set = v->body[body] = ek_alloc(sizeof *set * row * (EK_VOCAB_CHARS + 1));
    ek_piece *rest = ek_alloc(sizeof *rest * ((size_t)n + 1));
    uint32_t n_rest = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool may;
        uint32_t chars = body_chars(body, &e[i], &may);
        if (chars > 0) ek_row_set(set + chars * row, e[i].id);
        else if (may) rest[n_rest++] = e[i];
    }
    for (size_t chars = 1; chars <= EK_VOCAB_CHARS; chars++)
        for (size_t w = 0; w < row; w++) set[chars * row + w] |= set[(chars - 1) * row + w];
    v->bytes += sizeof *set * row * (EK_VOCAB_CHARS + 1) + ek_trie_build(&v->rest[body], rest, n_rest);
    free(rest);
}

static int greater(int a, int b)
{
    return a > b ? a : b;
}

static void measure(ek_vocab *v, const ek_piece *e)
{
    int opening = 0, closing = 0, commas = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        opening += e->s[i] == '{' || e->s[i] == '[';
        closing += e->s[i] == '}' || e->s[i] == ']';
        commas += e->s[i] == ',';
    }
    v->longest = greater(v->longest, (int)e->n);
    v->opening = greater(v->opening, opening);
    v->closing = greater(v->closing, closing);
    v->commas = greater(v->commas, commas);
}

static void build(ek_vocab *v)
{
    int size = ek_tokenizer_size(v->t);
    ek_piece *e = ek_alloc(sizeof *e * ((size_t)size + 1));
    uint32_t n = 0;
    v->n_words = (size + 63) / 64;
    v->text = ek_alloc(sizeof *v->text * (size_t)v->n_words);
    for (int32_t id = 0; id < size; id++) {
        size_t len;
        const char *s = ek_tokenizer_bytes(v->t, id, &len);
        if (len == 0 || len > EK_VOCAB_TOKEN || ek_tokenizer_is_special(v->t, id)) continue;
        e[n++] = (ek_piece){(const uint8_t *)s, (uint32_t)len, id};
        measure(v, &e[n - 1]);
        ek_row_set(v->text, id);
    }
    qsort(e, n, sizeof *e, ek_piece_order);
    v->bytes = sizeof *v->text * (size_t)v->n_words + ek_trie_build(&v->all, e, n);
    for (int b = 0; b < EK_BODY_COUNT; b++) build_body(v, (ek_body)b, e, n);
    ek_vocab_build_runs(v, e, n);
    free(e);
    v->bytes += ek_rows_init(&v->rows, v->n_words, EK_VOCAB_ROWS);
    v->made = ek_alloc(sizeof *v->made * (size_t)v->n_words);
    ek_walk_init(&v->walk);
    v->bytes += sizeof *v->walk.f * (size_t)v->walk.cap + sizeof *v->made * (size_t)v->n_words;
    v->ready = true;
}

ek_vocab *ek_vocab_open(const ek_tokenizer *t)
{
    ek_vocab *v = ek_alloc(sizeof *v);
    v->t = t;
    ek_marks_find(&v->marks, t);
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

void ek_vocab_close(ek_vocab *v)
{
    if (!v) return;
    ek_trie_free(&v->all);
    for (int b = 0; b < EK_BODY_COUNT; b++) {
        ek_trie_free(&v->rest[b]);
        free(v->body[b]);
    }
    free(v->text);
    for (int r = 0; r < EK_RUNS; r++) {
        ek_trie_free(&v->run[r].trie);
        free(v->run[r].set);
    }
    ek_trie_free(&v->odd);
    ek_rows_fini(&v->rows);
    free(v->made);
    ek_walk_fini(&v->walk);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* The tables are more than the reserve holds, so they are not begun where they would not fit. */
static ek_err check_room(const ek_vocab *v)
{
    size_t max = ((size_t)ek_tokenizer_size(v->t) * 256) + ((size_t)4 << 20);
    void *room = malloc(max);
    free(room);
    return room ? EK_OK : ek_fail(EK_ENOMEM, "no memory for the tables of structured output, up to %zu MiB", max >> 20);
}

ek_err ek_vocab_ready(ek_vocab *v)
{
    ek_err err = EK_OK;
    pthread_mutex_lock(&v->lock);
    if (!v->ready) err = check_room(v);
    if (!v->ready && !err) build(v);
    pthread_mutex_unlock(&v->lock);
    return err;
}

ek_vocab_stats ek_vocab_stats_of(ek_vocab *v)
{
    pthread_mutex_lock(&v->lock);
    ek_vocab_stats s = {v->bytes, v->hits, v->misses};
    pthread_mutex_unlock(&v->lock);
    return s;
}
