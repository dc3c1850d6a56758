/* Videos that come as files, in a conversation. */
#ifndef EK_CHAT_VIDEO_H
#define EK_CHAT_VIDEO_H

#include "chat/media.h"
#include "media/video/video.h"

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
