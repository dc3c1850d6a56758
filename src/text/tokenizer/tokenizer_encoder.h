/* An encoding in progress. Inside src/text/tokenizer*.c. */
#ifndef EK_TEXT_TOKENIZER_ENCODER_H
#define EK_TEXT_TOKENIZER_ENCODER_H

#include "base/wanted.h"
#include "text/tokenizer/tokenizer_data.h"

typedef struct ek_symbol {
    int32_t id, prev, next; /* indices; -1: none. A dead symbol has id -1 */
    uint32_t rank;          /* of its merge with the next one; NO_RANK: none */
    int32_t result;
} ek_symbol;

typedef struct ek_encoder {
    const ek_tokenizer *t;
    const size_t *control;
    size_t n_control, next_control;
    bool all_special, unwanted;
    unsigned n_asked;
    size_t max_ids; /* where encoding may stop */
    ek_ids *out;
    ek_count *count; /* NULL: the ids are wanted. Else they are only counted, and out holds the latest ones */
    const char *text;
    bool stopped;
    ek_buf clean, normal;
    ek_symbol *symbols;
    size_t cap_symbols;
    uint64_t *heap; /* rank << 32 | index of the left symbol; the smallest on top */
    size_t n_heap, cap_heap;
} ek_encoder;

/* False once nobody waits for the ids any more; asked all the time. */
static inline bool ek_encoder_goes_on(ek_encoder *e)
{
    enum { EVERY = 4096 };
    if (++e->n_asked % EVERY == 0 && !ek_is_wanted()) e->unwanted = true;
    return !e->unwanted;
}

/* Merges n symbols, of which the ids are set, until no two neighbours have a merge; appends what is left to e->out. */
void ek_encoder_merge(ek_encoder *e, ek_symbol *s, size_t n);

#endif
