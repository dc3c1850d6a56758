/* Pictures, sounds and videos of a dialogue. Their files go to the beginning of the next message. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "chat/media.h"
#include "cli/frame/open.h"
#include "cli/run/dialogue.h"
#include "media/limits.h"
#include "media/pdf.h"

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
    EK_TRY(ek_sound_probe(&info, ek_buf_text(bytes), bytes->len, EK_SOUND_SECONDS));
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

/* --- PDFs --- */

typedef struct pages {
    ek_buf *at;
    int n;
} pages;

static ek_err keep_page(void *arg, const void *png, size_t n)
{
    pages *p = arg;
    p->at = ek_realloc(p->at, (size_t)(p->n + 1) * sizeof *p->at);
    p->at[p->n] = (ek_buf){0};
    ek_buf_add(&p->at[p->n++], png, n);
    return EK_OK;
}

static ek_err draw_pages(ek_dialogue *d, pages *p, const ek_buf *pdf)
{
    if (!d->pdftoppm) EK_TRY(ek_pdftoppm_find(&d->pdftoppm, ek_cli_program(d->cli->pdftoppm)));
    return ek_pdf_pages(d->pdftoppm, ek_buf_text(pdf), pdf->len, EK_PDF_PAGES, keep_page, p);
}

static ek_err attach_pages(ek_dialogue *d, const ek_buf *pdf, const char *path, ek_buf *says)
{
    pages p = {0};
    ek_buf first = {0};
    ek_err err = draw_pages(d, &p, pdf);
    if (!err) err = say_image(d, &p.at[0], path, &first);
    for (int i = 0; i < p.n && !err; i++) {
        ek_conversation_media(&d->history, &d->next, EK_PART_IMAGE, 1)->files[0].bytes = p.at[i];
        p.at[i] = (ek_buf){0};
    }
    if (!err) d->next.role = EK_ROLE_USER;
    if (!err && says) ek_buf_fmt(says, "%s, of the first of %d pages", ek_buf_text(&first), p.n);
    for (int i = 0; i < p.n; i++) ek_buf_fini(&p.at[i]);
    ek_buf_fini(&first);
    free(p.at);
    return err ? ek_fail_in(EK_EINVAL, "%s", path) : EK_OK;
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
    if (!sound && ek_is_pdf(ek_buf_text(&bytes), bytes.len)) {
        const ek_err err = attach_pages(d, &bytes, path, says);
        ek_buf_fini(&bytes);
        return err;
    }
    ek_err err = sound ? say_sound(d, &bytes, path, says) : say_image(d, &bytes, path, says);
    if (err) {
        ek_buf_fini(&bytes);
        return ek_fail_in(EK_EINVAL, "%s", path);
    }
    d->next.role = EK_ROLE_USER;
    ek_conversation_media(&d->history, &d->next, kind, 1)->files[0].bytes = bytes;
    return EK_OK;
}
