#include "text/draft_message.h"

#include <stdbool.h>
#include <string.h>

/* --- reading: the rest of the text; `at` is the position of an error --- */

typedef struct reader {
    const char *text;
    size_t n, at;
} reader;

static void skip(reader *r)
{
    while (r->at < r->n && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
}

static bool take(reader *r, char c)
{
    skip(r);
    if (r->at == r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

/* A whole number from 0 to max, without leading zeros. */
static bool number(reader *r, int64_t max, int32_t *out)
{
    skip(r);
    int64_t v = 0;
    const size_t first = r->at;
    while (r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9' && r->at - first < 10)
        v = 10 * v + (r->text[r->at++] - '0');
    const size_t digits = r->at - first;
    if (digits == 0 || (digits > 1 && r->text[first] == '0') || v > max) return false;
    *out = (int32_t)v;
    return true;
}

/* A text of 1 to room - 1 letters out of `of`. */
static bool word(reader *r, const char *of, char *out, size_t room)
{
    size_t n = 0;
    if (!take(r, '"')) return false;
    while (r->at < r->n && r->text[r->at] && strchr(of, r->text[r->at]) && n + 1 < room) out[n++] = r->text[r->at++];
    out[n] = '\0';
    return n > 0 && r->at < r->n && r->text[r->at++] == '"';
}

/* A list of at most max ids: *full if there are more. */
static bool ids(reader *r, int32_t *out, int max, int n_vocab, int *n, bool *full)
{
    *n = 0;
    if (!take(r, '[')) return false;
    if (take(r, ']')) return true;
    do {
        *full = *n == max;
        if (*full || !number(r, (int64_t)n_vocab - 1, &out[*n])) return false;
        ++*n;
    } while (take(r, ','));
    return take(r, ']');
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define HEX     "0123456789abcdef"

/* --- questions --- */

enum { VOCABULARY, SESSION, SALT, FROM, MAX, TOKENS, N_MEMBERS };

static int member_of(const char *name)
{
    static const char *const names[N_MEMBERS] = {"vocabulary", "session", "salt", "from", "max", "tokens"};
    for (int i = 0; i < N_MEMBERS; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

static bool value(reader *r, ek_draft_question *q, int member, int max_tokens, int n_vocab, bool *full)
{
    switch (member) {
    case VOCABULARY: return word(r, HEX, q->vocabulary, sizeof q->vocabulary);
    case SESSION: return word(r, HEX, q->session, sizeof q->session);
    case SALT: return word(r, HEX, q->salt, sizeof q->salt);
    case FROM: return number(r, INT32_MAX, &q->from);
    case MAX: return number(r, EK_DRAFT_MESSAGE_MAX, &q->max);
    case TOKENS: return ids(r, q->tokens, max_tokens, n_vocab, &q->n, full);
    default: return false;
    }
}

static bool object(reader *r, ek_draft_question *q, int max_tokens, int n_vocab, bool *full)
{
    unsigned seen = 0;
    char name[16];
    if (!take(r, '{')) return false;
    do {
        if (!word(r, LETTERS, name, sizeof name) || !take(r, ':')) return false;
        const int member = member_of(name);
        if (member < 0 || seen >> member & 1 || !value(r, q, member, max_tokens, n_vocab, full)) return false;
        seen |= 1u << member;
    } while (take(r, ','));
    if (!take(r, '}')) return false;
    skip(r);
    return r->at == r->n;
}

ek_err ek_draft_question_read(ek_draft_question *q, const char *text, size_t n, int max_tokens, int n_vocab)
{
    reader r = {.text = text, .n = n};
    bool full = false;
    *q = (ek_draft_question){.tokens = q->tokens};
    if (!object(&r, q, max_tokens, n_vocab, &full)) {
        if (full) return ek_fail(EK_ETOOLONG, "tokens: more than %d", max_tokens);
        return ek_fail(EK_EPARSE, "no question for a draft from byte %zu on", r.at);
    }
    if (q->n == 0 || q->max == 0 || !*q->vocabulary || !*q->session)
        return ek_fail(EK_EINVAL, "a question has vocabulary, session, max (1 to %d) and tokens (1 or more)",
                       EK_DRAFT_MESSAGE_MAX);
    return EK_OK;
}

static void put_ids(ek_buf *out, const int32_t *tokens, int n)
{
    ek_buf_str(out, "\"tokens\":[");
    for (int i = 0; i < n; i++) ek_buf_fmt(out, i > 0 ? ",%d" : "%d", tokens[i]);
    ek_buf_str(out, "]}");
}

void ek_draft_question_write(ek_buf *out, const ek_draft_question *q)
{
    ek_buf_fmt(out, "{\"vocabulary\":\"%s\",\"session\":\"%s\",", q->vocabulary, q->session);
    if (*q->salt) ek_buf_fmt(out, "\"salt\":\"%s\",", q->salt);
    ek_buf_fmt(out, "\"from\":%d,\"max\":%d,", q->from, q->max);
    put_ids(out, q->tokens, q->n);
}

/* --- answers --- */

int ek_draft_answer_read(int32_t out[EK_DRAFT_MESSAGE_MAX], const char *text, size_t n, int n_vocab)
{
    reader r = {.text = text, .n = n};
    char name[16];
    int found = -1;
    bool full = false, named = false;
    if (n > EK_DRAFT_ANSWER_BYTES || !take(&r, '{')) return -1;
    do {
        if (!word(&r, LETTERS, name, sizeof name) || !take(&r, ':')) return -1;
        if (!strcmp(name, "tokens") && found < 0) {
            if (!ids(&r, out, EK_DRAFT_MESSAGE_MAX, n_vocab, &found, &full)) return -1;
        } else if (!strcmp(name, "object") && !named) {
            if (!word(&r, LETTERS, name, sizeof name) || strcmp(name, "draft") != 0) return -1;
            named = true;
        } else {
            return -1;
        }
    } while (take(&r, ','));
    if (!named || !take(&r, '}')) return -1;
    skip(&r);
    return r.at == r.n ? found : -1;
}

void ek_draft_answer_write(ek_buf *out, const int32_t *tokens, int n)
{
    ek_buf_str(out, "{\"object\":\"draft\",");
    put_ids(out, tokens, n);
}
