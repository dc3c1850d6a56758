/* The state of the automaton: a set of stacks (more than one while alternatives begin alike), which share their lower
 * frames. Frames never change: a step adds new ones in an arena. So a walk over the vocabulary returns by dropping the
 * newest frames, and a state is saved by copying the frames that it reaches. Inside src/text. */
#ifndef EK_TEXT_GRAMMAR_STATE_H
#define EK_TEXT_GRAMMAR_STATE_H

#include "text/grammar/grammar.h"
#include "text/graph/graph.h"
#include "text/reply/reply.h"

enum {
    EK_GRAMMAR_TOPS = 16,     /* stacks per state; later alternatives are dropped */
    EK_GRAMMAR_FRAMES = 512,  /* per state between two tokens; stacks beyond are dropped */
    EK_GRAMMAR_ARENA = 16384, /* per walk */
    EK_SYMBOL_MARK = 256,     /* symbols: bytes, then 256 + ek_mark */
    EK_NO_FRAME = -1
};

typedef struct ek_frame {
    int32_t up;   /* the frame below; EK_NO_FRAME for the reply itself */
    int32_t node; /* of the graph; -1: the reply itself */
    uint16_t state, depth;
    uint32_t a; /* depends on the kind of node */
    uint64_t v;
} ek_frame;

/* Values of ek_frame.state if node is -1. */
enum {
    EK_AT_START,  /* before a channel or the body */
    EK_AT_HEADER, /* a: bytes of "thought\n" read */
    EK_AT_THOUGHT,
    EK_AT_BODY,
    EK_AT_FREE, /* any text; a call is followed */
    EK_AT_NAME, /* "call:NAME{": a: bytes read; v: range of names */
    EK_AT_CALL_END,
    EK_AT_AFTER_CALL,
    EK_AT_END, /* JSON is complete */
    EK_AT_DONE
};

struct ek_grammar {
    ek_graph graph;
    ek_buf ignored;              /* unsupported parts of lenient schemas */
    char id[65];                 /* SHA-256 of the graph and all following members: equal grammars share rows */
    int max_depth;               /* of the graph's nodes that can end */
    int32_t json;                /* the node of the text; -1: none */
    bool free;                   /* text may be anything */
    bool calls, one_call;        /* calls are followed */
    int32_t first_name, n_names; /* of graph.texts: "call:NAME{", each with the node of its arguments */
};

typedef struct ek_tops {
    int n;
    int32_t at[EK_GRAMMAR_TOPS];
} ek_tops;

typedef struct ek_walk {
    const ek_grammar *g;
    ek_frame *f;
    int n, cap;
} ek_walk;

void ek_walk_init(ek_walk *w);
void ek_walk_fini(ek_walk *w);

/* Adds the stacks that follow from `top` by the symbol to out. */
void ek_walk_step(ek_walk *w, int32_t top, int symbol, ek_tops *out);
/* out = all stacks that follow by the symbol from those in `from`. */
void ek_walk_steps(ek_walk *w, const ek_tops *from, int symbol, ek_tops *out);

struct ek_grammar_state {
    const ek_grammar *g;
    ek_vocab *vocab;
    struct ek_grammar_state *ahead; /* for drafts */
    int n_frames;
    ek_tops tops;
    ek_frame frame[EK_GRAMMAR_FRAMES]; /* a frame comes after those below it */
};

/* --- for the files that implement steps --- */

/* Adds a frame; EK_NO_FRAME if the arena is full. */
int32_t ek_walk_add(ek_walk *w, ek_frame f);
void ek_walk_put(const ek_walk *w, ek_tops *out, int32_t top);
/* Begins a value of `node` with the symbol. up: the frame below, as it will be once the value is complete. */
void ek_walk_value(ek_walk *w, int32_t node, int symbol, ek_frame up, ek_tops *out);

static inline const ek_node *ek_walk_node(const ek_walk *w, const ek_frame *f)
{
    return &w->g->graph.nodes[f->node];
}

/* Whether a value of `node` above a frame of this depth can be completed. */
static inline bool ek_walk_fits(const ek_walk *w, int depth, int32_t node)
{
    return node >= 0 && depth + w->g->graph.nodes[node].depth <= EK_GRAPH_DEPTH;
}

/* A range of texts with a common beginning, in the form of ek_frame.v: the first, the end, the number of bytes read. */
static inline uint64_t ek_text_range(uint32_t lo, uint32_t hi, uint32_t len)
{
    return lo | (uint64_t)hi << 16 | (uint64_t)len << 32;
}
/* The byte of texts for a symbol; -1: none. */
int ek_text_byte(bool gemma, int symbol);
/* Reads one more byte of the texts from `first` on; false if no text of the range has it. */
bool ek_text_narrow(const ek_walk *w, int32_t first, uint64_t *v, int byte);
const ek_graph_text *ek_text_first(const ek_walk *w, int32_t first, uint64_t v);
/* White space between parts of JSON: returns whether the symbol is white space. */
bool ek_walk_in_space(ek_walk *w, ek_frame f, int symbol, ek_tops *out);

/* --- grammar_object.c --- */
void ek_walk_in_object(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
void ek_walk_in_array(ek_walk *w, ek_frame f, int symbol, ek_tops *out);

/* --- grammar_string.c and grammar_number.c. They return whether the value ended before the symbol, which the caller
 * then passes to the frame below. --- */
bool ek_walk_in_string(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
bool ek_walk_in_number(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
void ek_walk_begin_number(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
/* The next state of a character that is read byte by byte (0: between characters); -1: ill-formed. */
int ek_utf8_walk(int state, int byte);

/* The position in a string with a pattern: the pattern's state, the bits of an incomplete character, the number of
 * characters begun, and the state of ek_utf8_walk. */
typedef struct ek_string_at {
    int32_t state;
    uint32_t cp, n;
    int utf8;
} ek_string_at;
void ek_string_load(const ek_frame *f, ek_string_at *s);
void ek_string_store(const ek_node *n, const ek_string_at *s, ek_frame *f);
/* Reads one more byte of the body, no escape; false if no match can follow. */
bool ek_string_byte(const ek_pattern *p, ek_string_at *s, int byte);
/* The same where no pattern applies. */
bool ek_string_free_byte(const ek_node *n, ek_string_at *s, int byte);

enum { EK_IN_BODY = 0, EK_IN_ESCAPE = 16, EK_IN_HEX = 17 }; /* string: below 16 the state of ek_utf8_walk */

/* States of an object. */
enum {
    EK_OBJECT_OPEN,
    EK_OBJECT_NEXT,
    EK_OBJECT_KEY,
    EK_OBJECT_OTHER,
    EK_OBJECT_COLON,
    EK_OBJECT_VALUE,
    EK_OBJECT_AFTER,
    EK_OBJECT_QUOTED /* in an unknown name, after <|"|>; v: the state of ek_utf8_walk */
};

#endif
