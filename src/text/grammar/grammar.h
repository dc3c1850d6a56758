/* The grammar of a whole reply, from its first token: a thought, text, tool calls in Gemma's notation, JSON by a
 * schema. An automaton over bytes and special tokens follows the reply and says which tokens may come next. What it
 * lets through parses (reply.h) and is valid under the schemas; and from every state the reply can end. */
#ifndef EK_TEXT_GRAMMAR_H
#define EK_TEXT_GRAMMAR_H

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

#include <jansson.h>

/* A tokenizer's vocabulary in the form that the automaton of a grammar walks: a trie of the tokens' bytes, sets of
 * tokens that are only text, and a cache of rows of allowed tokens. It belongs to a model and serves all its requests.
 * Threads: any; a lock is held while a row is made. Memory is taken by the first ek_vocab_ready, never later: about 30
 * MiB for a vocabulary of 262,144 tokens, 8 MiB of these for the cache. */

typedef struct ek_vocab ek_vocab;

/* t is borrowed until ek_vocab_close (NULL is fine). */
ek_vocab *ek_vocab_open(const ek_tokenizer *t);
void ek_vocab_close(ek_vocab *v);
/* Builds the tables unless they are there; about 0.2 s for 262,144 tokens. ENOMEM if the system has no memory for them
 * now: a later request may find some. */
ek_err ek_vocab_ready(ek_vocab *v);

/* For tests and metrics. */
typedef struct ek_vocab_stats {
    size_t bytes;
    uint64_t hits, misses; /* of the cache of rows */
} ek_vocab_stats;
ek_vocab_stats ek_vocab_stats_of(ek_vocab *v);

typedef enum ek_text_form { EK_TEXT_FREE, EK_TEXT_JSON_OBJECT, EK_TEXT_JSON_SCHEMA, EK_TEXT_CHOICE } ek_text_form;

/* The form of a reply. Zero: free text. */
typedef struct ek_reply_form {
    ek_text_form text;
    const json_t *schema; /* EK_TEXT_JSON_SCHEMA; CHOICE: a list of texts, of which the reply is one. Borrowed during
                             ek_grammar_open */
    bool lenient;         /* unsupported keywords of schema are left out instead of refused */
    bool calls_required;  /* at least one tool call, and no text */
    const json_t *only;   /* a list of names: other tools may not be called; NULL: all may. Borrowed as schema */
} ek_reply_form;

/* Immutable: share it between threads and turns. */
typedef struct ek_grammar ek_grammar;

/* The grammar of form; *out is NULL where nothing needs one: free text, and no tool that can be called. tools: as in
 * the prompt, NULL if none may be called. Arguments of a tool with "strict": true are valid under its parameters. So
 * are the arguments of required calls, except that unsupported keywords of a tool without "strict" are left out
 * (ek_grammar_ignored). Other calls are well-formed with any arguments, so that a stream may send a call before it has
 * ended. one_call: at most one call. EINVAL names the tool, the place in the schema and the
 * keyword that is not supported; ETOOLARGE; ENOMEM. Builds v's tables (ek_vocab_ready), so not on a thread that may not
 * wait. */
ek_err ek_grammar_open(ek_grammar **out, ek_vocab *v, const ek_reply_form *form, const json_t *tools, bool one_call);
/* Whether the parameters of this tool have a part in the grammar. */
bool ek_grammar_reads(const json_t *tool, const ek_reply_form *form);
void ek_grammar_close(ek_grammar *g);         /* NULL is fine */
size_t ek_grammar_bytes(const ek_grammar *g); /* memory it holds; 0 for NULL */
/* The omitted parts of schemas: "#/properties/zip/pattern, get_weather#/not", visible ASCII; "" if there are none. */
const char *ek_grammar_ignored(const ek_grammar *g);

/* A reply that is followed. One thread at a time. */
typedef struct ek_grammar_state ek_grammar_state;

/* At the beginning of the reply to prompt: inside the thought if the prompt left its channel open, else before
 * the text; thinking: a thought may come first. g and v are borrowed. Never fails. */
ek_grammar_state *ek_grammar_state_open(const ek_grammar *g, ek_vocab *v, const int32_t *prompt, size_t n,
                                        bool thinking);
void ek_grammar_state_close(ek_grammar_state *s);

/* Rows of allowed tokens for the reply so far and along a draft: as ek_mask.look of engine/engine.h. n_words: words
 * of a row; ids beyond the tokenizer are not allowed. */
int ek_grammar_look(ek_grammar_state *s, const int32_t *draft, int n_draft, int n_words, uint64_t *row, bool *all);
/* The result of ek_grammar_look and all[], without rows. */
int ek_grammar_peek(ek_grammar_state *s, const int32_t *draft, int n_draft, bool *all);
/* The token joined the reply. One that was not allowed ends the automaton: nothing is allowed after it. */
void ek_grammar_accept(ek_grammar_state *s, int32_t token);

#endif
