/* A dialect: one API over HTTP, as one file with one table. It reads a body into an API-neutral request
 * and writes replies from API-neutral results; it never handles tokens, the engine, connections or time.
 * Mistakes of an API's clients are repaired or refused in its dialect and nowhere else. How to add one:
 * CONTRIBUTING.md.
 *
 * All functions touch only their arguments: any thread may call parse; the functions that
 * write replies are called from one thread per reply, in order. */
#ifndef EK_SERVE_DIALECT_H
#define EK_SERVE_DIALECT_H

#include <stdbool.h>

#include "base/buf.h"
#include "receipts/statement.h"
#include "serve/resume/resume.h"
#include "text/json/json.h"

/* What a body asks for. Zero-initialised by ek_api_prepare; everything in it is owned. */
typedef struct ek_api_request {
    ek_conversation conversation; /* freed once the prompt is made */
    json_t *tools;                /* declarations as the template takes them of what may be called, NULL without */
    json_t *declared;             /* of tools, what the prompt begins with; NULL: all of them */
    json_t *by_name;              /* of serve/api/tools.c */
    bool tools_change;            /* in the course of the conversation */
    ek_prompt_opts prompt;        /* ctx_tokens is set by ek_api_prepare */
    ek_turn_opts turn;            /* tools, grammar, stop and sampling.bias point into this struct's own */
    ek_reply_form form;           /* what a reply must be: becomes `grammar` in ek_api_prepare */
    json_t *schema, *only;        /* behind form's pointers; ek_api_prepare frees them */
    const char *form_param;       /* the field that asks for form.text, a literal: named where its schema is refused */
    ek_grammar *grammar;
    ek_buf form_text; /* what it was made of (chat/bounds.h), where ek_api_limits.keep_forms and there is one */
    ek_logit_bias *bias;
    char *stop[EK_STOP_MAX];
    ek_turn_prompt *more; /* prompts behind the first, of an API that takes several */
    int n_more;
    int n; /* number of replies (choices), of all prompts together: a multiple of 1 + n_more */
    bool stream, has_seed;
    bool progress;                /* the stream says how far the prompt is read */
    ek_past_calls past_calls;     /* of the conversation */
    struct ek_context *context;   /* serve/api/context.h; NULL: the conversation is read as it is */
    bool background;              /* the client is answered at once, and the reply is made without it */
    char nonce[EK_NONCE_MAX + 1]; /* of the client, for its receipt (evenkeel.receipt); "" without */
    bool no_stored;               /* evenkeel.cache false: no stored reply, and this one is not kept */
    bool says_share, says_work;   /* the body has cache_hit_threshold; whose work the reply is (kv_transfer_params) */
    ek_resume resume;             /* whether the stream can be continued, and where this one begins */
    char *model;                  /* as the client wrote it; NULL without */
    ek_buf salt_text;             /* behind turn.cache_salt_text */
    void *own;                    /* the dialect's own data for its replies */
    void (*free_own)(void *own);  /* NULL: free() */
    size_t own_bytes;  /* that own may hold until the reply is sent, beyond 64 KiB per choice, and what of the
                          reply repeats it; known once the prompts are made */
    bool answered;     /* nothing is generated: the dialect's answer writes the whole reply. Of a dialect that has
                          nothing else ek_api_prepare sets it, otherwise parse */
    ek_buf answer;     /* that reply */
    const char *param; /* after a failure: the field that is wrong, or NULL; a literal */
    const char *code;  /* after a failure: the API's word for it, where it has one of its own; a literal */
} ek_api_request;

/* What the model wrote for a request whose context was to be compacted: a summary, empty where a limit cut it. */
typedef struct ek_api_summary {
    ek_buf text;
    int n_prompt, n_cached, n_tokens;
    bool queued; /* the stream has begun with the events of ek_dialect.queued */
} ek_api_summary;

/* Whether the reply to r follows in a second reading of its body (ek_api_limits.summary). */
bool ek_api_summarizes(const ek_api_request *r);

/* Defaults and limits for reading a body. */
typedef struct ek_api_limits {
    ek_sampling defaults;                /* for fields that a request leaves out */
    int n_vocab;                         /* bounds logit_bias */
    int ctx_tokens;                      /* prompt and reply together */
    struct ek_response_store *responses; /* that a request may continue or add to; NULL: none */
    uint64_t owner;                      /* of what this request stores and may continue */
    const ek_chat_media *media;          /* what the model takes beside text; NULL: nothing */
    const char *identity;                /* of the arithmetic: streams continue where it is the same; NULL: "" */
    const struct ek_model_card *card;    /* of the model; NULL: paths that describe it are not served */
    const char *method, *path, *target;  /* of the request, for dialects that have several; NULL: POST, its path, "" */
    const ek_api_summary *summary;       /* of a body that is read again with it; NULL: the first reading */
    int64_t now;                         /* seconds since 1970, for replies of paths that generate nothing */
    int max_messages;                    /* of a conversation that a request continues; 0: no limit */
    int max_images;                      /* of a request; 0: EK_MEDIA_MAX_IMAGES */
    bool keep_forms;                     /* for a journal that can be replayed */
    bool whole_calls;                    /* what streams of chat completions do with calls: one delta for each */
    bool receipts;                       /* replies can be signed here */
    bool batch;                          /* a line of `evenkeel batch`: what would differ between runs is refused */
    bool resume; /* streams of one reply say how they go on, where the body says nothing of it */
    /* Counts JSON that is about to be read beside the body itself, n bytes of this size; n_new of them are not in the
     * body. ETOOLARGE, ENOMEM: it must not be read. NULL: nothing is counted. */
    ek_err (*count)(void *arg, const ek_json_size *size, size_t n, size_t n_new);
    /* Counts further memory that making the prompt may take, for as long as that lasts, or that the reply of a path
     * that generates nothing is about to take. ENOMEM, ETOOLARGE: it must not be made. NULL: nothing is counted. */
    ek_err (*take)(void *arg, size_t bytes);
    /* Told how many bytes of text the prompt is made of, before it is made: pictures and sounds of the body are none,
     * and count less. ENOMEM, ETOOLARGE. NULL with count. */
    ek_err (*text)(void *arg, size_t bytes);
    /* Gives back what take counted and is free again. NULL with take. */
    void (*give)(void *arg, size_t bytes);
    /* Appends the bytes of a URL of http or https. *here false, and nothing appended: it is to be fetched first. EINVAL
     * with the reason. NULL: nothing is fetched here. */
    ek_err (*fetch)(void *arg, const char *url, size_t n, ek_buf *out, bool *here);
    const struct ek_pdftotext *pdftotext; /* what reads the text of PDFs; NULL: none is */
    const struct ek_pdftoppm *pdftoppm;   /* what draws their pages; NULL: none are */
    bool pdf_pages;                       /* this request takes PDFs as pictures of their pages (evenkeel.pdf) */
    /* What reads files of videos; NULL: none are read here. */
    const struct ek_ffmpeg *ffmpeg;
    void *count_arg;           /* of them all */
    struct ek_body_plan *plan; /* serve/api/plan.h; NULL: the body is read once, with everything beside it */
} ek_api_limits;

/* Seconds that a reply took, for APIs that report them; nothing that computes an answer reads them. */
typedef struct ek_api_times {
    double prepare;        /* from the body to the tokens of the prompt */
    double prompt, tokens; /* until the first token of the reply, and from there on */
} ek_api_times;

/* How far a prompt is read: all its tokens, those that were cached, and those that are read, cached ones among them. */
typedef struct ek_api_progress {
    int total, cached, read;
    double seconds; /* since the engine has the prompt */
} ek_api_progress;

/* A reply in progress; everything is borrowed. */
typedef struct ek_api_reply {
    const char *id, *model, *fingerprint;
    int64_t created; /* seconds since 1970 */
    bool stream;
    int n, n_open;        /* choices; choices that have not ended */
    int n_prompts;        /* choices 0 .. n / n_prompts - 1 are of the first prompt, and so on */
    const uint64_t *seed; /* the seed that was drawn for a request without one, else NULL; below 2^53 */
    const ek_turn_result *const *choices;
    ek_api_times times;            /* known when the last choice has finished */
    bool says_stored, stored;      /* whether the body says it; whether all of it came from the store of replies */
    const char *digest;            /* 16 hex digits over all choices; NULL unless asked for */
    const char *receipt;           /* JSON: signed receipts (receipts/receipt.h), known with the digest; NULL: none */
    void *own;                     /* ek_api_request.own */
    const ek_tokenizer *tokenizer; /* names tokens in log-probabilities */
    const ek_turn_opts *turn;      /* ek_api_request.turn */
    ek_resume_marks *marks;        /* of a stream whose events say how it goes on; NULL: nothing is marked */
} ek_api_reply;

/* Whose clients use it: their headers, lists of models and errors differ. */
typedef enum ek_api_vendor { EK_API_OPENAI, EK_API_ANTHROPIC, EK_API_OLLAMA } ek_api_vendor;

typedef struct ek_dialect {
    ek_api_vendor vendor;
    const char *path;         /* POST */
    const char *id_prefix;    /* of a reply's id: "chatcmpl-" */
    bool binary;              /* the body is no JSON: parse counts what it takes of it, by limits->take and plan */
    bool by_path;             /* parse reads limits->method, path and target */
    bool decodes;             /* although it generates nothing, answer wants pictures and sounds decoded */
    bool repeats;             /* the end of a stream has all its texts again, with their log-probabilities */
    const char *prompt_param; /* the field named in the error when the prompt cannot be made */
    const char *stream_type;  /* media type of streams; NULL: text/event-stream */

    /* Fills r, which is zeroed, with everything but prompt.ctx_tokens. EPARSE for a body that is not
     * JSON, what limits->count says, else EINVAL; r->param names the field. */
    ek_err (*parse)(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits);
    /* NULL: the prompt is r->conversation through the chat template. Otherwise makes the prompt from r,
     * for an API whose prompts are texts or tokens; as ek_turn_prompt_make, out is zeroed. Further prompts go
     * into r->more. */
    ek_err (*prompt)(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r);

    /* NULL: the model replies. Otherwise answer writes the whole reply of requests that generate nothing, from the
     * prompt. A dialect without end has no others: of the functions below only error is used, and the prompt may be
     * longer than the context. */
    ek_err (*answer)(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt);
    /* A bound of the bytes that answer will take; NULL where they are few. */
    size_t (*answer_bytes)(const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt);

    /* The media type of a reply in one piece; NULL, or one that returns it: application/json. */
    const char *(*whole_type)(const ek_api_request *r);

    /* Each appends to out. Calls of a stream: begin, event…, finish per choice, choices interleaved; then
     * end. After a failure, failed replaces the remaining calls. For a reply in one piece only end is called. Results
     * are complete at finish and end; n_prompt and n_cached at begin. */
    void (*begin)(ek_buf *out, const ek_api_reply *r, int choice);
    void (*event)(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e);
    void (*finish)(ek_buf *out, const ek_api_reply *r, int choice);
    void (*end)(ek_buf *out, const ek_api_reply *r);
    void (*failed)(ek_buf *out, const ek_api_reply *r, int choice, const char *text);
    /* Of replies that are made in the background; NULL: this API has none. What the client gets at once, as an object
     * or as the first events; and the object that is kept of one that was cancelled. */
    void (*queued)(ek_buf *out, const ek_api_reply *r, bool events);
    void (*cancelled)(ek_buf *out, const ek_api_reply *r);
    /* NULL, or: event holds text back, so that the tokens of a step become one event; step writes it. finish and failed
     * do too. Each line of such a stream is sent by itself. */
    void (*step)(ek_buf *out, const ek_api_reply *r);
    /* Before begin, once or more: an event that says how far the prompt is read, for requests that ask. NULL: none. */
    void (*progress)(ek_buf *out, const ek_api_reply *r, const ek_api_progress *p);
    /* The same in place of heartbeat, whether a request asks or not. NULL: heartbeat. */
    void (*heartbeat_progress)(ek_buf *out, const ek_api_progress *p);
    /* Bytes that a client skips, so that proxies keep the connection. Also called before begin. */
    void (*heartbeat)(ek_buf *out);
    /* What the refusal of a picture or sound says that parse has taken, and whose file turned out to be damaged or too
     * much; parse does the same for those that it refuses. NULL: the sentence stays. */
    ek_err (*refused)(ek_err err, ek_part_kind kind);
    /* The body of a reply with an error status; param and code may be NULL. */
    void (*error)(ek_buf *out, int status, const char *text, const char *param, const char *code);
} ek_dialect;

/* The built-in dialects, NULL at the end. The first one writes the errors of paths that belong to no dialect. */
extern const ek_dialect *const ek_dialects[];
extern const ek_dialect ek_dialect_openai_chat, ek_dialect_openai_completions, ek_dialect_responses;
extern const ek_dialect ek_dialect_transcription;
extern const ek_dialect ek_dialect_conversations;
extern const ek_dialect ek_dialect_tokenize, ek_dialect_detokenize;
extern const ek_dialect ek_dialect_chat_render, ek_dialect_completions_render, ek_dialect_responses_count,
    ek_dialect_responses_compact;
extern const ek_dialect ek_dialect_anthropic, ek_dialect_anthropic_count;
extern const ek_dialect ek_dialect_ollama_chat, ek_dialect_ollama_generate, ek_dialect_ollama_show,
    ek_dialect_ollama_pull;

/* Makes a request and its prompt from a body: parse, render, encode; of a path that generates nothing also its reply,
 * r->answer. Pure, any thread. Errors are those of parse and
 * ek_turn_prompt_make, and ECANCELLED where it is not wanted any more (base/clock.h); r->param as of parse, or
 * prompt_param. ek_api_request_fini and ek_turn_prompt_fini also after a failure. */
ek_err ek_api_prepare(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m,
                      const char *body, size_t n, const ek_api_limits *limits);
/* Its two halves: the body is read, and the prompt of the n bytes is made. Between them limits->plan says whether
 * something was left out. */
ek_err ek_api_read(ek_api_request *r, const ek_dialect *d, const char *body, size_t n, const ek_api_limits *limits);
ek_err ek_api_make(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m, size_t n,
                   const ek_api_limits *limits);
void ek_api_request_fini(ek_api_request *r);
/* The model's name in the reply to a line of `evenkeel batch` that names none. */
#define EK_BATCH_MODEL "evenkeel"
/* The limits of a line of `evenkeel batch`: nothing of this server or machine but the model and its context. */
void ek_api_limits_batch(ek_api_limits *l);
/* `code` of an error object whose request has none of its own; NULL without. param: as ek_api_request.param. */
const char *ek_api_error_code(ek_err err, const char *param);
/* The digest of a reply over all its choices, once each has one. */
uint64_t ek_api_reply_digest(const ek_api_reply *r);
/* The prompt that a choice continues; first is the one that ek_api_prepare made. */
const ek_turn_prompt *ek_api_prompt_of(const ek_api_request *r, const ek_turn_prompt *first, int choice);

/* --- what dialects share --- */

/* Coding clients put a line "x-anthropic-billing-header:…" with a changing checksum before the first
 * system text, which would make every prompt different from the one before. Removes it; text: the first system text,
 * true if the line was there. */
bool ek_drop_billing(ek_buf *text);
void ek_drop_billing_line(ek_conversation *c);

/* Token counts of all choices together; each prompt counts once. */
typedef struct ek_api_usage {
    int64_t prompt, cached, completion, reasoning;
    int64_t images, sounds;           /* of prompt: tokens of pictures and of sounds */
    int64_t images_kept, sounds_kept; /* of these, those that nothing was encoded for */
} ek_api_usage;
ek_api_usage ek_api_usage_of(const ek_api_reply *r);
/* ,"image_tokens":N,"cached_image_tokens":N where there are pictures, and the same of audio: in every API's usage, at
 * the place of the prompt's details. OpenAI's types have the first of each. */
void ek_put_media_usage(ek_buf *out, const ek_api_usage *u);

/* "prompt_progress":{…}, as llama-server writes it. */
void ek_put_progress(ek_buf *out, const ek_api_progress *p);
/* Appends s as a JSON text; null for NULL. */
void ek_put_string(ek_buf *out, const char *s);
/* ,"evenkeel":{…}: digest and receipt where they were asked for, a drawn seed, reply_cached with a store; or nothing.
 * Before it
 * ,"kv_transfer_params":{…} of a prompt whose reply another replica writes. Of a reply in one piece, or of an object
 * inside of an event. */
void ek_put_extension(ek_buf *out, const ek_api_reply *r);

/* Each event of a stream stands between begin and end. One that is a JSON object calls extend before its last brace:
 * that adds how the stream goes on from here (serve/resume/resume.h), and with `whole` all that ek_put_extension has.
 */
void ek_event_begin(const ek_buf *out, const ek_api_reply *r);
void ek_event_extend(ek_buf *out, const ek_api_reply *r, bool whole);
void ek_event_end(ek_buf *out, const ek_api_reply *r);

/* Text that a client gets as an opaque string and sends back in a later request: the reasoning of APIs whose clients
 * keep it without showing it. It is encoded, not encrypted, and nothing relies on it: a client that makes one up has
 * written the reasoning itself, which every API lets it do anyway. */

/* Appends n bytes of text as an opaque string of ASCII letters, digits, '+', '/' and '='. */
void ek_seal(ek_buf *out, const char *text, size_t n);
/* Appends the text of a string that ek_seal made. False, with out unchanged, for any other. */
bool ek_unseal(ek_buf *out, const char *s, size_t n);

#endif
