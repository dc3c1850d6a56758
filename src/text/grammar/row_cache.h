/* A cache of rows of allowed tokens: a ring of records, in which the oldest make room, and a table that finds them.
 * Most rows are a set that the vocabulary has anyway and a few tokens more, and are kept as that; others as they are.
 * Inside src/text; one thread at a time. */
#ifndef EK_TEXT_ROW_CACHE_H
#define EK_TEXT_ROW_CACHE_H

#include "text/grammar/grammar_state.h"

/* What a row is a function of: the grammar and the frames of a stack, the uppermost first. */
typedef struct ek_row_key {
    char grammar[64]; /* ek_grammar.id */
    uint64_t hash;
    int n;
    ek_frame frame[EK_GRAPH_DEPTH];
} ek_row_key;

typedef struct ek_row_slot {
    uint64_t hash, at; /* at: 1 + where the record was written; 0: empty */
} ek_row_slot;

typedef struct ek_rows {
    uint64_t *ring, cap, end; /* 64-bit words; end: all that were ever written */
    ek_row_slot *slot;
    int n_words; /* of a row */
} ek_rows;

/* Takes all its memory, room for n_rows dense rows of n_words 64-bit words; returns its bytes. */
size_t ek_rows_init(ek_rows *c, int n_words, int n_rows);
void ek_rows_fini(ek_rows *c);

/* A record: borrowed until the next ek_rows_put. */
typedef struct ek_row_record ek_row_record;
const ek_row_record *ek_rows_find(const ek_rows *c, const ek_row_key *key);
/* base: a set of which row has all members, or NULL; it outlives the cache. */
const ek_row_record *ek_rows_put(ek_rows *c, const ek_row_key *key, const uint64_t *base, const uint64_t *row);
/* Writes the record's row into out, n_words words of it, or joins it to what is there. */
void ek_rows_get(const ek_rows *c, const ek_row_record *r, bool join, int n_words, uint64_t *out);

#endif
