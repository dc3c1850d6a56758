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
    bool image, audio;              /* it has eyes, it has ears */
    bool frame;                     /* with eyes: its vocabulary has a token for frames of videos */
    ek_media_ids ids;               /* of its vocabulary */
    ek_picture_opts picture;        /* how its pictures are cut; its budget is not used */
    int image_tokens, frame_tokens; /* soft tokens of pictures and frames that do not say how many; 0: EK_BUDGET_* */
    int video_frames;               /* that stand for a video that came as a file; 0: EK_VIDEO_SAMPLES */
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
    int budget; /* soft tokens at most, of pictures */
    ek_alpha alpha;
    int tokens;    /* soft tokens */
    size_t memory; /* bytes that decoding takes at its peak */
} ek_run;

/* Zero-initialise; ek_runs_fini when done. */
typedef struct ek_runs {
    ek_run *at;
    int n;
    int64_t more; /* tokens that the prompt has beyond one for each of them */
    int n_image_tokens, n_sound_tokens;
} ek_runs;

/* How many soft tokens pictures get that do not say it themselves, and what shows where they are transparent. */
typedef struct ek_run_budgets {
    int image, frame;
    ek_alpha alpha;
} ek_run_budgets;

/* Finds the files of c for the n placeholders of a prompt, given by their numbers (ek_prompt.media), and counts their
 * tokens from their headers alone. EUNSUPPORTED in a sentence for what the model does not take; EINVAL for a
 * placeholder without a file and for a file that is damaged; it names "image 2". */
ek_err ek_runs_find(ek_runs *out, const ek_conversation *c, const int *number, size_t n, const ek_chat_media *media,
                    const ek_run_budgets *budgets);
/* ids: tokens with one soft token per run, in order. Each becomes begin, its soft tokens, end; first[i], unless it is
 * NULL, is where the soft tokens of run i begin. EUNSUPPORTED where the tokenizer has no token for a placeholder. */
ek_err ek_runs_expand(ek_ids *ids, int *first, const ek_runs *runs, const ek_media_ids *marks);
/* Decodes one; the caller has a reference. EINVAL names it; ENOMEM. */
ek_err ek_run_decode(ek_media **out, const ek_runs *runs, int i, const ek_chat_media *media);
void ek_runs_fini(ek_runs *r);

/* Videos that come as files, in a conversation. */

typedef struct ek_chat_video_opts {
    const ek_ffmpeg *ffmpeg;
    const ek_chat_media *media; /* of the model, which has eyes */
    int budget;                 /* soft tokens of a frame, ek_budget_known; 0: the model's own */
    double fps;                 /* as in ek_video_opts */
    /* Counts memory that the frames will take. NULL: nothing is counted. */
    ek_err (*take)(void *arg, size_t bytes);
    void *arg;
} ek_chat_video_opts;

/* Decodes the video, which is taken over, and appends its frames to m, a message of c or one that will be; the first
 * has the bytes of the file. EINVAL in a sentence where more than EK_MEDIA_MAX_FRAMES would be in the conversation, and
 * for what is no video; ECANCELLED, ENOMEM, EIO, and what take says. Nothing is appended then. info, unless it is NULL:
 * what was found. */
ek_err ek_chat_video(ek_conversation *c, ek_message *m, ek_buf *bytes, const ek_chat_video_opts *o,
                     ek_video_info *info);

#endif
