/* Videos in the messages of a body: as frames that the client extracted, or as files, which ffmpeg reads if the
 * operator allows it. */
#include <string.h>

#include "chat/media.h"
#include "media/limits.h"
#include "serve/api/media.h"
#include "serve/api/field.h"
#include "text/json/json.h"

/* --- frames --- */

enum { MAX_SECONDS = 360000 }; /* 100 hours */

/* The time of frame i of n, in seconds. */
static ek_err read_time(double *out, const json_t *part, size_t i, size_t n)
{
    const json_t *times = ek_field(part, "timestamps"), *fps = ek_field(part, "fps");
    double rate = json_is_number(fps) ? json_number_value(fps) : 0;
    if (times) {
        const json_t *one = json_array_get(times, i);
        if (json_array_size(times) != n)
            return ek_fail(EK_EINVAL, "timestamps must be a list of as many numbers as there are frames, %zu", n);
        *out = json_is_number(one) ? json_number_value(one) : -1;
        if (*out >= 0 && *out <= MAX_SECONDS) return EK_OK;
        return ek_fail(EK_EINVAL, "timestamps[%zu]: a number of seconds from 0 to %d is needed", i, MAX_SECONDS);
    }
    if (!fps) rate = 1;
    if (!(rate >= 0.001 && rate <= 1000)) return ek_fail(EK_EINVAL, "fps: a number from 0.001 to 1000 is needed");
    *out = (double)i / rate;
    return EK_OK;
}

static ek_err read_frame(ek_media_file *f, const json_t *v, const ek_api_limits *limits)
{
    const json_t *url = ek_media_url_of(v);
    bool here;
    if (!url) return ek_fail(EK_EINVAL, "a text url is needed");
    EK_TRY(ek_media_read_url(&f->bytes, EK_PART_FRAME, json_string_value(url), json_string_length(url), limits, &here));
    return here ? ek_media_check_header(&f->image, EK_PART_FRAME, &f->bytes, limits) : EK_OK;
}

/* The frames lie in the block; if one is wrong, their bytes are freed with it. */
static ek_err read_frames(ek_conversation *c, ek_message *m, const json_t *part, const json_t *frames,
                          const ek_api_limits *limits)
{
    size_t n = json_array_size(frames);
    int budget = 0;
    double last = 0;
    if (n == 0) return ek_fail(EK_EINVAL, "video needs a list of the URLs of its frames");
    EK_TRY(ek_media_check_count(c, EK_PART_FRAME, n, limits));
    EK_TRY(ek_media_read_detail(&budget, ek_field(part, "detail")));
    ek_block *b = ek_conversation_media(c, m, EK_PART_FRAME, (int)n);
    for (size_t i = 0; i < n; i++) {
        ek_media_file *f = &b->files[i];
        f->budget = budget;
        EK_TRY(read_time(&f->seconds, part, i, n));
        if (f->seconds < last) return ek_fail(EK_EINVAL, "timestamps[%zu]: frames stand in the order of time", i);
        last = f->seconds;
        ek_err err = read_frame(f, json_array_get(frames, i), limits);
        if (err) return ek_fail_in(err, "video[%zu]", i);
    }
    return EK_OK;
}

/* --- files --- */

/* Reads a video file; the program that does it takes a while. */
static ek_err read_file(ek_conversation *c, ek_message *m, ek_buf *bytes, const ek_video_asked *asked,
                        const ek_api_limits *limits)
{
    const ek_chat_video_opts o = {.ffmpeg = limits->ffmpeg,
                                  .media = limits->media,
                                  .budget = asked->budget,
                                  .fps = asked->fps,
                                  .take = limits->take,
                                  .arg = limits->count_arg};
    if (ek_plan_runs(limits->plan)) return ek_chat_video(c, m, bytes, &o, NULL);
    ek_buf_fini(bytes);
    return EK_OK;
}

/* No base64 has a colon. */
static bool is_url(const char *s, size_t n)
{
    return memchr(s, ':', n < 16 ? n : 16) != NULL;
}

ek_err ek_media_video_file(ek_conversation *c, ek_message *m, const char *s, size_t n, const ek_video_asked *asked,
                           const ek_api_limits *limits)
{
    ek_buf bytes = {0};
    bool here = true;
    if (!limits->ffmpeg)
        return ek_fail(EK_EINVAL, "a video is taken as a list of its frames: this server reads no files of videos "
                                  "(--ffmpeg)");
    EK_TRY(ek_media_check_count(c, EK_PART_FRAME, 1, limits));
    ek_err err = asked->url || is_url(s, n) ? ek_media_read_url(&bytes, EK_VIDEO_FILE, s, n, limits, &here)
                                            : ek_media_decode(&bytes, EK_VIDEO_FILE, s, n, limits);
    if (!err && here) return read_file(c, m, &bytes, asked, limits);
    if (!err) ek_plan_runs(limits->plan); /* after it was fetched */
    ek_buf_fini(&bytes);
    return err;
}

static ek_err read_asked(ek_video_asked *asked, const json_t *object)
{
    const json_t *fps = ek_field(object, "fps");
    EK_TRY(ek_media_read_detail(&asked->budget, ek_field(object, "detail")));
    if (ek_field(object, "timestamps"))
        return ek_fail(EK_EINVAL, "timestamps belong to a list of frames: those of a file are its own");
    if (!fps) return EK_OK;
    asked->fps = json_is_number(fps) ? json_number_value(fps) : 0;
    if (asked->fps >= 0.001 && asked->fps <= 1000) return EK_OK;
    return ek_fail(EK_EINVAL, "fps: a number from 0.001 to 1000 is needed");
}

ek_err ek_media_video_part(ek_conversation *c, ek_message *m, const json_t *part, const char *key,
                           const ek_api_limits *limits)
{
    const json_t *v = ek_field(part, key);
    ek_video_asked asked = {0};
    if (!v) v = ek_field(part, "video_url");
    if (json_is_array(v)) return read_frames(c, m, part, v, limits);
    const json_t *text = ek_media_url_of(v);
    asked.url = text && (json_is_object(v) || strcmp(key, "input_video") != 0);
    if (!text && ek_json_is_text(ek_field(v, "data"))) text = ek_field(v, "data");
    if (!text && !strcmp(key, "video"))
        return ek_fail(EK_EINVAL, "video needs a list of the URLs of its frames, or the URL of a file");
    if (!text && !strcmp(key, "video_url")) return ek_fail(EK_EINVAL, "video_url needs a text url");
    if (!text) return ek_fail(EK_EINVAL, "%s needs a text data or url", key);
    EK_TRY(read_asked(&asked, part));
    if (json_is_object(v)) EK_TRY(read_asked(&asked, v));
    return ek_media_video_file(c, m, json_string_value(text), json_string_length(text), &asked, limits);
}
