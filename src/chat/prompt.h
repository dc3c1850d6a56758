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
    size_t max_token_bytes; /* of the longest token: a context holds at most so many bytes per token */
    ek_vocab *vocab;        /* for grammars; has a lock of its own */
    ek_chat_media media;    /* what it takes beside text; whoever opens its towers says it, before it is shared */
} ek_chat_model;

/* Opens the tokenizer of the model at path, in any container (model/source/source.h). The caller closes it.
 * ENOTFOUND, EIO, EFORMAT, EUNSUPPORTED; the error names the file. */
ek_err ek_chat_tokenizer_open(ek_tokenizer **out, const char *path);
/* The variant of its chat template. The same errors. */
ek_err ek_chat_variant_open(ek_chat_variant *out, const char *path);

/* path: a model in any container. The same errors. ek_chat_model_close also after a failure, and for a
 * zeroed one. */
ek_err ek_chat_model_open(ek_chat_model *m, const char *path);
void ek_chat_model_close(ek_chat_model *m);

/* Names all that makes tokens of a conversation, and text of tokens, and that ends a reply: vocabulary, template and
 * the ids in stop. 16 digits and NUL. */
enum { EK_CHAT_NAME = 17 };
void ek_chat_model_name(char out[EK_CHAT_NAME], const ek_chat_model *m, const int32_t *stop, int n_stop);

/* Names what the ids stand for, and nothing else: models that share it can draft for each other. */
void ek_chat_vocabulary_name(char out[EK_CHAT_NAME], const ek_tokenizer *t);

typedef enum ek_thinking {
    EK_THINKING_UNSET, /* on if the first system text starts with <|think|>, else off */
    EK_THINKING_OFF,
    EK_THINKING_ON
} ek_thinking;

typedef struct ek_prompt_opts {
    ek_thinking thinking;
    bool preserve_thinking, continue_final, add_generation_prompt; /* as in ek_chat_opts */
    int ctx_tokens;   /* prompt and reply together: the prompt has to be shorter */
    int image_tokens; /* soft tokens of pictures that do not say how many, ek_budget_known; 0: the model's */
    ek_alpha alpha;   /* what shows where pictures are transparent */
    bool headers;     /* pictures and sounds are counted by their headers and not decoded: the prompt is not run */
    /* Asked before a prompt that is far too long is rendered to be counted, and before a picture or a sound is decoded:
     * may it take so many bytes? NULL: yes. */
    ek_err (*room)(void *arg, size_t bytes);
    void (*give)(void *arg, size_t bytes); /* what it gave is free again. NULL with room */
    void *room_arg;
} ek_prompt_opts;

/* The tokens a turn continues. Zero-initialise; ek_turn_prompt_fini when done. */
typedef struct ek_turn_prompt {
    ek_ids ids;
    bool thinking; /* whether thinking was on */
    ek_part *part; /* pictures and sounds, in order of their positions; owned, with a reference of each */
    int n_parts;   /* none with ek_prompt_opts.headers */
    int n_image_tokens, n_sound_tokens; /* soft tokens among ids */
    int refused; /* after a failure: 1 + the kind of the picture or sound that it is about; 0: it is about none */
} ek_turn_prompt;

/* Renders and encodes c into out, which is zeroed. Any thread: the result is a function of the arguments. tools: NULL,
 * or a list of declarations as in the chat template
 * ({"type": "function", "function": {…}}). EINVAL where the template refuses the conversation, with the
 * index of the message as the template counts them; of ek_runs_find for pictures and
 * sounds; ETOOLONG where the prompt does not fit the
 * context: "prompt is too long: N tokens > M maximum", the wording that coding clients look for, which size what they
 * leave out by N and M. N is counted for a second of this thread's time at most, in memory that opts->room allows;
 * where that is not enough N is an estimate, and the sentence says so. ECANCELLED where it is not wanted any more
 * (base/clock.h). ek_turn_prompt_fini also after a failure. */
ek_err ek_turn_prompt_make(ek_turn_prompt *out, const ek_chat_model *m, const ek_conversation *c, const json_t *tools,
                           const ek_prompt_opts *opts);
void ek_turn_prompt_fini(ek_turn_prompt *p);
size_t ek_turn_prompt_media(const ek_turn_prompt *p); /* bytes of its pictures and sounds */

/* For a text that does not fit, behind so many tokens: counts it and returns ETOOLONG with that sentence; EK_OK if it
 * fits after all. */
ek_err ek_prompt_too_long(const ek_chat_model *m, const char *text, size_t n, const size_t *control, size_t n_control,
                          size_t before, const ek_prompt_opts *opts);
/* No text that is longer fits the context: no token stands for more bytes than the longest. */
size_t ek_prompt_max_text(const ek_chat_model *m, const ek_prompt_opts *opts);

#endif
