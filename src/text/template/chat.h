/* The Gemma 4 chat template (canonical, 2026-07-09) as a function from a conversation to the text of a prompt. The text
 * equals that of the Jinja template byte for byte; the offsets of intended control tokens are returned with it. */
#ifndef EK_TEXT_CHAT_H
#define EK_TEXT_CHAT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* The two published templates differ in one point: with thinking off, the large one (12B, 26B-A4B, 31B) ends the
 * generation prompt with an empty thought channel. */
typedef enum ek_chat_variant { EK_CHAT_SMALL, EK_CHAT_LARGE } ek_chat_variant;

/* Chooses the variant of a model directory: by chat_template.jinja if it is recognised (by hash, or by its header and
 * the generation prompt it writes); else "chat_variant" ("small" or "large") of tokenizer_config.json; else small if
 * config.json's hidden_size_per_layer_input (also under text_config) is above 0, else large. Missing files are skipped;
 * an unrecognised template is logged with its hash. EFORMAT for a file that is not JSON and for another chat_variant.
 */
ek_err ek_chat_variant_of(ek_chat_variant *out, const char *dir);
/* Logs a warning for each thing in the folder that changes other programs' prompts or answers, but not ours: an
 * unrecognised template in chat_template.json or tokenizer_config.json, an adapter. */
void ek_chat_note_folder(const char *dir);
/* The same for a template in memory, n bytes; name: its file. If text is NULL or not recognised, `small` decides. */
ek_chat_variant ek_chat_variant_of_text(const char *name, const char *text, size_t n, bool small);

typedef struct ek_chat_opts {
    ek_chat_variant variant;
    bool add_generation_prompt;
    bool enable_thinking;
    bool preserve_thinking; /* keeps the reasoning of past turns that made calls */
    /* The last message is the beginning of the answer: no generation prompt is written, and the turn stays open. */
    bool continue_final;
    /* Arguments of a call that are a text are written into the call's braces unchanged, without braces of their own, as
     * in an earlier template; otherwise they are refused. */
    bool text_arguments;
    /* A keyword of a tool's schema is written as empty if the template raises an error for its value (required: true of
     * older drafts, properties that are no object, an items.type that is a number). */
    bool loose_tools;
    size_t max_bytes; /* maximum bytes of the text, beyond which rendering stops with ETOOLONG; 0: no limit */
} ek_chat_opts;

typedef enum ek_media_kind { EK_MEDIA_IMAGE, EK_MEDIA_AUDIO, EK_MEDIA_VIDEO } ek_media_kind;

/* A rendered prompt. Zero-initialise; ek_prompt_fini when done. */
typedef struct ek_prompt {
    ek_buf text;
    size_t *control; /* ascending byte offsets in text of intended control tokens, for ek_encode */
    size_t n_control, cap_control;
    /* For each placeholder <|image|>, <|audio|> or <|video|>, which are control tokens, in order: the number of its
     * file; -1 if the part names none. */
    int *media;
    size_t n_media, cap_media;
    size_t max_bytes; /* ek_chat_opts.max_bytes */
    bool full;        /* text has reached max_bytes; nothing more is added */
    bool loose_tools; /* ek_chat_opts.loose_tools */
} ek_prompt;

void ek_prompt_fini(ek_prompt *p);

/* Renders into the empty prompt p. tools may be NULL or json null.
 *
 * Beyond the template, a content part {"type": "tool_reference", "tool": {…}} declares a tool at its place, in the
 * words of the system turn's declarations: in a tool's result as its member `tools`, in a system message after its
 * text. A part of a picture or a sound may name its file, "file": N. A part of a video may name its frames, "frames":
 * [{"time": "00:01", "file": N}, …], which are written like transformers' processor writes them: each time and
 * placeholder, separated by blanks.
 *
 * Messages are borrowed and not changed. EINVAL if the template raises an error, with the index of the message and the
 * reason; ETOOLONG beyond opts->max_bytes. The content of p is then undefined; free it with ek_prompt_fini in any case.
 * Time is linear in the size of messages, tools and text, except sorting the members of an object and tool results with
 * ids that are numbers or lists. */
ek_err ek_chat_render(ek_prompt *p, const json_t *messages, const json_t *tools, const ek_chat_opts *opts);
/* The same from one object {"messages", "tools", "add_generation_prompt", "enable_thinking", "preserve_thinking",
 * "variant"}, the input of the render command; the default of variant is fallback. EINVAL for a wrong type. */
ek_err ek_chat_render_request(ek_prompt *p, const json_t *request, ek_chat_variant fallback);

#endif
