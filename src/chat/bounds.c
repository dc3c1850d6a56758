#include "chat/bounds.h"

#include <string.h>

void ek_bounds_init(ek_bounds *b, const ek_chat_model *m, const ek_grammar *grammar, int max_thinking,
                    const int32_t *prompt, size_t n, bool thinking)
{
    *b = (ek_bounds){0};
    ek_thought_start(&b->thought, &m->marks, max_thinking, prompt, n);
    if (grammar) b->grammar = ek_grammar_state_open(grammar, m->vocab, prompt, n, thinking);
}

void ek_bounds_fini(ek_bounds *b)
{
    ek_grammar_state_close(b->grammar);
    b->grammar = NULL;
}

bool ek_bounds_any(const ek_bounds *b)
{
    return b->grammar || b->thought.max > 0;
}

static int look(void *arg, const int32_t *draft, int n_draft, uint64_t *row, bool *all)
{
    const ek_bounds *b = arg;
    int n_words = ek_mask_words(b->n_vocab);
    if (b->grammar) n_draft = ek_grammar_look(b->grammar, draft, n_draft, n_words, row, all);
    else memset(all, true, sizeof *all * ((size_t)n_draft + 1));
    return ek_thought_look(&b->thought, draft, n_draft, n_words, b->n_vocab, row, all);
}

static int peek(void *arg, const int32_t *draft, int n_draft, bool *all)
{
    const ek_bounds *b = arg;
    if (b->grammar) n_draft = ek_grammar_peek(b->grammar, draft, n_draft, all);
    else memset(all, true, sizeof *all * ((size_t)n_draft + 1));
    return ek_thought_peek(&b->thought, draft, n_draft, all);
}

static void accept(void *arg, int32_t token)
{
    ek_bounds *b = arg;
    if (b->grammar) ek_grammar_accept(b->grammar, token);
    ek_thought_accept(&b->thought, token);
}

ek_mask ek_bounds_mask(ek_bounds *b)
{
    return (ek_mask){.arg = b, .look = look, .accept = accept, .peek = peek};
}
