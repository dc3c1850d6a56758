/* A dialogue of `run`: model, history and tools in this process; answers are printed as they come. */
#ifndef EK_CLI_DIALOGUE_H
#define EK_CLI_DIALOGUE_H

#include "chat/conversation.h"
#include "chat/prompt.h"
#include "cli/frame/open.h"
#include "media/pdf_pages.h"
#include "media/video/video.h"

/* How answers look. */
typedef struct ek_look {
    bool color;   /* dimmed text */
    bool control; /* lines may be rewritten: thoughts are folded */
    bool whole;   /* thoughts are shown whole all the same */
} ek_look;

/* Of the last answer. */
typedef struct ek_dialogue_stats {
    int n_prompt, n_cached, n_tokens;
    double first, all; /* seconds to the first token, and to the end */
    bool content;      /* something was printed on standard output */
} ek_dialogue_stats;

typedef struct ek_dialogue {
    ek_cli options; /* a copy that may be changed; what is owned in it stays the caller's */
    const ek_cli *cli;
    ek_opened m;
    ek_conversation history;
    ek_message next;       /* what was added to the next message of the user: pictures, sounds and videos */
    ek_ffmpeg *ffmpeg;     /* owned: what reads videos; NULL: they are not read */
    ek_pdftoppm *pdftoppm; /* owned: what draws pages of PDFs; NULL: until the first one */
    json_t *tools;         /* owned; NULL: none */
    char *system;          /* owned: the system message; NULL without */
    char *model;           /* owned: the name of a model that was chosen since; NULL without */
    bool think;
    ek_look look;
    ek_buf thought; /* the last one */
    ek_dialogue_stats stats;
} ek_dialogue;

/* ek_dialogue_close also after a failure. */
ek_err ek_dialogue_open(ek_dialogue *d, const ek_cli *cli);
void ek_dialogue_close(ek_dialogue *d);
ek_err ek_dialogue_tools(ek_dialogue *d, const char *path); /* a JSON list of tools; replaces. NULL: none any more */
void ek_dialogue_reset(ek_dialogue *d);                     /* removes all but the system message */

/* Replaces the system message; NULL or "": none. */
void ek_dialogue_system(ek_dialogue *d, const char *text);

/* Another model, by path or name as --model; NULL: the bundled one. The conversation goes on. After a failure the one
 * before is open again, or, where *lost is set, none is: the dialogue can only be closed. */
ek_err ek_dialogue_model(ek_dialogue *d, const char *name, bool *lost);

/* EK_OK where the model takes it; EINVAL says what it lacks. */
ek_err ek_dialogue_takes(const ek_dialogue *d, ek_part_kind kind);
/* Reads a picture, a sound, or a video (EK_PART_FRAME), for the next message of the user; a PDF is a picture of each of
 * its pages. says: what it is and costs, as one line; to be freed with ek_buf_fini. EINVAL where the model does not
 * take it, and for a file that cannot be read as one. */
ek_err ek_dialogue_attach(ek_dialogue *d, ek_part_kind kind, const char *path, ek_buf *says);

/* Adds a message to the history; a user's begins with what was attached. call: NULL, or the call that this message of
 * EK_ROLE_TOOL answers. */
void ek_dialogue_add(ek_dialogue *d, ek_role role, const char *text, const ek_block *call);

/* Lets the model answer: content to standard output, reasoning to standard error, both at once. Adds the
 * answer to the history, as its last message. *stop is read between tokens: when it is set, the
 * answer ends with the text so far. EIO when standard output is closed. */
ek_err ek_dialogue_answer(ek_dialogue *d, const volatile int *stop);

#endif
