/* The Gemma 4 chat template (canonical, 2026-07-09) as a function from a conversation to the text of a
 * prompt. The text is byte for byte that of the Jinja template; the offsets of intended control tokens come with it. */
#ifndef EK_TEXT_CHAT_H
#define EK_TEXT_CHAT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* The two published templates differ in one thing: with thinking off the large one (12B,
 * 26B-A4B, 31B) ends the generation prompt with an empty thought channel. */
typedef enum ek_chat_variant { EK_CHAT_SMALL, EK_CHAT_LARGE } ek_chat_variant;

/* Chooses the variant of a model directory: by chat_template.jinja if it is recognised (by hash, or by its
 * header and the generation prompt it writes); else "chat_variant" ("small" or "large") of
 * tokenizer_config.json; else small when config.json's hidden_size_per_layer_input (also
 * under text_config) is above 0, else large. Missing files are skipped; a template that is
 * not recognised is logged with its hash. EFORMAT for a file that is not JSON or a
 * chat_variant of another name. */
ek_err ek_chat_variant_of(ek_chat_variant *out, const char *dir);
/* One warning for each thing in the folder that changes other programs' prompts or answers and not ours: a template
 * that is not recognised in chat_template.json or tokenizer_config.json, an adapter. */
void ek_chat_note_folder(const char *dir);
/* The same for a template in memory, n bytes of the file that name names; text NULL, or not recognised: small if so. */
ek_chat_variant ek_chat_variant_of_text(const char *name, const char *text, size_t n, bool small);

typedef struct ek_chat_opts {
    ek_chat_variant variant;
    bool add_generation_prompt;
    bool enable_thinking;
    bool preserve_thinking; /* keeps the reasoning of past turns that made calls */
    bool continue_final;    /* the last message is the beginning of the answer: no generation
                               prompt is written, and the turn stays open */
    bool text_arguments;    /* arguments of a call that are a text stand in its braces as they are, without a pair of
                               braces of their own, as an earlier template had it; otherwise they are refused */
    bool loose_tools; /* a keyword of a tool's schema whose value the template raises an error for (required: true of
                         older drafts, properties that are no object, an items.type that is a number) is written as
                         empty */
    size_t max_bytes; /* of the text, where rendering stops with ETOOLONG; 0: no limit */
} ek_chat_opts;

typedef enum ek_media_kind { EK_MEDIA_IMAGE, EK_MEDIA_AUDIO, EK_MEDIA_VIDEO } ek_media_kind;

/* A rendered prompt. Zero-initialise; ek_prompt_fini when done. */
typedef struct ek_prompt {
    ek_buf text;
    size_t *control; /* ascending byte offsets in text of intended control tokens, for ek_encode */
    size_t n_control, cap_control;
    int *media; /* of each placeholder <|image|>, <|audio|> or <|video|>, in order, which are control tokens: the
                   number of its file, -1 where the part names none */
    size_t n_media, cap_media;
    size_t max_bytes; /* ek_chat_opts.max_bytes */
    bool full;        /* the text is longer than that: nothing is added any more */
    bool loose_tools; /* ek_chat_opts.loose_tools */
} ek_prompt;

void ek_prompt_fini(ek_prompt *p);

/* Renders into the empty prompt p. tools may be NULL or json null. Beyond the template, a content part {"type":
 * "tool_reference", "tool": {…}} declares a tool where it stands, in the words that the system turn has for those of
 * tools: in a tool's result as its member `tools`, in a system message behind its text. A part of a picture or a sound
 * may name its file, "file": N, and one of a video its frames, "frames": [{"time": "00:01", "file": N}, …], which are
 * written as transformers' processor writes them: each time and placeholder, blanks between. Messages are borrowed and
 * not changed. EINVAL where the template raises an error, with the index of the message and the
 * reason; ETOOLONG beyond opts->max_bytes. The content of p is then undefined, but p must still be freed by
 * ek_prompt_fini. Time is linear in the size of messages, tools and text, but for sorting the members of an object
 * and for tool results with ids that are numbers or lists. */
ek_err ek_chat_render(ek_prompt *p, const json_t *messages, const json_t *tools, const ek_chat_opts *opts);
/* The same from one object {"messages", "tools", "add_generation_prompt", "enable_thinking",
 * "preserve_thinking", "variant"}, as the render command takes it; variant defaults to
 * fallback. EINVAL for a wrong type. */
ek_err ek_chat_render_request(ek_prompt *p, const json_t *request, ek_chat_variant fallback);

#endif
