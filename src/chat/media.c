#include "chat/media.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "media/limits.h"

void ek_chat_media_of(ek_chat_media *out, const ek_towers *towers, const ek_config *config, const ek_tokenizer *t)
{
    *out = (ek_chat_media){0};
    if (!towers) return;
    const ek_towers_info *info = ek_towers_get(towers);
    const ek_media_ids *ids = &config->media;
    *out = (ek_chat_media){.image = info->image && ids->soft[EK_PART_IMAGE] > 0,
                           .audio = info->sound && ids->soft[EK_PART_SOUND] > 0,
                           .frame = info->image && ids->soft[EK_PART_FRAME] > 0 &&
                                    (!t || ek_tokenizer_id(t, "<|video|>") == ids->soft[EK_PART_FRAME]),
                           .ids = *ids,
                           .picture = {.patching = info->patching},
                           .image_tokens = info->image_tokens,
                           .frame_tokens = info->frame_tokens,
                           .video_frames = info->video_frames,
                           .sound = info->sound_kind};
}

const char *ek_chat_media_words(const ek_chat_media *media)
{
    if (media->image && media->audio) return "text, images and sounds";
    return media->image ? "text and images" : media->audio ? "text and sounds" : "text alone";
}

/* --- the files of a prompt --- */

/* The file and kind for each number. The caller frees the list. */
static ek_run *list_files(const ek_conversation *c)
{
    ek_run *all = ek_alloc((size_t)(c->n_files + 1) * sizeof *all);
    for (int i = 0; i < c->n_messages; i++)
        for (int k = 0; k < c->messages[i].n_blocks; k++) {
            const ek_block *b = &c->messages[i].blocks[k];
            for (int j = 0; j < b->n_files; j++)
                all[b->files[j].number] = (ek_run){.file = &b->files[j], .kind = b->media};
        }
    return all;
}

static ek_err check_taken(const ek_run *r, const ek_chat_media *media)
{
    bool sound = r->kind == EK_PART_SOUND;
    const bool blind_to_it = r->kind == EK_PART_FRAME && media->image && !media->frame;
    if (blind_to_it) return ek_fail(EK_EUNSUPPORTED, "this model has no token for frames of videos");
    if (sound ? media->audio : media->image) return EK_OK;
    return ek_fail(EK_EUNSUPPORTED, "this model has no %s: it takes %s",
                   sound ? "ears (audio tower)" : "eyes (vision tower)", ek_chat_media_words(media));
}

/* Names the content by its kind: "image 2". */
static ek_err name_it(ek_err err, const ek_runs *runs, int i)
{
    int n = 1;
    for (int k = 0; k < i; k++) n += runs->at[k].kind == runs->at[i].kind;
    if (err == EK_EPARSE || err == EK_ETOOLARGE) err = EK_EINVAL;
    return ek_fail_in(err, "%s %d", ek_part_name(runs->at[i].kind), n);
}

static ek_picture_opts opts_of(const ek_run *r, const ek_chat_media *media)
{
    ek_picture_opts o = media->picture;
    o.budget = r->budget;
    o.alpha = r->alpha;
    o.known = r->file->image.width > 0 ? &r->file->image : NULL;
    return o;
}

static ek_err count_tokens(ek_run *r, const ek_chat_media *media)
{
    const void *bytes = ek_buf_text(&r->file->bytes);
    size_t n = r->file->bytes.len;
    if (r->file->made) {
        r->tokens = r->file->made->tokens;
        return EK_OK;
    }
    if (r->kind == EK_PART_SOUND) {
        ek_sound_info info;
        EK_TRY(ek_sound_probe(&info, bytes, n, EK_SOUND_SECONDS));
        r->memory = info.memory;
        return ek_sound_tokens(&r->tokens, info.samples, media->sound);
    }
    ek_picture_cost cost;
    ek_picture_opts o = opts_of(r, media);
    EK_TRY(ek_picture_probe(&cost, bytes, n, &o));
    r->memory = cost.memory;
    r->tokens = cost.fit.tokens;
    return EK_OK;
}

static ek_err find_one(ek_runs *out, int i, const ek_run *file, const ek_chat_media *media, const ek_run_budgets *b)
{
    ek_run *r = &out->at[i];
    if (!media->image && !media->audio) EK_TRY(check_taken(file ? file : r, media));
    if (!file || !file->file)
        return ek_fail(EK_EINVAL, "a placeholder stands for a picture or a sound that is not there");
    *r = *file;
    EK_TRY(check_taken(r, media));
    r->budget = r->file->budget ? r->file->budget : r->kind == EK_PART_FRAME ? b->frame : b->image;
    r->alpha = b->alpha;
    ek_err err = count_tokens(r, media);
    if (err) return name_it(err, out, i);
    out->more += r->tokens + 1;
    *(r->kind == EK_PART_SOUND ? &out->n_sound_tokens : &out->n_image_tokens) += r->tokens;
    return EK_OK;
}

ek_err ek_runs_find(ek_runs *out, const ek_conversation *c, const int *number, size_t n, const ek_chat_media *media,
                    const ek_run_budgets *budgets)
{
    if (n == 0) return EK_OK;
    ek_run *files = list_files(c);
    ek_err err = EK_OK;
    out->at = ek_alloc(n * sizeof *out->at);
    for (size_t i = 0; i < n && !err; i++) {
        bool known = number[i] >= 0 && number[i] < c->n_files;
        err = find_one(out, (int)i, known ? &files[number[i]] : NULL, media, budgets);
        out->n = (int)i + 1;
    }
    free(files);
    return err;
}

void ek_runs_fini(ek_runs *r)
{
    free(r->at);
    *r = (ek_runs){0};
}

/* --- tokens --- */

static int32_t *add_run(int32_t *to, const ek_run *r, const ek_media_ids *marks)
{
    *to++ = marks->begin[r->kind];
    for (int k = 0; k < r->tokens; k++) *to++ = marks->soft[r->kind];
    *to++ = marks->end[r->kind];
    return to;
}

ek_err ek_runs_expand(ek_ids *ids, int *first, const ek_runs *runs, const ek_media_ids *marks)
{
    if (runs->n == 0) return EK_OK;
    ek_ids out = {0};
    out.cap = out.len = ids->len + (size_t)runs->more;
    out.data = ek_alloc(out.cap * sizeof *out.data);
    int32_t *to = out.data;
    int n = 0;
    for (size_t i = 0; i < ids->len; i++) {
        const ek_run *r = n < runs->n ? &runs->at[n] : NULL;
        if (!r || ids->data[i] != marks->soft[r->kind]) {
            *to++ = ids->data[i];
            continue;
        }
        if (first) first[n] = (int)(to - out.data) + 1;
        to = add_run(to, r, marks);
        n++;
    }
    if (n < runs->n) { /* nothing was written beyond the room; each missing one would need more */
        ek_ids_fini(&out);
        return ek_fail(EK_EUNSUPPORTED, "the tokenizer of this model has no token for an %s",
                       ek_part_name(runs->at[n].kind));
    }
    EK_ASSERT(to == out.data + out.len);
    ek_ids_fini(ids);
    *ids = out;
    return EK_OK;
}

/* --- pixels and samples --- */

ek_err ek_run_decode(ek_media **out, const ek_runs *runs, int i, const ek_chat_media *media)
{
    const ek_run *r = &runs->at[i];
    const ek_media_file *f = r->file;
    ek_picture_opts o = opts_of(r, media);
    ek_err err = EK_OK;
    if (f->made) *out = ek_media_retain(f->made);
    else if (r->kind == EK_PART_SOUND)
        err = ek_media_read_sound(out, ek_buf_text(&f->bytes), f->bytes.len, media->sound);
    else err = ek_media_read_picture(out, r->kind, ek_buf_text(&f->bytes), f->bytes.len, &o);
    if (err) return name_it(err, runs, i);
    EK_ASSERT((*out)->tokens == r->tokens);
    return EK_OK;
}

typedef struct reading {
    const ek_chat_video_opts *o;
    ek_picture_opts picture;
    ek_video_info info;
    ek_media *made[EK_MEDIA_MAX_FRAMES];
    double seconds[EK_MEDIA_MAX_FRAMES];
    int n;
    bool refused; /* set by take; its error is not the video's fault */
} reading;

/* Counts a frame as it arrives, and all frames as they are kept. */
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
