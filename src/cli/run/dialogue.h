/* A dialogue of `run`: model, history and tools in this process; answers are printed as they arrive. */
#ifndef EK_CLI_DIALOGUE_H
#define EK_CLI_DIALOGUE_H

#include "chat/conversation.h"
#include "chat/prompt.h"
#include "cli/frame/open.h"
#include "media/video/video.h"

/* The style of answers. */
typedef struct ek_look {
    bool color;   /* dimmed text */
    bool control; /* lines may be rewritten, so thoughts are folded */
    bool whole;   /* thoughts are shown in full anyway */
} ek_look;

/* Statistics of the latest answer. */
typedef struct ek_dialogue_stats {
    int n_prompt, n_cached, n_tokens;
    double first, all; /* seconds to the first token, and to the end */
    bool content;      /* something was printed on standard output */
} ek_dialogue_stats;

typedef struct ek_dialogue {
    ek_cli options; /* a copy that may be changed; pointers stay the caller's */
    const ek_cli *cli;
    ek_opened m;
    ek_conversation history;
    ek_message next;   /* parts of the user's next message: pictures, sounds and videos */
    ek_ffmpeg *ffmpeg; /* owned; reads videos; NULL: videos are refused */
    char *pdftoppm;    /* owned path; draws pages of PDFs; NULL: until the first PDF */
    json_t *tools;     /* owned; NULL: none */
    char *system;      /* owned; the system message; NULL: none */
    char *model;       /* owned; the name of a model chosen since the start; NULL: none */
    bool think;
    ek_look look;
    ek_buf thought; /* the latest thought */
    ek_dialogue_stats stats;
} ek_dialogue;

/* Call ek_dialogue_close in any case. */
ek_err ek_dialogue_open(ek_dialogue *d, const ek_cli *cli);
void ek_dialogue_close(ek_dialogue *d);
/* Replaces the tools by a JSON list in a file; NULL: none. */
ek_err ek_dialogue_tools(ek_dialogue *d, const char *path);
void ek_dialogue_reset(ek_dialogue *d); /* removes all but the system message */

/* Replaces the system message; NULL or "": none. */
void ek_dialogue_system(ek_dialogue *d, const char *text);

/* Opens another model, by path or name as in --model; NULL: the bundled one. The conversation continues. After an error
 * the previous model is open again. If that fails, too, *lost is set, and the dialogue can only be closed. */
ek_err ek_dialogue_model(ek_dialogue *d, const char *name, bool *lost);

/* EK_OK if the model takes this kind. EINVAL names the missing part of the model. */
ek_err ek_dialogue_takes(const ek_dialogue *d, ek_part_kind kind);
/* Reads a picture, a sound or a video (EK_PART_FRAME) for the user's next message; a PDF becomes a picture per page.
 * says: a line with kind and cost; free it with ek_buf_fini. EINVAL if the model does not take the kind, or the file is
 * unreadable. */
ek_err ek_dialogue_attach(ek_dialogue *d, ek_part_kind kind, const char *path, ek_buf *says);

/* Adds a message to the history; a user's begins with the attached parts. call: NULL, or the call that this message of
 * EK_ROLE_TOOL answers. */
void ek_dialogue_add(ek_dialogue *d, ek_role role, const char *text, const ek_block *call);

/* Generates the answer: content to standard output, reasoning to standard error, as they arrive. Adds the answer to the
 * history. *stop is read between tokens; when it is set, the answer ends with the text so far. EIO if standard output
 * is closed. */
ek_err ek_dialogue_answer(ek_dialogue *d, const volatile int *stop);

#endif
