/* The automaton's insides. A state is a set of stacks (more than one where alternatives begin alike); stacks share
 * their lower frames. Frames never change: a step makes new ones in an arena, so a walk over the vocabulary goes back
 * by forgetting the newest, and a state is kept by copying the frames it reaches. Inside src/text. */
#ifndef EK_TEXT_GRAMMAR_STATE_H
#define EK_TEXT_GRAMMAR_STATE_H

#include "text/grammar/grammar.h"
#include "text/graph/graph.h"
#include "text/reply/reply.h"

enum {
    EK_GRAMMAR_TOPS = 16,     /* stacks of a state; later alternatives beyond are dropped */
    EK_GRAMMAR_FRAMES = 512,  /* of a state between two tokens; the same */
    EK_GRAMMAR_ARENA = 16384, /* of a walk */
    EK_SYMBOL_MARK = 256,     /* symbols: bytes, then 256 + ek_mark */
    EK_NO_FRAME = -1
};

typedef struct ek_frame {
    int32_t up;   /* the frame below; EK_NO_FRAME for the reply itself */
    int32_t node; /* of the graph; -1: the reply itself */
    uint16_t state, depth;
    uint32_t a; /* meaning by kind of node */
    uint64_t v;
} ek_frame;

/* Values of ek_frame.state for node -1. */
enum {
    EK_AT_START,  /* a channel or the body */
    EK_AT_HEADER, /* a: bytes of "thought\n" read */
    EK_AT_THOUGHT,
    EK_AT_BODY,
    EK_AT_FREE, /* anything goes; a call is followed */
    EK_AT_NAME, /* "call:NAME{": a: bytes read; v: range of names */
    EK_AT_CALL_END,
    EK_AT_AFTER_CALL,
    EK_AT_END, /* JSON is complete */
    EK_AT_DONE
};

struct ek_grammar {
    ek_graph graph;
    ek_buf ignored;              /* of lenient schemas: what was left out */
    char id[65];                 /* SHA-256 of all that follows and of graph: equal grammars share rows */
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

/* The stacks that follow from `top` by the symbol join out. */
void ek_walk_step(ek_walk *w, int32_t top, int symbol, ek_tops *out);
/* out = every stack that follows from those in `from`. */
void ek_walk_steps(ek_walk *w, const ek_tops *from, int symbol, ek_tops *out);

struct ek_grammar_state {
    const ek_grammar *g;
    ek_vocab *vocab;
    struct ek_grammar_state *ahead; /* for drafts */
    int n_frames;
    ek_tops tops;
    ek_frame frame[EK_GRAMMAR_FRAMES]; /* a frame comes after those below it */
};

/* --- for the files that step --- */

/* A new frame, or EK_NO_FRAME where the arena is full. */
int32_t ek_walk_add(ek_walk *w, ek_frame f);
void ek_walk_put(const ek_walk *w, ek_tops *out, int32_t top);
/* Begins a value of `node` with the symbol. up: the frame below as it is once the value is complete. */
void ek_walk_value(ek_walk *w, int32_t node, int symbol, ek_frame up, ek_tops *out);

static inline const ek_node *ek_walk_node(const ek_walk *w, const ek_frame *f)
{
    return &w->g->graph.nodes[f->node];
}

/* Whether a value of `node` fits above a frame of this depth: it can then be completed. */
static inline bool ek_walk_fits(const ek_walk *w, int depth, int32_t node)
{
    return node >= 0 && depth + w->g->graph.nodes[node].depth <= EK_GRAPH_DEPTH;
}

/* A range of texts that begin alike, as ek_frame.v has it: the first one, the end, bytes read. */
static inline uint64_t ek_text_range(uint32_t lo, uint32_t hi, uint32_t len)
{
    return lo | (uint64_t)hi << 16 | (uint64_t)len << 32;
}
/* The byte by which texts continue; -1: none. */
int ek_text_byte(bool gemma, int symbol);
/* One byte further in the texts from `first` on; false if none of the range has it. */
bool ek_text_narrow(const ek_walk *w, int32_t first, uint64_t *v, int byte);
const ek_graph_text *ek_text_first(const ek_walk *w, int32_t first, uint64_t v);
/* White space between the parts of JSON: whether the symbol is any. */
bool ek_walk_in_space(ek_walk *w, ek_frame f, int symbol, ek_tops *out);

/* In grammar_object.c. */
void ek_walk_in_object(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
void ek_walk_in_array(ek_walk *w, ek_frame f, int symbol, ek_tops *out);

/* In grammar_string.c and grammar_number.c. They return whether the value ended before the symbol: the caller then
 * gives it to the frame below. */
bool ek_walk_in_string(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
bool ek_walk_in_number(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
void ek_walk_begin_number(ek_walk *w, ek_frame f, int symbol, ek_tops *out);
/* The next state of a character that is read byte by byte (0: between characters), or -1. */
int ek_utf8_walk(int state, int byte);

/* Where a string with a pattern stands: the state of the pattern, what is known of a character that is not complete,
 * characters begun, the state of ek_utf8_walk. */
typedef struct ek_string_at {
    int32_t state;
    uint32_t cp, n;
    int utf8;
} ek_string_at;
void ek_string_load(const ek_frame *f, ek_string_at *s);
void ek_string_store(const ek_node *n, const ek_string_at *s, ek_frame *f);
/* One byte further in the body, no escape; false if no match can follow. */
bool ek_string_byte(const ek_pattern *p, ek_string_at *s, int byte);
/* The same where no pattern has a say. */
bool ek_string_free_byte(const ek_node *n, ek_string_at *s, int byte);

enum { EK_IN_BODY = 0, EK_IN_ESCAPE = 16, EK_IN_HEX = 17 }; /* string: below 16 the state of ek_utf8_walk */

/* An object's states. */
enum {
    EK_OBJECT_OPEN,
    EK_OBJECT_NEXT,
    EK_OBJECT_KEY,
    EK_OBJECT_OTHER,
    EK_OBJECT_COLON,
    EK_OBJECT_VALUE,
    EK_OBJECT_AFTER,
    EK_OBJECT_QUOTED /* in a name that is not known, behind <|"|>; v: the state of ek_utf8_walk */
};

#endif
