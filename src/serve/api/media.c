#include "serve/api/media.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "media/image.h"
#include "media/limits.h"
#include "media/sound.h"
#include "serve/api/field.h"
#include "text/json/json.h"

static const char *noun(ek_part_kind kind)
{
    static const char *const names[] = {"an image", "a frame of a video", "a sound", "a video"};
    return names[kind];
}

/* --- accepted kinds --- */

static bool model_takes(ek_part_kind kind, const ek_chat_media *media)
{
    return kind == EK_PART_SOUND ? media->audio : media->image;
}

static ek_err refuse(const ek_media_place *at, const char *why)
{
    char quoted[EK_QUOTED];
    return ek_fail(EK_EINVAL, "%s of type %s are not taken in %s: %s", at->what,
                   ek_field_quote(quoted, at->type, strlen(at->type)), at->where, why);
}

ek_err ek_media_taken(ek_part_kind kind, const ek_message *m, const ek_media_place *at, const ek_api_limits *limits)
{
    static const ek_chat_media none = {0};
    const ek_chat_media *media = limits->media ? limits->media : &none;
    if (kind == EK_PART_FRAME && media->image && !media->frame)
        return refuse(at,
                      "the model that is served has no token for frames of videos; its pictures can be sent as images");
    if (!model_takes(kind, media)) {
        char why[128];
        snprintf(why, sizeof why, "the model that is served has no %s, it takes %s",
                 kind == EK_PART_SOUND ? "ears (audio tower)" : "eyes (vision tower)", ek_chat_media_words(media));
        return refuse(at, why);
    }
    if (m->role == EK_ROLE_USER || m->role == EK_ROLE_TOOL) return EK_OK;
    return refuse(at, "messages of the user and results of tools have them, no others");
}

ek_err ek_media_check_count(const ek_conversation *c, ek_part_kind kind, size_t more, const ek_api_limits *limits)
{
    static const char *const names[] = {"images", "frames of videos", "sounds"};
    const int images = limits->max_images ? limits->max_images : EK_MEDIA_MAX_IMAGES;
    const int max[] = {images, EK_MEDIA_MAX_FRAMES, EK_MEDIA_MAX_SOUNDS};
    const int has[] = {c->n_images, c->n_frames, c->n_sounds};
    size_t n = (size_t)has[kind] + more;
    if (n <= (size_t)max[kind]) return EK_OK;
    return ek_fail(EK_EINVAL, "the request has %zu %s or more, at most %d are allowed", n, names[kind], max[kind]);
}

/* --- bytes --- */

enum { MAX_URL = 8192 }; /* of http */

static ek_err check_size(ek_part_kind kind, size_t n)
{
    if (n <= EK_MEDIA_MAX_BYTES) return EK_OK;
    return ek_fail(EK_EINVAL, "%s has %zu bytes, at most %d are allowed", noun(kind), n, EK_MEDIA_MAX_BYTES);
}

/* Counts memory before `bytes` are decoded; a few bytes are not counted. */
static ek_err take_bytes(ek_buf *out, ek_part_kind kind, size_t bytes, const ek_api_limits *limits)
{
    if (bytes > EK_MEDIA_MAX_BYTES + 8) EK_TRY(check_size(kind, bytes));
    if (limits->take) EK_TRY(limits->take(limits->count_arg, bytes + 1));
    if (ek_buf_reserve(out, bytes)) return EK_OK;
    return ek_fail(EK_ENOMEM, "the system has no memory for %s of %zu bytes now, try again later", noun(kind), bytes);
}

ek_err ek_media_decode(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits)
{
    EK_TRY(take_bytes(out, kind, ek_base64_bytes(s, n, false), limits));
    if (!ek_base64_decode(out, s, n)) return ek_fail(EK_EINVAL, "%s is not valid base64", noun(kind));
    return check_size(kind, out->len);
}

/* Whether the media type is of this kind: image/…, audio/… or video/…. */
static bool type_is(ek_part_kind kind, const char *type, size_t n)
{
    static const char *const main_types[] = {"image/", "image/", "audio/", "video/"};
    return n > 6 && !strncasecmp(type, main_types[kind], 6);
}

/* The bytes decide, because clients name types loosely: "image/jpg", "video/ogg" for a sound,
 * "application/octet-stream". A type that no picture, sound or video has is a different mistake, and refused. */
static bool type_fits(const char *type, size_t n)
{
    static const char pdf[] = "application/pdf";
    return !(n >= 5 && !strncasecmp(type, "text/", 5)) &&
           !(n >= sizeof pdf - 1 && !strncasecmp(type, pdf, sizeof pdf - 1));
}

static ek_err wrong_type(ek_part_kind kind, const char *type, size_t n)
{
    char quoted[EK_QUOTED];
    return ek_fail(EK_EINVAL, "%s cannot be of type %s", noun(kind), ek_field_quote(quoted, type, n));
}

static ek_err read_data_url(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits)
{
    ek_data_url u;
    const char *why = ek_data_url_parse(&u, s, n);
    if (why) return ek_fail(EK_EINVAL, "the data: URL of %s %s", noun(kind), why);
    if (!type_fits(u.type, u.n_type)) return wrong_type(kind, u.type, u.n_type);
    EK_TRY(take_bytes(out, kind, ek_data_url_bytes(&u), limits));
    if (!ek_data_url_decode(out, &u)) return ek_fail(EK_EINVAL, "%s is not valid base64", noun(kind));
    return check_size(kind, out->len);
}

ek_err ek_media_read_url(ek_buf *out, ek_part_kind kind, const char *s, size_t n, const ek_api_limits *limits,
                         bool *here)
{
    *here = true;
    if (ek_is_data_url(s, n)) return read_data_url(out, kind, s, n, limits);
    ek_url_trim(&s, &n);
    bool web = (n > 7 && !strncasecmp(s, "http://", 7)) || (n > 8 && !strncasecmp(s, "https://", 8));
    if (!web) {
        char quoted[EK_QUOTED];
        return ek_fail(EK_EINVAL, "the URL of %s must be a data: URL%s, not %s", noun(kind),
                       limits->fetch ? " or one of http or https" : "", ek_field_quote(quoted, s, n));
    }
    if (!limits->fetch)
        return ek_fail(EK_EINVAL,
                       "the URL of %s must be a data: URL: this server fetches nothing from others (--media-urls)",
                       noun(kind));
    bool clean = n <= MAX_URL;
    for (size_t i = 0; i < n && clean; i++) clean = s[i] > ' ' && s[i] < 127;
    if (!clean)
        return ek_fail(EK_EINVAL, "the URL of %s must have at most %d printable ASCII characters and no blanks",
                       noun(kind), MAX_URL);
    return limits->fetch(limits->count_arg, s, n, out, here);
}

/* --- files --- */

/* A damaged header is the client's mistake. */
ek_err ek_media_check_header(ek_image_info *found, ek_part_kind kind, const ek_buf *bytes, const ek_api_limits *limits)
{
    enum { PER_BYTE = 16 }; /* decoded bytes that take as long as one byte of JSON */
    ek_sound_info sound = {0};
    *found = (ek_image_info){0};
    ek_err err = kind == EK_PART_SOUND ? ek_sound_probe(&sound, ek_buf_text(bytes), bytes->len, EK_SOUND_SECONDS)
                                       : ek_image_probe(found, ek_buf_text(bytes), bytes->len);
    if (err == EK_EINVAL || err == EK_EPARSE || err == EK_ETOOLARGE) return ek_fail_in(EK_EINVAL, "%s", noun(kind));
    if (!err) ek_plan_weigh(limits->plan, (found->memory + sound.memory) / PER_BYTE);
    return err;
}

ek_err ek_media_add(ek_conversation *c, ek_message *m, ek_part_kind kind, ek_buf *bytes, int budget,
                    const ek_api_limits *limits)
{
    ek_image_info image;
    ek_err err = ek_media_check_header(&image, kind, bytes, limits);
    if (err) {
        ek_buf_fini(bytes);
        return err;
    }
    ek_media_file *f = ek_conversation_media(c, m, kind, 1)->files;
    f->bytes = *bytes;
    f->budget = budget;
    f->image = image;
    *bytes = (ek_buf){0};
    return EK_OK;
}

static ek_err add_url(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *url, size_t n, int budget,
                      const ek_api_limits *limits)
{
    ek_buf bytes = {0};
    bool here;
    EK_TRY(ek_media_check_count(c, kind, 1, limits));
    ek_err err = ek_media_read_url(&bytes, kind, url, n, limits, &here);
    if (!err && here) return ek_media_add(c, m, kind, &bytes, budget, limits);
    ek_buf_fini(&bytes);
    return err;
}

ek_err ek_media_url(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *url, size_t n,
                    const ek_api_limits *limits)
{
    return add_url(c, m, kind, url, n, 0, limits);
}

ek_err ek_media_base64(ek_conversation *c, ek_message *m, ek_part_kind kind, const char *s, size_t n, const char *type,
                       const ek_api_limits *limits)
{
    ek_buf bytes = {0};
    EK_TRY(ek_media_check_count(c, kind, 1, limits));
    if (type && !type_fits(type, strlen(type))) return wrong_type(kind, type, strlen(type));
    ek_err err = ek_is_data_url(s, n) ? read_data_url(&bytes, kind, s, n, limits)
                                      : ek_media_decode(&bytes, kind, s, n, limits);
    if (!err) return ek_media_add(c, m, kind, &bytes, 0, limits);
    ek_buf_fini(&bytes);
    return err;
}

/* --- parts of OpenAI's APIs --- */

ek_err ek_media_read_detail(int *budget, const json_t *v)
{
    static const struct {
        const char *name;
        int budget;
    } details[] = {{"auto", 0}, {"low", 70}, {"high", 1120}, {"original", 1120}};
    if (!v) return EK_OK;
    for (size_t i = 0; ek_json_is_text(v) && i < sizeof details / sizeof *details; i++)
        if (!strcmp(json_string_value(v), details[i].name)) {
            *budget = details[i].budget;
            return EK_OK;
        }
    char says[EK_QUOTED];
    return ek_fail(EK_EINVAL, "detail must be \"auto\", \"low\", \"high\" or \"original\"%s", ek_field_not(says, v));
}

const json_t *ek_media_url_of(const json_t *v)
{
    if (json_is_object(v)) v = ek_field(v, "url");
    return ek_json_is_text(v) ? v : NULL;
}

static ek_err read_url_part(ek_conversation *c, ek_message *m, const json_t *part, const char *key, ek_part_kind kind,
                            const ek_api_limits *limits)
{
    const json_t *v = ek_field(part, key), *url = ek_media_url_of(v);
    int budget = 0;
    if (!v && ek_field(part, "file_id"))
        return ek_fail(EK_EINVAL, "file_id names an uploaded file, and nothing is uploaded here: %s takes a data: URL",
                       key);
    if (!url) return ek_fail(EK_EINVAL, "%s needs a text url", key);
    EK_TRY(ek_media_read_detail(&budget, ek_field(part, "detail")));
    if (json_is_object(v)) EK_TRY(ek_media_read_detail(&budget, ek_field(v, "detail")));
    return add_url(c, m, kind, json_string_value(url), json_string_length(url), budget, limits);
}

/* The format is not read: clients derive it from a media type ("mpeg", "x-wav", "oga"), and the bytes decide. */
static ek_err read_sound_part(ek_conversation *c, ek_message *m, const json_t *part, const ek_api_limits *limits)
{
    const json_t *audio = ek_field(part, "input_audio");
    size_t n = 0;
    const char *data = ek_json_get_text(audio, "data", &n);
    if (!data) return ek_fail(EK_EINVAL, "input_audio needs a text data");
    return ek_media_base64(c, m, EK_PART_SOUND, data, n, NULL, limits);
}

ek_err ek_media_part(ek_conversation *c, ek_message *m, const json_t *part, const char *what, const char *where,
                     const ek_api_limits *limits, bool *is)
{
    static const struct {
        const char *type, *key;
        ek_part_kind kind;
    } types[] = {
        {"image_url", "image_url", EK_PART_IMAGE},
        {"input_image", "image_url", EK_PART_IMAGE},
        {"input_audio", "input_audio", EK_PART_SOUND},
        {"audio_url", "audio_url", EK_PART_SOUND},
        {"video", "video", EK_PART_FRAME},
        {"video_url", "video_url", EK_PART_FRAME},
        {"input_video", "input_video", EK_PART_FRAME},
    };
    const char *type = ek_json_get_text(part, "type", NULL);
    *is = false;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++) {
        if (strcmp(type, types[i].type) != 0) continue;
        *is = true;
        EK_TRY(ek_media_taken(types[i].kind, m, &(ek_media_place){what, type, where}, limits));
        if (types[i].kind == EK_PART_FRAME) return ek_media_video_part(c, m, part, types[i].key, limits);
        if (!strcmp(type, "input_audio")) return read_sound_part(c, m, part, limits);
        return read_url_part(c, m, part, types[i].key, types[i].kind, limits);
    }
    return EK_OK;
}

/* --- files --- */

/* The first digits of base64, without blanks and escapes. */
static size_t first_digits(char *to, size_t max, const char *s, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n && i < 4 * max && len < max; i++) {
        const int byte = s[i] == '%' ? ek_hex_byte(s + i + 1, n - i - 1) : -1;
        if (byte >= 0) i += 2;
        if (byte >= 0 || s[i] > ' ') to[len++] = byte >= 0 ? (char)byte : s[i];
    }
    return len;
}

/* Ogg holds films as well as sounds: the first packet, after a header of 28 bytes, tells which. */
static bool is_ogg_film(const char *text, size_t n_text)
{
    static const char *const sounds[] = {"\x01vorbis", "OpusHead",
                                         "\x7F"
                                         "FLAC",
                                         "Speex   "};
    char digits[48];
    ek_buf bytes = {0};
    const size_t n = first_digits(digits, sizeof digits, text, n_text);
    bool film = n == sizeof digits && ek_base64_decode(&bytes, digits, n) && !memcmp(bytes.data, "OggS", 4);
    for (size_t i = 0; i < sizeof sounds / sizeof *sounds; i++)
        film = film && memcmp(bytes.data + 28, sounds[i], strlen(sounds[i])) != 0;
    ek_buf_fini(&bytes);
    return film;
}

/* The kind that the first bytes suggest; -1: unknown. */
static int kind_of(const char *text, size_t n_text)
{
    char s[24];
    const size_t n = first_digits(s, sizeof s, text, n_text);
    static const struct {
        const char *begin;
        ek_part_kind kind;
    } known[] = {{"iVBORw0KGgo", EK_PART_IMAGE}, {"/9j/", EK_PART_IMAGE},  {"R0lGODdh", EK_PART_IMAGE},
                 {"R0lGODlh", EK_PART_IMAGE},    {"ZkxhQ", EK_PART_SOUND}, {"T2dnU", EK_PART_SOUND},
                 {"SUQz", EK_PART_SOUND},        {"//", EK_PART_SOUND}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= strlen(known[i].begin) && !strncmp(s, known[i].begin, strlen(known[i].begin))) return known[i].kind;
    if (n < 16 || strncmp(s, "UklGR", 5) != 0) return -1; /* RIFF, four bytes, and the kind */
    return !strncmp(s + 12, "RUJQ", 4) ? EK_PART_IMAGE : !strncmp(s + 12, "QVZF", 4) ? EK_PART_SOUND : -1;
}

ek_err ek_media_file_part(ek_conversation *c, ek_message *m, const char *s, size_t n, const char *where,
                          const ek_api_limits *limits, bool *is)
{
    int kind = -1;
    char type[96] = ""; /* longer than what errors quote */
    ek_data_url u;
    if (!ek_is_data_url(s, n)) {
        kind = kind_of(s, n);
    } else if (!ek_data_url_parse(&u, s, n)) {
        if (u.base64 && type_fits(u.type, u.n_type)) kind = kind_of(u.data, u.n_data);
        if (type_is(EK_PART_IMAGE, u.type, u.n_type)) kind = EK_PART_IMAGE;
        if (type_is(EK_PART_SOUND, u.type, u.n_type)) kind = EK_PART_SOUND;
        if (type_is(EK_VIDEO_FILE, u.type, u.n_type) && (kind != EK_PART_SOUND || is_ogg_film(u.data, u.n_data)))
            kind = EK_PART_FRAME;
        snprintf(type, sizeof type, "%.*s", (int)(u.n_type < sizeof type ? u.n_type : sizeof type), u.type);
    }
    *is = kind >= 0;
    if (!*is) return EK_OK;
    if (!*type) snprintf(type, sizeof type, "%s", kind == EK_PART_IMAGE ? "image" : "audio");
    EK_TRY(ek_media_taken((ek_part_kind)kind, m, &(ek_media_place){"files", type, where}, limits));
    if (kind == EK_PART_FRAME) return ek_media_video_file(c, m, s, n, &(ek_video_asked){0}, limits);
    return ek_media_base64(c, m, (ek_part_kind)kind, s, n, NULL, limits);
}
