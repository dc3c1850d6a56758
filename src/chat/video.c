#include "chat/video.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "media/limits.h"

typedef struct reading {
    const ek_chat_video_opts *o;
    ek_picture_opts picture;
    ek_video_info info;
    ek_media *made[EK_MEDIA_MAX_FRAMES];
    double seconds[EK_MEDIA_MAX_FRAMES];
    int n;
    bool refused; /* by take, whose error is no fault of the video's */
} reading;

/* A frame as it comes, and all of them as they stay. */
static ek_err count_memory(void *arg, const ek_video_info *info, int n)
{
    reading *r = arg;
    ek_image_fit fit;
    r->info = *info;
    if (!r->o->take || info->width < 1 || info->height < 1) return EK_OK;
    EK_TRY(ek_image_fit_budget(&fit, info->width, info->height, r->picture.budget, r->picture.patching));
    const size_t frame = 3 * (size_t)info->width * (size_t)info->height;
    const size_t kept = 3 * (size_t)fit.width * (size_t)fit.height;
    ek_err err = r->o->take(r->o->arg, frame + kept * (size_t)n +
                                           ek_resizing_memory(info->width, info->height, 1, fit.width, fit.height));
    r->refused = err != EK_OK;
    return err;
}

static ek_err take_frame(void *arg, int i, int n, double seconds, const ek_image *image)
{
    reading *r = arg;
    EK_ASSERT(i == r->n && n <= EK_MEDIA_MAX_FRAMES);
    EK_TRY(ek_media_make_picture(&r->made[i], EK_PART_FRAME, image, &r->picture));
    r->seconds[i] = seconds;
    r->n++;
    return EK_OK;
}

ek_err ek_chat_video(ek_conversation *c, ek_message *m, ek_buf *bytes, const ek_chat_video_opts *o, ek_video_info *info)
{
    reading r = {.o = o, .picture = o->media->picture};
    const int usual = o->media->frame_tokens ? o->media->frame_tokens : EK_BUDGET_FRAME;
    r.picture.budget = o->budget ? o->budget : usual;
    const ek_video_opts how = {
        .frames = o->media->video_frames, .fps = o->fps, .max = EK_MEDIA_MAX_FRAMES - c->n_frames};
    const ek_video_sink to = {.info = count_memory, .frame = take_frame, .arg = &r};
    ek_err err = ek_video_read(o->ffmpeg, ek_buf_text(bytes), bytes->len, &how, &to);
    if (!r.refused && (err == EK_EINVAL || err == EK_EPARSE || err == EK_ETOOLARGE))
        err = ek_fail_in(EK_EINVAL, "a video");
    if (err) {
        for (int i = 0; i < r.n; i++) ek_media_release(r.made[i]);
        ek_buf_fini(bytes);
        return err;
    }
    ek_block *b = ek_conversation_media(c, m, EK_PART_FRAME, r.n);
    for (int i = 0; i < r.n; i++) {
        b->files[i].made = r.made[i];
        b->files[i].seconds = r.seconds[i];
        b->files[i].budget = o->budget;
    }
    b->files[0].bytes = *bytes;
    *bytes = (ek_buf){0};
    if (info) *info = r.info;
    return EK_OK;
}
