/* The pictures, sounds and videos of a conversation in its prompt: the number of soft tokens of each file, and the
 * input of the towers. Inside src/chat, except ek_chat_media. */
#ifndef EK_CHAT_MEDIA_H
#define EK_CHAT_MEDIA_H

#include "chat/conversation.h"
#include "media/video/video.h"
#include "model/config/config.h"
#include "model/tower/tower.h"
#include "text/tokenizer/tokenizer.h"

/* A model's inputs besides text. Zeroed: none. */
typedef struct ek_chat_media {
    bool image, audio;              /* the model takes pictures; sounds */
    bool frame;                     /* with image: the vocabulary has a token for frames of videos */
    ek_media_ids ids;               /* of its vocabulary */
    ek_picture_opts picture;        /* the patches of its pictures; its budget is not used */
    int image_tokens, frame_tokens; /* default soft tokens of pictures and frames; 0: EK_BUDGET_* */
    int video_frames;               /* frames per video file; 0: EK_VIDEO_SAMPLES */
    ek_sound_kind sound;
} ek_chat_media;

/* The inputs of a model with this configuration, vocabulary and towers. towers NULL: none; t NULL: the configuration
 * alone determines the tokens. */
void ek_chat_media_of(ek_chat_media *out, const ek_towers *towers, const ek_config *config, const ek_tokenizer *t);
/* In words: "text alone", "text and images", "text and sounds" or "text, images and sounds". */
const char *ek_chat_media_words(const ek_chat_media *media);

/* The content of one placeholder of a prompt. */
typedef struct ek_run {
    const ek_media_file *file; /* the conversation's */
    ek_part_kind kind;
    int budget; /* maximum soft tokens of a picture */
    ek_alpha alpha;
    int tokens;    /* soft tokens */
    size_t memory; /* bytes of decoding at its peak */
} ek_run;

/* Zero-initialise; ek_runs_fini when done. */
typedef struct ek_runs {
    ek_run *at;
    int n;
    int64_t more; /* tokens of the prompt beyond one per run */
    int n_image_tokens, n_sound_tokens;
} ek_runs;

/* Default soft tokens of pictures, and the handling of transparency. */
typedef struct ek_run_budgets {
    int image, frame;
    ek_alpha alpha;
} ek_run_budgets;

/* Finds the files of c for the n placeholders of a prompt, given by their numbers (ek_prompt.media), and counts their
 * tokens from their headers alone. EUNSUPPORTED with a sentence for a kind that the model does not take; EINVAL for a
 * placeholder without a file and for a damaged file; it names "image 2". */
ek_err ek_runs_find(ek_runs *out, const ek_conversation *c, const int *number, size_t n, const ek_chat_media *media,
                    const ek_run_budgets *budgets);
/* ids: tokens with one soft token per run, in order. Each becomes begin, the run's soft tokens, end. first (may be
 * NULL): first[i] is the index of run i's first soft token. EUNSUPPORTED if the tokenizer has no token for a
 * placeholder. */
ek_err ek_runs_expand(ek_ids *ids, int *first, const ek_runs *runs, const ek_media_ids *marks);
/* Decodes run i; the caller gets a reference. EINVAL names it; ENOMEM. */
ek_err ek_run_decode(ek_media **out, const ek_runs *runs, int i, const ek_chat_media *media);
void ek_runs_fini(ek_runs *r);

/* --- videos that arrive as files, in a conversation --- */

typedef struct ek_chat_video_opts {
    const ek_ffmpeg *ffmpeg;
    const ek_chat_media *media; /* the model's, which takes pictures */
    int budget;                 /* soft tokens of a frame, ek_budget_known; 0: the model's default */
    double fps;                 /* see ek_video_opts */
    /* Counts the frames' memory; an error stops the video. NULL: not counted. */
    ek_err (*take)(void *arg, size_t bytes);
    void *arg;
} ek_chat_video_opts;

/* Decodes the video, whose bytes are taken over, and appends its frames to m, which is or will be a message of c; the
 * first frame keeps the bytes. EINVAL with a sentence if the conversation would exceed EK_MEDIA_MAX_FRAMES, and for
 * bytes that are no video; ECANCELLED, ENOMEM, EIO, and take's errors. Nothing is appended then. info (may be NULL):
 * the video's counts. */
ek_err ek_chat_video(ek_conversation *c, ek_message *m, ek_buf *bytes, const ek_chat_video_opts *o,
                     ek_video_info *info);

#endif
