/* Makes the tokens of a prompt from a conversation: template values, rendered text, token ids. */
#ifndef EK_CHAT_PROMPT_H
#define EK_CHAT_PROMPT_H

#include "chat/media.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

/* The parts of a model that turn text into tokens and back. Immutable after open: share it between threads. */
typedef struct ek_chat_model {
    ek_tokenizer *tokenizer;
    ek_marks marks;
    ek_chat_variant variant;
    size_t max_token_bytes; /* maximum bytes of a token, so that a context of N tokens holds at most N times as many
                               bytes */
    ek_vocab *vocab;        /* for grammars; has a lock of its own */
    ek_chat_media media;    /* inputs besides text; set by the opener of the towers, before the struct is shared */
} ek_chat_model;

/* Opens the tokenizer of the model at path, in any container (model/source/source.h). The caller closes it.
 * ENOTFOUND, EIO, EFORMAT, EUNSUPPORTED; the error names the file. */
ek_err ek_chat_tokenizer_open(ek_tokenizer **out, const char *path);
/* The variant of the model's chat template. The same errors. */
ek_err ek_chat_variant_open(ek_chat_variant *out, const char *path);

/* path: a model in any container. The same errors. Call ek_chat_model_close in any case, also for a zeroed struct. */
ek_err ek_chat_model_open(ek_chat_model *m, const char *path);
void ek_chat_model_close(ek_chat_model *m);

/* Names everything that turns a conversation into tokens, tokens into text, and ends a reply: vocabulary, template and
 * the ids in stop. 16 digits and NUL. */
enum { EK_CHAT_NAME = 17 };
void ek_chat_model_name(char out[EK_CHAT_NAME], const ek_chat_model *m, const int32_t *stop, int n_stop);

/* Names only the meaning of the ids: models with the same name can draft for each other. */
void ek_chat_vocabulary_name(char out[EK_CHAT_NAME], const ek_tokenizer *t);

typedef enum ek_thinking {
    EK_THINKING_UNSET, /* on if the first system text starts with <|think|>, otherwise off */
    EK_THINKING_OFF,
    EK_THINKING_ON
} ek_thinking;

typedef struct ek_prompt_opts {
    ek_thinking thinking;
    bool preserve_thinking, continue_final, add_generation_prompt; /* see ek_chat_opts */
    int ctx_tokens;   /* maximum tokens of prompt and reply; the prompt has to be shorter */
    int image_tokens; /* default soft tokens of pictures, ek_budget_known; 0: the model's */
    ek_alpha alpha;   /* handling of transparency in pictures */
    bool headers; /* pictures and sounds are counted by their headers and not decoded, because the prompt is not run */
    /* Called before a prompt that is far too long is rendered for counting, and before a picture or sound is decoded:
     * reserves `bytes`, or returns an error. NULL: always granted. */
    ek_err (*room)(void *arg, size_t bytes);
    void (*give)(void *arg, size_t bytes); /* returns bytes that room reserved; NULL if room is */
    void *room_arg;
} ek_prompt_opts;

/* The tokens a turn continues. Zero-initialise; ek_turn_prompt_fini when done. */
typedef struct ek_turn_prompt {
    ek_ids ids;
    bool thinking;                      /* thinking was on */
    ek_part *part;                      /* pictures and sounds, in order of position; owned, with a reference each */
    int n_parts;                        /* none with ek_prompt_opts.headers */
    int n_image_tokens, n_sound_tokens; /* soft tokens among ids */
    int refused; /* after an error: 1 + the kind of the picture or sound that caused it; 0: another cause */
} ek_turn_prompt;

/* Renders and encodes c into out, which is zeroed. Any thread: the result is a function of the arguments. tools: NULL,
 * or a list of declarations in the template's form ({"type": "function", "function": {…}}).
 *
 * EINVAL if the template refuses the conversation, with the template's index of the message; errors of ek_runs_find for
 * pictures and sounds. ETOOLONG if the prompt does not fit the context: "prompt is too long: N tokens > M maximum", the
 * wording that coding clients parse to shorten their prompts. Counting N takes at most a second of this thread's time,
 * in memory that opts->room grants; if that does not suffice, N is an estimate, and the sentence says so. ECANCELLED if
 * the request was dropped (base/clock.h). Call ek_turn_prompt_fini in any case. */
ek_err ek_turn_prompt_make(ek_turn_prompt *out, const ek_chat_model *m, const ek_conversation *c, const json_t *tools,
                           const ek_prompt_opts *opts);
void ek_turn_prompt_fini(ek_turn_prompt *p);
size_t ek_turn_prompt_media(const ek_turn_prompt *p); /* bytes of its pictures and sounds */

/* For a text that does not fit after n_before tokens: counts it and returns ETOOLONG with that sentence; EK_OK if it
 * fits after all. */
ek_err ek_prompt_too_long(const ek_chat_model *m, const char *text, size_t n, const size_t *control, size_t n_control,
                          size_t before, const ek_prompt_opts *opts);
/* The maximum bytes of text that can fit the context, because no token has more than max_token_bytes. */
size_t ek_prompt_max_text(const ek_chat_model *m, const ek_prompt_opts *opts);

#endif
