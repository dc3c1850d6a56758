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

/* A request as its body states it. ek_api_prepare zero-initialises it; it owns everything in it. */
typedef struct ek_api_request {
    ek_conversation conversation; /* freed once the prompt is made */
    json_t *tools;                /* declarations, in the template's form, of callable tools; NULL: none */
    json_t *declared;             /* the tools that are declared at the prompt's beginning; NULL: all of them */
    json_t *by_name;              /* used by serve/api/tools.c */
    bool tools_change;            /* the conversation adds or removes tools */
    ek_prompt_opts prompt;        /* ctx_tokens is set by ek_api_prepare */
    ek_turn_opts turn;            /* tools, grammar, stop and sampling.bias point into this struct's own */
    ek_reply_form form;           /* the required form of a reply: becomes `grammar` in ek_api_prepare */
    json_t *schema, *only;        /* the values to which form points; ek_api_prepare frees them */
    const char *form_param;       /* the field with form.text, a literal, for refusals of its schema */
    ek_grammar *grammar;
    ek_buf form_text; /* the grammar's source (chat/bounds.h), with ek_api_limits.keep_forms */
    ek_logit_bias *bias;
    char *stop[EK_STOP_MAX];
    ek_turn_prompt *more; /* prompts after the first, for APIs that take several */
    int n_more;
    int n; /* number of replies (choices) to all prompts together: a multiple of 1 + n_more */
    bool stream, has_seed;
    bool progress;                /* the stream reports the reading of the prompt */
    ek_past_calls past_calls;     /* of the conversation */
    struct ek_context *context;   /* serve/api/context.h; NULL: the conversation is not changed */
    bool background;              /* the reply is made in the background */
    char nonce[EK_NONCE_MAX + 1]; /* the client's, for its receipt (evenkeel.receipt); "": none */
    bool no_stored;               /* evenkeel.cache false: takes no stored reply and stores none */
    bool says_share, says_work;   /* the body has cache_hit_threshold; has kv_transfer_params */
    ek_resume resume;             /* whether the stream can be resumed, and the place where this one resumes */
    char *model;                  /* as the client wrote it; NULL without */
    ek_buf salt_text;             /* memory of turn.cache_salt_text */
    void *own;                    /* the dialect's own data for its replies */
    void (*free_own)(void *own);  /* NULL: free() */
    size_t own_bytes;  /* maximum bytes of own until the reply is sent, beyond 64 KiB per choice, and of its copy
                          in the reply; known when the prompts are made */
    bool answered;     /* nothing is generated: the dialect's answer writes the whole reply. Set by parse, or by
                          ek_api_prepare for dialects that never generate */
    ek_buf answer;     /* the reply of answer */
    const char *param; /* after a failure: the field that is wrong, or NULL; a literal */
    const char *code;  /* after a failure: the API's own code for it, or NULL; a literal */
} ek_api_request;

/* The model's summary for a request with compaction; text is empty if a limit cut it. */
typedef struct ek_api_summary {
    ek_buf text;
    int n_prompt, n_cached, n_tokens;
    bool queued; /* the stream has begun with the events of ek_dialect.queued */
} ek_api_summary;

/* Whether r asks for a summary first; its body is then read again with ek_api_limits.summary. */
bool ek_api_summarizes(const ek_api_request *r);

/* --- the plan of a body lists what reading the body needs besides its own bytes ---
 *
 * The first reading makes the plan. If nothing was missing, there is no second one. Otherwise the missing data is
 * fetched, or computed on another thread, and the body is read once more. */

/* Reset before each reading; the first two fields say what the reading thread may do. */
typedef struct ek_body_plan {
    size_t max_beside; /* bytes besides the body that may be read or decoded here */
    bool may_wait;     /* the thread may run other programs and wait for them */
    /* --- found --- */
    size_t n_sum;    /* bytes of all items so far, read or left out */
    size_t n_beside; /* the same once it is above max_beside, else 0 */
    bool too_large;  /* items were left out: ignore an error of this reading */
    bool no_fetched; /* files of URLs were left out and have to be fetched */
    bool no_program; /* files that another program reads were left out */
    int n_pdfs;      /* PDFs, read or left out: each may take seconds of a processor */
} ek_body_plan;

/* Whether n more stored bytes (or a file that takes as long) may be read now. false: the caller leaves them out. A NULL
 * plan, here and below, allows everything. */
bool ek_plan_reads(ek_body_plan *p, size_t n);
/* Records n more bytes that are read now; beyond max_beside they make the prompt a large job. */
void ek_plan_weigh(ek_body_plan *p, size_t n);
/* Whether another program may run now. false: the caller leaves out the program's text or frames. */
bool ek_plan_runs(ek_body_plan *p);
/* Whether the body has to be read again. */
bool ek_plan_lacks(const ek_body_plan *p);

/* Defaults and limits for reading a body. */
typedef struct ek_api_limits {
    ek_sampling defaults;                /* for fields that a request leaves out */
    int n_vocab;                         /* bounds logit_bias */
    int ctx_tokens;                      /* prompt and reply together */
    struct ek_response_store *responses; /* stored responses and conversations; NULL: none */
    uint64_t owner;                      /* owner of the objects that this request stores and continues */
    const ek_chat_media *media;          /* the model's inputs besides text; NULL: none */
    const char *identity;               /* name of the arithmetic: a stream resumes only with the same name; NULL: "" */
    const struct ek_model_card *card;   /* the model's; NULL: paths that describe the model are not served */
    const char *method, *path, *target; /* for dialects with several paths; NULL: POST, the dialect's path, "" */
    const ek_api_summary *summary;      /* given at the second reading of a body; NULL: the first reading */
    int64_t now;                        /* seconds since 1970, for replies of paths that generate nothing */
    int max_messages;                   /* per continued conversation; 0: no limit */
    int max_images;                     /* per request; 0: EK_MEDIA_MAX_IMAGES */
    bool keep_forms;                    /* for a journal that can be replayed */
    bool whole_calls;                   /* streams of chat completions send one delta per call */
    bool receipts;                      /* replies can be signed here */
    bool batch;                         /* a line of `evenkeel batch`: refuses fields that make runs differ */
    bool resume;                        /* streams of one reply carry states even if the body does not ask */
    /* Counts n bytes of JSON, of this size, that are about to be read besides the body; n_new of them are not in the
     * body. After ETOOLARGE or ENOMEM they must not be read. NULL: nothing is counted. */
    ek_err (*count)(void *arg, const ek_json_size *size, size_t n, size_t n_new);
    /* Counts further memory for making the prompt, or for a reply that is not generated. ENOMEM, ETOOLARGE: do not
     * take it. NULL: nothing is counted. */
    ek_err (*take)(void *arg, size_t bytes);
    /* Called before the prompt is made, with its bytes of text; pictures and sounds are not text and count less.
     * ENOMEM, ETOOLARGE. NULL if count is. */
    ek_err (*text)(void *arg, size_t bytes);
    /* Returns bytes that take counted. NULL if take is. */
    void (*give)(void *arg, size_t bytes);
    /* Appends the bytes of an http(s) URL. *here false, and nothing appended: the URL has to be fetched first. EINVAL
     * with the reason. NULL: nothing is fetched. */
    ek_err (*fetch)(void *arg, const char *url, size_t n, ek_buf *out, bool *here);
    const char *pdftotext; /* reads the text of PDFs; NULL: no text is read */
    const char *pdftoppm;  /* draws pages of PDFs; NULL: no pages are drawn */
    bool pdf_pages;        /* this request takes PDFs as pictures of their pages (evenkeel.pdf) */
    /* Reads video files; NULL: none are read. */
    const struct ek_ffmpeg *ffmpeg;
    void *count_arg;    /* arg of all these functions */
    ek_body_plan *plan; /* NULL: the body is read once, with everything it needs */
} ek_api_limits;

/* Seconds that a reply took, for APIs that report them; no answer depends on them. */
typedef struct ek_api_times {
    double prepare;        /* from the body to the tokens of the prompt */
    double prompt, tokens; /* until the reply's first token; after it */
} ek_api_times;

/* The reading of a prompt: tokens in total, cached ones, and those read so far (cached ones included). */
typedef struct ek_api_progress {
    int total, cached, read;
    double seconds; /* since the prompt was submitted */
} ek_api_progress;

/* A reply in progress; everything is borrowed. */
typedef struct ek_api_reply {
    const char *id, *model, *fingerprint;
    int64_t created; /* seconds since 1970 */
    bool stream;
    int n, n_open;        /* choices; choices that have not ended */
    int n_prompts;        /* choices 0 .. n / n_prompts - 1 continue the first prompt, and so on */
    const uint64_t *seed; /* the drawn seed of a request without one, below 2^53; else NULL */
    const ek_turn_result *const *choices;
    ek_api_times times;            /* known when the last choice has finished */
    bool says_stored, stored;      /* whether the body reports `stored`: all of it came from the store of replies */
    const char *digest;            /* 16 hex digits over all choices; NULL unless requested */
    const char *receipt;           /* JSON of signed receipts (receipts/receipt.h), known with the digest; NULL: none */
    void *own;                     /* ek_api_request.own */
    const ek_tokenizer *tokenizer; /* names tokens in log-probabilities */
    const ek_turn_opts *turn;      /* ek_api_request.turn */
    ek_resume_marks *marks;        /* for a stream whose events carry states; NULL: none */
} ek_api_reply;

/* The vendor whose clients use a dialect: headers, lists of models and errors differ. */
typedef enum ek_api_vendor { EK_API_OPENAI, EK_API_ANTHROPIC, EK_API_OLLAMA } ek_api_vendor;

/* Reads the members of a body, an object, which is borrowed. */
typedef ek_err ek_body_reader_fn(ek_api_request *r, const json_t *body, const ek_api_limits *limits);

typedef struct ek_dialect {
    ek_api_vendor vendor;
    const char *path;         /* POST */
    const char *id_prefix;    /* the beginning of a reply's id: "chatcmpl-" */
    bool binary;              /* the body is not JSON: parse counts its memory by limits->take and plan */
    bool by_path;             /* parse reads limits->method, path and target */
    bool decodes;             /* answer needs decoded pictures and sounds although nothing is generated */
    bool repeats;             /* a stream's end repeats all texts and their log-probabilities */
    const char *prompt_param; /* the field named in the error when the prompt cannot be made */
    const char *stream_type;  /* media type of streams; NULL: text/event-stream */

    /* Fill r, which is zeroed, except prompt.ctx_tokens: read from the members of a JSON object (ek_field_body), parse
     * from any body. One of them is NULL; parse comes first. EPARSE for a body that is not JSON, errors of
     * limits->count, else EINVAL; r->param names the field. */
    ek_body_reader_fn *read;
    ek_err (*parse)(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits);
    /* NULL: the prompt is r->conversation through the chat template. Otherwise makes the prompt from r,
     * for an API whose prompts are texts or tokens; as ek_turn_prompt_make, out is zeroed. Further prompts go
     * into r->more. */
    ek_err (*prompt)(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r);

    /* Writes the whole reply of a request that generates nothing, from the prompt. NULL: the model always replies. A
     * dialect without `end` never generates: of the functions below it needs only error, and its prompts may be longer
     * than the context. */
    ek_err (*answer)(ek_buf *out, const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt);
    /* An upper bound of the bytes of answer; NULL: they are few. */
    size_t (*answer_bytes)(const ek_chat_model *m, const ek_api_request *r, const ek_turn_prompt *prompt);

    /* The media type of a reply in one piece; the function or its result NULL: application/json. */
    const char *(*whole_type)(const ek_api_request *r);

    /* Each appends to out. Calls of a stream: begin, event…, finish per choice, choices interleaved; then
     * end. After a failure, failed replaces the remaining calls. For a reply in one piece only end is called. Results
     * are complete at finish and end; n_prompt and n_cached at begin. begin and finish may be NULL. */
    void (*begin)(ek_buf *out, const ek_api_reply *r, int choice);
    void (*event)(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e);
    void (*finish)(ek_buf *out, const ek_api_reply *r, int choice);
    void (*end)(ek_buf *out, const ek_api_reply *r);
    void (*failed)(ek_buf *out, const ek_api_reply *r, int choice, const char *text);
    /* For replies in the background; NULL: this API has none. queued writes the first answer to the client, as an
     * object or as events; cancelled writes the object that is kept of a cancelled reply. */
    void (*queued)(ek_buf *out, const ek_api_reply *r, bool events);
    void (*cancelled)(ek_buf *out, const ek_api_reply *r);
    /* With step, event holds text back, so that the tokens of an engine's step become one event; step, finish and
     * failed write it. Each line of such a stream is sent separately. NULL: event writes at once. */
    void (*step)(ek_buf *out, const ek_api_reply *r);
    /* An event about the reading of the prompt, before begin, for requests that ask; may come repeatedly. NULL: none.
     */
    void (*progress)(ek_buf *out, const ek_api_reply *r, const ek_api_progress *p);
    /* The same instead of heartbeat, for every request. NULL: heartbeat. */
    void (*heartbeat_progress)(ek_buf *out, const ek_api_progress *p);
    /* Bytes that a client skips, so that proxies keep the connection. Also called before begin. */
    void (*heartbeat)(ek_buf *out);
    /* Rewrites the error of a picture or sound that parse accepted and that turned out to be damaged or too large.
     * parse itself rewrites the errors of its own refusals. NULL: the sentence stays. */
    ek_err (*refused)(ek_err err, ek_part_kind kind);
    /* The body of a reply with an error status; param and code may be NULL. */
    void (*error)(ek_buf *out, int status, const char *text, const char *param, const char *code);
} ek_dialect;

/* The built-in dialects, NULL at the end. The first one writes the errors of unknown paths. */
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

/* Makes a request and its prompt from a body: parse, render, encode; and r->answer if nothing is generated. Pure, any
 * thread. Errors are those of parse and ek_turn_prompt_make, and ECANCELLED if the request was dropped (base/clock.h);
 * r->param is that of parse, or prompt_param. Call ek_api_request_fini and ek_turn_prompt_fini also after a failure. */
ek_err ek_api_prepare(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m,
                      const char *body, size_t n, const ek_api_limits *limits);
/* The two halves of ek_api_prepare: reading the body, and making the prompt of its n bytes. After the first half,
 * limits->plan tells whether something was left out. */
ek_err ek_api_read(ek_api_request *r, const ek_dialect *d, const char *body, size_t n, const ek_api_limits *limits);
ek_err ek_api_make(ek_api_request *r, ek_turn_prompt *prompt, const ek_dialect *d, const ek_chat_model *m, size_t n,
                   const ek_api_limits *limits);
/* The dialect's read or parse alone. */
ek_err ek_api_parse(ek_api_request *r, const ek_dialect *d, const char *body, size_t n, const ek_api_limits *limits);
void ek_api_request_fini(ek_api_request *r);
/* An ek_dialect.prompt for requests that have none. */
ek_err ek_api_no_prompt(ek_turn_prompt *out, const ek_chat_model *m, ek_api_request *r);
/* The model's name in replies to lines of `evenkeel batch` without one. */
#define EK_BATCH_MODEL "evenkeel"
/* Sets the limits of a line of `evenkeel batch`: they depend only on the model and its context. */
void ek_api_limits_batch(ek_api_limits *l);
/* The default `code` of an error object, or NULL. param: as ek_api_request.param. */
const char *ek_api_error_code(ek_err err, const char *param);
/* The digest over all choices of a reply, each of which has its own. */
uint64_t ek_api_reply_digest(const ek_api_reply *r);
/* The prompt that a choice continues. first: the prompt that ek_api_prepare made. */
const ek_turn_prompt *ek_api_prompt_of(const ek_api_request *r, const ek_turn_prompt *first, int choice);

/* --- code that dialects share --- */

/* Coding clients put a line "x-anthropic-billing-header:…" with a changing checksum before the first system text, so
 * that no prompt would begin like an earlier one. Removes the line from text, the first system text; true if it was
 * there. */
bool ek_drop_billing(ek_buf *text);
void ek_drop_billing_line(ek_conversation *c);

/* Token counts of all choices together; each prompt counts once. */
typedef struct ek_api_usage {
    int64_t prompt, cached, completion, reasoning;
    int64_t images, sounds;           /* tokens of pictures and of sounds in the prompts */
    int64_t images_kept, sounds_kept; /* tokens of these that needed no encoding */
} ek_api_usage;
ek_api_usage ek_api_usage_of(const ek_api_reply *r);
/* Appends ,"image_tokens":N,"cached_image_tokens":N if there are pictures, and the same for audio, to the prompt's
 * details in every API's usage. OpenAI's types have the first of each. */
void ek_put_media_usage(ek_buf *out, const ek_api_usage *u);

/* Appends "prompt_progress":{…}, in llama-server's form. */
void ek_put_progress(ek_buf *out, const ek_api_progress *p);
/* Append a JSON text behind `before`, which ends with the key: s (null for NULL), or n bytes. */
void ek_put_string_after(ek_buf *out, const char *before, const char *s);
void ek_put_text_after(ek_buf *out, const char *before, const char *s, size_t n);
/* Appends s as a JSON text; null for NULL. */
void ek_put_string(ek_buf *out, const char *s);
/* Appends ,"evenkeel":{…} with digest and receipt if requested, a drawn seed, and reply_cached if there is a store; or
 * nothing. Before it comes ,"kv_transfer_params":{…} if another replica writes the reply. For a reply in one piece, or
 * for an object inside an event. */
void ek_put_extension(ek_buf *out, const ek_api_reply *r);

/* Each event of a stream is written between begin and end. A JSON object calls extend before its last brace, which adds
 * the state for resuming (serve/resume/resume.h), and with `whole` everything of ek_put_extension. */
void ek_event_begin(const ek_buf *out, const ek_api_reply *r);
void ek_event_extend(ek_buf *out, const ek_api_reply *r, bool whole);
void ek_event_end(ek_buf *out, const ek_api_reply *r);

/* --- a reply's events as consecutive blocks, for APIs whose streams open and close them: runs of thinking, runs of
 * text, and calls. White space alone is no block. --- */

/* Kinds of blocks are EK_REPLY_CONTENT, EK_REPLY_REASONING and EK_REPLY_CALL_START. */
typedef struct ek_blocks {
    int n;         /* begun so far */
    int open;      /* kind of the open block; -1: none. Set by ek_blocks_init */
    ek_buf blanks; /* white space that may begin a text */
} ek_blocks;

typedef struct ek_block_writer {
    /* e: the start of a call; otherwise only its kind matters. */
    void (*open)(ek_buf *out, const ek_api_reply *r, const ek_reply_event *e);
    /* A piece of the open block: text, or a call's arguments. */
    void (*piece)(ek_buf *out, const ek_api_reply *r, const char *s, size_t n);
    /* The open call ends unfinished; closing would make its arguments a JSON object. close follows. */
    void (*cut)(ek_buf *out, const ek_api_reply *r, const char *closing, size_t n);
    void (*close)(ek_buf *out, const ek_api_reply *r); /* blocks->open is still set */
} ek_block_writer;

void ek_blocks_init(ek_blocks *b);
void ek_blocks_fini(ek_blocks *b);
void ek_blocks_event(ek_blocks *b, const ek_reply_event *e, const ek_block_writer *w, ek_buf *out,
                     const ek_api_reply *r);
/* Closes the open one. */
void ek_blocks_end(ek_blocks *b, const ek_block_writer *w, ek_buf *out, const ek_api_reply *r);

/* Whether this part of an answer is a block. These parts, in order, are the stream's blocks. */
bool ek_blocks_has(const ek_answer *a, const ek_answer_part *p);
/* The last part of a kind, or NULL. It is the part of an open or closing block. */
const ek_answer_part *ek_blocks_last(const ek_answer *a, ek_reply_kind kind);

/* --- sealed texts --- */

/* Opaque strings that clients send back in later requests, for reasoning that they keep without showing it. The text is
 * encoded, not encrypted. A client can make such a string up, but every API lets it write reasoning anyway. */

/* Appends n bytes of text as an opaque string of ASCII letters, digits, '+', '/' and '='. */
void ek_seal(ek_buf *out, const char *text, size_t n);
/* Appends the text of a string that ek_seal made. False, with out unchanged, for any other. */
bool ek_unseal(ek_buf *out, const char *s, size_t n);

#endif
