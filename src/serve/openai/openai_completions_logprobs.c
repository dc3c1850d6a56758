/* Log-probabilities of OpenAI's completions, in the API's old shape: four lists. */
#include <string.h>

#include "serve/openai/openai_completions.h"
#include "serve/api/openai_reply.h"
#include "text/utf8.h"

/* The tokens that one piece of a reply is about: all of the prompt's or none, and of the content those from..end. */
typedef struct span {
    const ek_turn_result *t;
    int n_prompt, from, end;
} span;

static const ek_logprobs *entry(const span *s, int i)
{
    return i < s->n_prompt ? &s->t->prompt_logprobs[i] : &s->t->logprobs[s->from + i - s->n_prompt].at;
}

static void put_token(ek_buf *out, const ek_api_reply *r, int32_t token)
{
    ek_openai_token(out, r, token, "bytes:");
}

static bool is_taken(const ek_buf *name, const ek_buf *key, int n)
{
    for (int i = 0; i < n; i++)
        if (key[i].len == name->len && !memcmp(key[i].data, name->data, name->len)) return true;
    return false;
}

/* A name for a token that none of key[0 .. n) is: as in a list, else by its bytes, else by its id as vLLM has it. */
static void name_apart(ek_buf *out, const ek_api_reply *r, int32_t token, const ek_buf *key, int n)
{
    put_token(out, r, token);
    if (!is_taken(out, key, n)) return;
    ek_buf_clear(out);
    ek_openai_token_bytes(out, r, token, "bytes:");
    if (!is_taken(out, key, n)) return;
    ek_buf_clear(out);
    ek_buf_fmt(out, "\"token_id:%d\"", token);
}

/* The most likely tokens, and the token itself where it is none of them. It has the name that it has in the list of
 * tokens, so that clients find it; of others with the same text each has a name of its own. */
static void put_top(ek_buf *out, const ek_api_reply *r, const ek_logprobs *p)
{
    ek_buf key[EK_LOGPROBS_MAX + 1] = {{0}};
    bool among = false;
    int n = 1;
    put_token(&key[0], r, p->self.token);
    ek_buf_char(out, '{');
    for (int k = 0; k < p->n_top; k++) {
        const ek_buf *name = &key[0];
        if (p->top[k].token == p->self.token) {
            among = true;
        } else {
            name_apart(&key[n], r, p->top[k].token, key, n);
            name = &key[n++];
        }
        ek_buf_fmt(out, "%s%s:", k ? "," : "", name->data);
        ek_openai_logprob(out, p->top[k].logprob);
    }
    if (!among) {
        ek_buf_fmt(out, "%s%s:", p->n_top ? "," : "", key[0].data);
        ek_openai_logprob(out, p->self.logprob);
    }
    ek_buf_char(out, '}');
    for (int i = 0; i <= EK_LOGPROBS_MAX; i++) ek_buf_fini(&key[i]);
}

static void put_offsets(ek_buf *out, const ek_api_reply *r, int choice, const span *s, ek_completion_progress *at)
{
    const ek_openai_completion *o = r->own;
    const ek_buf *echo = &o->echoed[choice / (r->n / r->n_prompts)];
    size_t chars = 0, before = o->echo ? ek_utf8_count(ek_buf_text(echo), echo->len) : 0;
    for (int i = 0; i < s->n_prompt; i++) {
        size_t n;
        int32_t id = entry(s, i)->self.token;
        const char *bytes = ek_tokenizer_bytes(r->tokenizer, id, &n);
        ek_buf_fmt(out, "%s%zu", i ? "," : "", chars);
        if (ek_completion_shows(r->tokenizer, r->turn, id)) chars += ek_utf8_count(bytes, n);
    }
    for (int i = s->from; i < s->end; i++) {
        size_t from = s->t->logprobs[i].from;
        at->n_chars += ek_utf8_count(s->t->answer.content.data + at->bytes, from - at->bytes);
        at->bytes = from;
        ek_buf_fmt(out, "%s%zu", s->n_prompt || i > s->from ? "," : "", before + at->n_chars);
    }
}

void ek_openai_completion_logprobs(ek_buf *out, const ek_api_reply *r, int choice, bool prompt,
                                   ek_completion_progress *at)
{
    const ek_turn_result *t = r->choices[choice];
    if (!r->turn->logprobs) {
        ek_buf_str(out, ",\"logprobs\":null");
        return;
    }
    span s = {.t = t, .n_prompt = prompt && t->prompt_logprobs ? t->n_prompt : 0, .from = at->n_logprobs};
    s.end = ek_openai_visible(t, s.from);
    int n = s.n_prompt + s.end - s.from;
    ek_buf_str(out, ",\"logprobs\":{\"tokens\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        put_token(out, r, entry(&s, i)->self.token);
    }
    ek_buf_str(out, "],\"token_logprobs\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        if (entry(&s, i)->n_top < 0) ek_buf_str(out, "null");
        else ek_openai_logprob(out, entry(&s, i)->self.logprob);
    }
    ek_buf_str(out, "],\"top_logprobs\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        if (entry(&s, i)->n_top < 0) ek_buf_str(out, "null");
        else put_top(out, r, entry(&s, i));
    }
    ek_buf_str(out, "],\"text_offset\":[");
    put_offsets(out, r, choice, &s, at);
    ek_buf_str(out, "]}");
    at->n_logprobs = s.end;
}
