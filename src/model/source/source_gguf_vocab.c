/* The kind of a file's vocabulary, and the roles of its pieces. llama.cpp names Gemma 4's rules "gemma4". `ollama
 * create` names every SentencePiece tokenizer "llama" (ollama, convert/convert_gemma4.go); such a vocabulary is
 * recognised by its marks and its bytes. */
#include "model/source/source_gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encoding.h"

/* Types of tokens. Source: llama.cpp, llama.h. */
enum { UNKNOWN = 2, CONTROL, USER_DEFINED, UNUSED, BYTE };

ek_err ek_gguf_find_array(const ek_gguf *g, const char *key, bool text, const ek_gguf_value **out)
{
    *out = ek_gguf_find(g, key);
    if (!*out) return ek_fail(EK_EUNSUPPORTED, "it has no %s", key);
    if (!(*out)->is_array || ((*out)->kind == EK_GGUF_STRING) != text)
        return ek_fail(EK_EFORMAT, "%s is no list of %s", key, text ? "strings" : "numbers");
    return EK_OK;
}

/* Other converters put a family's name into the model and the rules beside it. */
static ek_err check_rules(const ek_gguf *g, bool *llama)
{
    const ek_gguf_value *model = ek_gguf_find(g, "tokenizer.ggml.model"), *pre = ek_gguf_find(g, "tokenizer.ggml.pre"),
                        *prefix = ek_gguf_find(g, "tokenizer.ggml.add_space_prefix");
    const char *s = "missing";
    size_t n = 7;
    int64_t adds = 0;
    if (prefix && ek_gguf_int(prefix, 0, &adds) && adds)
        return ek_fail(EK_EUNSUPPORTED, "tokenizer.ggml.add_space_prefix is true, Gemma 4 adds no space");
    *llama = ek_gguf_text_is(model, "llama");
    if (*llama || ek_gguf_text_is(model, "gemma4") || ek_gguf_text_is(pre, "gemma4")) return EK_OK;
    if (model) ek_gguf_text(model, &s, &n);
    return ek_fail(EK_EUNSUPPORTED,
                   "tokenizer.ggml.model is %.*s; gemma4 can be read, and llama with Gemma 4's vocabulary",
                   n < 60 ? (int)n : 60, s);
}

/* How Gemma 4 spells its marks: <|turn>, <turn|>, <|image|>, <|"|>. */
static bool is_mark(const char *s, size_t n)
{
    return n > 3 && s[0] == '<' && s[n - 1] == '>' && (s[1] == '|' || s[n - 2] == '|');
}

/* The byte that <0x41> stands for; -1: none. */
static int byte_of(const char *s, size_t n)
{
    return n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' ? ek_hex_byte(s + 3, 2) : -1;
}

/* Whether the piece is "[PAD7]", with which converters fill ids without a token. */
static bool is_filler(const char *s, size_t n)
{
    size_t i = 4;
    if (n < 6 || memcmp(s, "[PAD", 4) != 0 || s[n - 1] != ']') return false;
    while (s[i] >= '0' && s[i] <= '9') i++;
    return i == n - 1;
}

/* Whether the piece is <bos> or the like, under an id that the metadata names. */
static bool is_named(const ek_gguf *g, uint64_t id)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
                                       "tokenizer.ggml.mask_token_id",    "tokenizer.ggml.eot_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const ek_gguf_value *v = ek_gguf_find(g, keys[i]);
        int64_t named;
        if (v && !v->is_array && ek_gguf_int(v, 0, &named) && named >= 0 && (uint64_t)named == id) return true;
    }
    return false;
}

/* For files without types: the control tokens of Gemma 4's vocabulary besides its marks, <mask> and <unused0> to
 * <unused98> among them. */
static bool is_control(const char *s, size_t n)
{
    static const char *const known[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"};
    size_t i = 7;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (n == strlen(known[k]) && memcmp(s, known[k], n) == 0) return true;
    if (n < 9 || memcmp(s, "<unused", 7) != 0 || s[n - 1] != '>') return false;
    while (s[i] >= '0' && s[i] <= '9') i++;
    return i == n - 1;
}

static ek_piece_role role_of(const ek_gguf *g, uint64_t id, const char *s, size_t n, int64_t type, bool llama)
{
    if (type == CONTROL || type == UNKNOWN || (llama && !type && is_control(s, n))) return EK_PIECE_CONTROL;
    if (n > 2 && s[0] == '<' && s[n - 1] == '>' && is_named(g, id)) return EK_PIECE_CONTROL;
    if (is_mark(s, n)) return EK_PIECE_MARK;
    if (llama && (type == UNUSED || (type == USER_DEFINED && is_filler(s, n)))) return EK_PIECE_FILLER;
    if (type == USER_DEFINED) return EK_PIECE_ADDED;
    return type == BYTE || byte_of(s, n) >= 0 ? EK_PIECE_BYTE : EK_PIECE_PLAIN;
}

/* In user-defined pieces llama.cpp's converters write spaces as spaces; in the vocabulary they are U+2581. */
static void add_spaced(ek_gguf_vocab *v, ek_gguf_piece *p)
{
    size_t from = v->spaced.len;
    for (size_t i = 0; i < p->n; i++)
        if (p->s[i] == ' ') ek_buf_str(&v->spaced, "\xE2\x96\x81");
        else ek_buf_char(&v->spaced, p->s[i]);
    p->n = v->spaced.len - from;
    p->s = NULL; /* the address of the text is known once all pieces are there */
}

static void read_pieces(ek_gguf_vocab *v, const ek_gguf *g, const ek_gguf_value *tokens, const ek_gguf_value *types,
                        bool llama)
{
    const char *s;
    size_t n, at_spaced = 0, room = 0;
    for (const uint8_t *at = tokens->data; ek_gguf_next_text(tokens, &at, &s, &n);) room++;
    v->v = ek_alloc(sizeof *v->v * (room + 1));
    for (const uint8_t *at = tokens->data; ek_gguf_next_text(tokens, &at, &s, &n); v->n++) {
        ek_gguf_piece *p = &v->v[v->n];
        int64_t type = 0;
        if (types) ek_gguf_int(types, v->n, &type);
        *p = (ek_gguf_piece){.s = s, .n = n, .role = role_of(g, v->n, s, n, type, llama)};
        if (llama && p->role == EK_PIECE_ADDED && memchr(s, ' ', n)) add_spaced(v, p);
    }
    for (size_t i = 0; i < v->n; i++) {
        if (v->v[i].s) continue;
        v->v[i].s = v->spaced.data + at_spaced;
        at_spaced += v->v[i].n;
    }
}

/* Requires the marks of a turn and all 256 bytes, which only Gemma 4's vocabulary has among SentencePiece's. */
static ek_err check_vocabulary(const ek_gguf_vocab *v)
{
    static const char *const marks[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "\xE2\x96\x81"};
    enum { MARKS = sizeof marks / sizeof *marks };
    bool mark[MARKS] = {false}, byte[256] = {false};
    for (size_t id = 0; id < v->n; id++) {
        const ek_gguf_piece *p = &v->v[id];
        int b = byte_of(p->s, p->n);
        if (b >= 0) byte[b] = true;
        for (int i = 0; i < MARKS && p->n < 9; i++)
            mark[i] = mark[i] || (strlen(marks[i]) == p->n && memcmp(p->s, marks[i], p->n) == 0);
    }
    for (int i = 0; i < MARKS; i++)
        if (!mark[i])
            return ek_fail(EK_EUNSUPPORTED,
                           "tokenizer.ggml.model is llama, and its vocabulary is not Gemma 4's: it has no %s",
                           marks[i]);
    for (int i = 0; i < 256; i++)
        if (!byte[i])
            return ek_fail(EK_EUNSUPPORTED,
                           "tokenizer.ggml.model is llama, and its vocabulary is not Gemma 4's: it has no <0x%02X>", i);
    return EK_OK;
}

/* Damaged scores are refused even if the merges make them unnecessary. */
static ek_err read_scores(ek_gguf_vocab *v, const ek_gguf *g)
{
    const ek_gguf_value *scores;
    EK_TRY(ek_gguf_find_array(g, "tokenizer.ggml.scores", false, &scores));
    if (scores->count != v->n)
        return ek_fail(EK_EFORMAT, "tokenizer.ggml.scores has %llu scores for %zu tokens",
                       (unsigned long long)scores->count, v->n);
    for (size_t i = 0; i < v->n; i++) {
        double d = 0;
        if (!ek_gguf_float(scores, i, &d) || !isfinite(d))
            return ek_fail(EK_EFORMAT, "tokenizer.ggml.scores has %g at %zu, which is no score", d, i);
        v->v[i].score = (float)d;
    }
    return EK_OK;
}

ek_err ek_gguf_vocab_read(ek_gguf_vocab *v, const ek_gguf *g)
{
    const ek_gguf_value *tokens, *types = NULL;
    bool llama = false;
    if (!ek_gguf_find(g, "tokenizer.ggml.model") && !ek_gguf_find(g, "tokenizer.ggml.tokens"))
        return ek_fail(EK_ENOTFOUND, "there is no tokenizer in the file");
    EK_TRY(check_rules(g, &llama));
    EK_TRY(ek_gguf_find_array(g, "tokenizer.ggml.tokens", true, &tokens));
    if (ek_gguf_find(g, "tokenizer.ggml.token_type"))
        EK_TRY(ek_gguf_find_array(g, "tokenizer.ggml.token_type", false, &types));
    if (types && types->count != tokens->count)
        return ek_fail(EK_EFORMAT, "tokenizer.ggml.token_type has %llu types for %llu tokens",
                       (unsigned long long)types->count, (unsigned long long)tokens->count);
    read_pieces(v, g, tokens, types, llama);
    if (!llama) return EK_OK;
    EK_TRY(check_vocabulary(v));
    const ek_gguf_value *merges = ek_gguf_find(g, "tokenizer.ggml.merges");
    const bool scores = ek_gguf_find(g, "tokenizer.ggml.scores") != NULL;
    v->unmerged = !merges || (merges->is_array && merges->count == 0);
    if (v->unmerged && !scores)
        return ek_fail(
            EK_EUNSUPPORTED,
            "tokenizer.ggml.model is llama, and it has neither tokenizer.ggml.merges nor tokenizer.ggml.scores");
    return scores ? read_scores(v, g) : EK_OK;
}

void ek_gguf_vocab_fini(ek_gguf_vocab *v)
{
    free(v->v);
    ek_buf_fini(&v->spaced);
}
