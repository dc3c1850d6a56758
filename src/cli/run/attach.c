/* Pictures, sounds and videos of a dialogue: files that the next message begins with. */
#include <stdlib.h>

#include "base/file.h"
#include "chat/media.h"
#include "cli/frame/open.h"
#include "cli/run/dialogue.h"
#include "media/limits.h"

ek_err ek_dialogue_takes(const ek_dialogue *d, ek_part_kind kind)
{
    const ek_chat_media *m = &d->m.chat.media;
    bool sound = kind == EK_PART_SOUND;
    if (sound ? m->audio : m->image) return EK_OK;
    return ek_fail(EK_EINVAL, "this model has no %s: it takes %s", sound ? "ears (audio tower)" : "eyes (vision tower)",
                   ek_chat_media_words(m));
}

static ek_err say_image(const ek_dialogue *d, const ek_buf *bytes, const char *path, ek_buf *says)
{
    ek_picture_opts o = d->m.chat.media.picture;
    ek_picture_cost cost;
    o.budget = ek_cli_image_tokens(d->cli, d->m.chat.media.image_tokens);
    EK_TRY(ek_picture_probe(&cost, ek_buf_text(bytes), bytes->len, &o));
    if (says)
        ek_buf_fmt(says, "%s, %d x %d pixels, %d tokens", path, cost.image.width, cost.image.height, cost.fit.tokens);
    return EK_OK;
}

static ek_err say_sound(const ek_dialogue *d, const ek_buf *bytes, const char *path, ek_buf *says)
{
    ek_sound_info info;
    int tokens;
    EK_TRY(ek_sound_probe(&info, ek_buf_text(bytes), bytes->len));
    EK_TRY(ek_sound_tokens(&tokens, info.samples, d->m.chat.media.sound));
    if (says) ek_buf_fmt(says, "%s, %.1f s, %d tokens", path, (double)info.samples / EK_SOUND_RATE, tokens);
    return EK_OK;
}

static ek_err attach_video(ek_dialogue *d, ek_buf *bytes, const char *path, ek_buf *says)
{
    const ek_chat_video_opts o = {.ffmpeg = d->ffmpeg, .media = &d->m.chat.media};
    ek_video_info info;
    if (ek_chat_video(&d->history, &d->next, bytes, &o, &info)) return ek_fail_in(EK_EINVAL, "%s", path);
    d->next.role = EK_ROLE_USER;
    const ek_block *b = &d->next.blocks[d->next.n_blocks - 1];
    if (says)
        ek_buf_fmt(says, "%s, %.1f s, %d x %d pixels, %d frames of %d tokens", path, info.frames / info.fps, info.width,
                   info.height, b->n_files, b->files[0].made->tokens);
    return EK_OK;
}

ek_err ek_dialogue_attach(ek_dialogue *d, ek_part_kind kind, const char *path, ek_buf *says)
{
    bool sound = kind == EK_PART_SOUND;
    ek_buf bytes = {0};
    EK_TRY(ek_dialogue_takes(d, kind));
    if (kind == EK_PART_FRAME && !d->ffmpeg)
        return ek_fail(EK_EINVAL, "%s: files of videos are read with --ffmpeg, which was not given", path);
    EK_TRY(ek_file_read(&bytes, path, EK_MEDIA_MAX_BYTES));
    if (kind == EK_PART_FRAME) return attach_video(d, &bytes, path, says);
    ek_err err = sound ? say_sound(d, &bytes, path, says) : say_image(d, &bytes, path, says);
    if (err) {
        ek_buf_fini(&bytes);
        return ek_fail_in(EK_EINVAL, "%s", path);
    }
    d->next.role = EK_ROLE_USER;
    ek_conversation_media(&d->history, &d->next, kind, 1)->files[0].bytes = bytes;
    return EK_OK;
}
