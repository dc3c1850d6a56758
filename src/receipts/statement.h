/* The statement of a receipt: an in-toto statement (v1) in canonical JSON. Its subject is the reply's commitment; its
 * predicate names the function and the values that gave the reply. Its members are the fields below (docs/PROOF.md). */
#ifndef EK_RECEIPTS_STATEMENT_H
#define EK_RECEIPTS_STATEMENT_H

#include "base/buf.h"
#include "base/err.h"
#include "receipts/commit.h"
#include "receipts/key.h"

enum { EK_STATEMENT_VERSION = 1, EK_NONCE_MAX = 64, EK_FINISH_TEXT = 16, EK_STATEMENT_TIME = 21 };

/* The source of the seed. EK_SEED_NONE: the reply is greedy and draws nothing. */
typedef enum ek_seed_from { EK_SEED_NONE, EK_SEED_CLIENT, EK_SEED_NONCE, EK_SEED_SERVER, EK_SEED_SOURCES } ek_seed_from;

typedef struct ek_stated_bias {
    int32_t token;
    float bias;
} ek_stated_bias;

typedef struct ek_statement {
    char weights[65], tokenizer[65]; /* model/weights/digest.h: ek_model_sha256 */
    char *profile, *program, *api;   /* numerics id; the program's version; path of the request. Owned */
    bool hides;                      /* leaves out the lengths of prompt and reply; commitments cover them */
    struct {
        int n, n_media; /* tokens; pictures and sounds; -1: hidden */
        ek_hash commitment;
    } prompt;
    struct {
        float temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
        int top_k;
        uint64_t seed;
        ek_seed_from from;
        ek_stated_bias *bias; /* owned */
        int n_bias;
    } sampling;
    struct {
        bool any, thinking; /* a grammar or a limit of thoughts masked tokens; the prompt turns thinking on */
        int max_thinking;   /* 0: no limit */
        ek_hash commitment; /* a commitment to the grammar's source, or to an empty text if there is no grammar */
    } form;
    struct {
        int max_tokens, context;                 /* max_tokens: of the reply; context: of prompt and reply */
        bool special;                            /* plain: special tokens are written as their text */
        bool ignore_eos, plain, calls, one_call; /* plain: continued text; calls are parsed; the first one ends it */
        ek_hash stop;                            /* of the stop strings */
    } ends;
    struct {
        int n;                       /* -1: hidden */
        ek_hash commitment, text;    /* commitment: to the tokens; text: to the bytes of their text */
        char finish[EK_FINISH_TEXT]; /* stop, tool_calls, stop_string, length, context, loop */
    } reply;
    ek_hash rows;                 /* root of the Merkle tree over the leaves of the reply's rows */
    char time[EK_STATEMENT_TIME]; /* RFC 3339 in whole seconds: 2026-11-29T12:00:00Z */
    char nonce[EK_NONCE_MAX + 1]; /* of the client; "": none */
    char key[EK_KEY_ID];          /* that signs */
    char *log;                    /* origin of the log that has the receipt; NULL: none. Owned */
} ek_statement;

/* The seed of a client's nonce: the first 8 bytes of SHA-256(nonce, prompt tokens), little-endian, without the 11
 * lowest bits, so that it is exact as a double. */
uint64_t ek_nonce_seed(const char *nonce, const int32_t *prompt, size_t n);

void ek_statement_write(ek_buf *out, const ek_statement *s);
/* Reads a payload of at most 8 MiB. EFORMAT unless it is a canonical statement of this version; also for members that
 * are missing, unknown or out of range. ek_statement_fini also after a failure; out need not be initialised. */
ek_err ek_statement_read(ek_statement *out, const char *text, size_t n);
void ek_statement_fini(ek_statement *s);

/* Whether a nonce is valid: 1 to 64 printable ASCII characters. */
bool ek_nonce_fits(const char *text, size_t n);
/* Writes seconds since 1970 in the form of ek_statement.time. */
void ek_statement_time(char out[EK_STATEMENT_TIME], int64_t seconds);

#endif
