/* The dialect of OpenAI's transcriptions. The body is a form with a sound. Options that need times of words or
 * recognise voices are refused by name. A sound of more than 30 s is divided into pieces of 30 s in one prompt. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "media/limits.h"
#include "media/mel.h"
#include "serve/api/field.h"
#include "serve/http/multipart.h"
#include "serve/api/openai.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { MAX_VALUE = 64 << 10, SECONDS = EK_SOUND_MAX_SAMPLES / EK_SOUND_RATE };

typedef struct form {
    ek_api_request *r;
    ek_form_part file; /* data NULL: not there yet */
    ek_form_part prompt;
    ek_buf keywords, languages; /* lists for the prompt */
} form;

/* EINVAL: "NAME: need, not VALUE". */
static ek_err wrong(ek_api_request *r, const char *name, const char *need, const ek_form_part *p)
{
    char quoted[EK_QUOTED];
    r->param = name;
    return ek_fail(EK_EINVAL, "%s: %s, not %s", name, need, ek_field_quote(quoted, p->data, p->n));
}

static bool is_value(const ek_form_part *p, const char *value)
{
    return p->n == strlen(value) && memcmp(p->data, value, p->n) == 0;
}

/* --- fields --- */

static ek_err read_form(form *f, const ek_form_part *p)
{
    static const struct {
        const char *name;
        ek_transcription_form form;
    } forms[] = {
        {"json", EK_TRANSCRIPTION_JSON}, {"text", EK_TRANSCRIPTION_TEXT}, {"verbose_json", EK_TRANSCRIPTION_VERBOSE}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (is_value(p, forms[i].name)) {
            ((ek_transcription *)f->r->own)->form = forms[i].form;
            return EK_OK;
        }
    if (is_value(p, "srt") || is_value(p, "vtt"))
        return ek_field_wrong(f->r, "response_format", "the model gives no times, which srt and vtt are made of");
    if (is_value(p, "diarized_json"))
        return ek_field_wrong(f->r, "response_format", "the model does not tell voices apart");
    return wrong(f->r, "response_format", "must be \"json\", \"text\" or \"verbose_json\"", p);
}

static ek_err check_language(form *f, const char *name, const ek_form_part *p)
{
    bool good = p->n < sizeof((ek_transcription *)f->r->own)->language;
    for (size_t i = 0; i < p->n && good; i++) {
        const char c = p->data[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == ' ';
    }
    return good ? EK_OK : wrong(f->r, name, "must be a code such as \"en\", or the name of a language", p);
}

/* Whether the value means an unknown language: clients' words for that, and for no value. */
static bool is_any_language(const ek_form_part *p)
{
    static const char *const words[] = {
        "auto",      "automatic", "auto-detect", "autodetect",  "detect", "detect language",
        "any",       "und",       "unknown",     "unspecified", "none",   "null",
        "undefined", "mul",       "multi",       "multilingual"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (p->n == strlen(words[i]) && !strncasecmp(p->data, words[i], p->n)) return true;
    return false;
}

static ek_err read_language(form *f, const ek_form_part *p)
{
    ek_transcription *t = f->r->own;
    if (is_any_language(p)) return EK_OK;
    EK_TRY(check_language(f, "language", p));
    memcpy(t->language, p->data, p->n);
    t->language[p->n] = '\0';
    return EK_OK;
}

static void list_add(ek_buf *list, const ek_form_part *p)
{
    ek_buf_str(list, list->len > 0 ? ", " : "");
    ek_buf_add(list, p->data, p->n);
}

/* Possible languages of the sound; `language` is its actual one. */
static ek_err read_languages(form *f, const ek_form_part *p)
{
    if (is_any_language(p)) return EK_OK;
    EK_TRY(check_language(f, "languages", p));
    if (p->n > 0) list_add(&f->languages, p);
    return EK_OK;
}

static ek_err read_keyword(form *f, const ek_form_part *p)
{
    if (!ek_utf8_valid(p->data, p->n)) return ek_field_wrong(f->r, "keywords", "must be UTF-8");
    if (p->n > 0) list_add(&f->keywords, p);
    return EK_OK;
}

static ek_err read_stream(form *f, const ek_form_part *p)
{
    static const char *const yes[] = {"true", "True", "1"}, *const no[] = {"false", "False", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) f->r->stream |= is_value(p, yes[i]);
    if (f->r->stream) return EK_OK;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (is_value(p, no[i])) return EK_OK;
    return wrong(f->r, "stream", "must be \"true\" or \"false\"", p);
}

static ek_err read_temperature(form *f, const ek_form_part *p)
{
    char text[32] = "", *end = text;
    if (p->n < sizeof text) memcpy(text, p->data, p->n);
    const double v = strtod(text, &end);
    if (end == text || *end || !(v >= 0 && v <= 2))
        return wrong(f->r, "temperature", "must be a number from 0 to 2", p);
    f->r->turn.sampling.temperature = (float)v;
    return EK_OK;
}

static ek_err read_seed(form *f, const ek_form_part *p)
{
    char text[24] = "";
    if (p->n < sizeof text) memcpy(text, p->data, p->n);
    if (!*text || strspn(text, "0123456789") != p->n) return wrong(f->r, "seed", "must be a whole number", p);
    f->r->turn.sampling.seed = strtoull(text, NULL, 10);
    f->r->has_seed = true;
    return EK_OK;
}

static ek_err read_chunking(form *f, const ek_form_part *p)
{
    if (is_value(p, "auto")) return EK_OK;
    return wrong(f->r, "chunking_strategy", "a sound is cut every 30 s: \"auto\" can be asked for", p);
}

/* Clients send "segment", verbose_json's default, so it is accepted; the reply has no segments. */
static ek_err no_times(form *f, const ek_form_part *p)
{
    if (is_value(p, "segment")) return EK_OK;
    return wrong(f->r, "timestamp_granularities", "the model gives no times", p);
}

static ek_err no_logprobs(form *f, const ek_form_part *p)
{
    return wrong(f->r, "include", "nothing can be included", p);
}

static ek_err no_voices(form *f, const ek_form_part *p)
{
    (void)p;
    return ek_field_wrong(f->r, "known_speaker_names", "the model does not tell voices apart");
}

static ek_err read_model(form *f, const ek_form_part *p)
{
    char *name = ek_alloc(p->n + 1);
    memcpy(name, p->data, p->n);
    free(f->r->model);
    f->r->model = name;
    return memchr(name, '\0', p->n) ? ek_field_wrong(f->r, "model", "must be a text") : EK_OK;
}

static ek_err keep_prompt(form *f, const ek_form_part *p)
{
    f->prompt = *p;
    return EK_OK;
}

static ek_err keep_file(form *f, const ek_form_part *p)
{
    if (f->file.data) return ek_field_wrong(f->r, "file", "one sound can be transcribed at a time");
    f->file = *p;
    return EK_OK;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A value without the blanks and line ends around it. */
static ek_form_part trimmed(const ek_form_part *p)
{
    ek_form_part v = *p;
    while (v.n > 0 && is_space(v.data[0])) v.data++, v.n--;
    while (v.n > 0 && is_space(v.data[v.n - 1])) v.n--;
    return v;
}

/* Unknown fields are ignored, as in other bodies, and so are empty ones, because forms send unfilled fields. */
static ek_err read_part(form *f, const ek_form_part *p)
{
    static const struct {
        const char *name;
        ek_err (*read)(form *f, const ek_form_part *p);
    } fields[] = {{"file", keep_file},
                  {"model", read_model},
                  {"language", read_language},
                  {"prompt", keep_prompt},
                  {"response_format", read_form},
                  {"stream", read_stream},
                  {"temperature", read_temperature},
                  {"seed", read_seed},
                  {"languages", read_languages},
                  {"languages[]", read_languages},
                  {"keywords", read_keyword},
                  {"keywords[]", read_keyword},
                  {"chunking_strategy", read_chunking},
                  {"chunking_strategy[type]", read_chunking},
                  {"timestamp_granularities", no_times},
                  {"timestamp_granularities[]", no_times},
                  {"include", no_logprobs},
                  {"include[]", no_logprobs},
                  {"known_speaker_names", no_voices},
                  {"known_speaker_names[]", no_voices},
                  {"known_speaker_references", no_voices},
                  {"known_speaker_references[]", no_voices}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!ek_form_is(p, fields[i].name)) continue;
        if (i > 0 && p->n > MAX_VALUE) {
            f->r->param = fields[i].name;
            return ek_fail(EK_EINVAL, "%s: it has %zu bytes, at most %d are allowed", fields[i].name, p->n, MAX_VALUE);
        }
        const ek_form_part value = i > 0 ? trimmed(p) : *p;
        return i > 0 && value.n == 0 ? EK_OK : fields[i].read(f, &value);
    }
    return EK_OK;
}

static ek_err read_parts(form *f, const char *body, size_t n)
{
    ek_form parts;
    const char *why = ek_form_begin(&parts, body, n);
    while (!why && !parts.done) {
        ek_form_part p;
        why = ek_form_next(&parts, &p);
        if (!why) EK_TRY(read_part(f, &p));
    }
    return why ? ek_fail(EK_EINVAL, "%s", why) : EK_OK;
}

/* --- the sound --- */

/* Takes the bytes over. */
static void add_bytes(ek_api_request *r, ek_message *m, ek_buf bytes)
{
    ek_conversation_media(&r->conversation, m, EK_PART_SOUND, 1)->files->bytes = bytes;
}

/* A sound of up to 30 s stays as it came. */
static ek_err add_short(ek_api_request *r, ek_message *m, const ek_form_part *file, const ek_api_limits *limits)
{
    ek_buf bytes = {0};
    if (limits->take) EK_TRY(limits->take(limits->count_arg, file->n));
    if (!ek_buf_reserve(&bytes, file->n)) return ek_fail(EK_ENOMEM, "the system has no memory for a sound now");
    ek_buf_add(&bytes, file->data, file->n);
    add_bytes(r, m, bytes);
    return EK_OK;
}

/* A longer sound is decoded here; each piece becomes a sound of the same samples. */
static ek_err add_pieces(ek_api_request *r, ek_message *m, const ek_form_part *file, const ek_sound_info *info,
                         const ek_api_limits *limits)
{
    ek_sound sound;
    const size_t pieces = (size_t)info->samples * sizeof(float);
    if (limits->take) EK_TRY(limits->take(limits->count_arg, info->memory + pieces));
    ek_err err = ek_sound_read(&sound, file->data, file->n, EK_SOUND_MAX_SECONDS);
    const int n = err ? 0 : ek_sound_pieces(sound.samples, limits->media->sound);
    for (int i = 0; !err && i < n; i++) {
        const ek_sound piece = ek_sound_piece(&sound, i);
        ek_buf bytes = {0};
        if (ek_sound_wav(&bytes, piece.v, piece.samples)) add_bytes(r, m, bytes);
        else err = ek_fail(EK_ENOMEM, "the system has no memory for a sound now");
    }
    if (limits->give) limits->give(limits->count_arg, info->memory);
    ek_sound_free(&sound);
    return err;
}

static ek_err add_sound(ek_api_request *r, ek_message *m, const ek_form_part *file, const ek_api_limits *limits)
{
    enum { PER_BYTE = 16 }; /* decoded bytes that take as long as one byte of JSON */
    ek_sound_info info;
    if (file->n > EK_MEDIA_MAX_BYTES) {
        r->param = "file";
        return ek_fail(EK_EINVAL, "file: it has %zu bytes, at most %d are allowed", file->n, EK_MEDIA_MAX_BYTES);
    }
    ek_err err = ek_sound_probe(&info, file->data, file->n, EK_SOUND_MAX_SECONDS);
    if (!err && !ek_plan_reads(limits->plan, info.memory / PER_BYTE)) return EK_OK;
    if (!err) {
        ((ek_transcription *)r->own)->seconds = (double)info.frames / info.rate;
        err = info.samples <= EK_SOUND_MAX_SAMPLES ? add_short(r, m, file, limits)
                                                   : add_pieces(r, m, file, &info, limits);
    }
    if (err != EK_EINVAL && err != EK_EPARSE && err != EK_ETOOLARGE) return err;
    r->param = "file";
    return ek_fail_in(EK_EINVAL, "file");
}

/* --- the prompt --- */

/* The instruction for the model, after the sound. */
static void add_task(form *f, ek_message *m)
{
    const ek_transcription *t = f->r->own;
    ek_buf b = {0};
    ek_buf_str(&b, "Transcribe the speech in this audio");
    if (*t->language) ek_buf_fmt(&b, ", which is in the language \"%s\",", t->language);
    else if (f->languages.len > 0) ek_buf_fmt(&b, ", which may be in these languages: %s,", ek_buf_text(&f->languages));
    ek_buf_str(&b, " in its original language. Write only the transcription, without line breaks. Write numbers as "
                   "digits.");
    if (f->prompt.n > 0) {
        ek_buf_str(&b, " For names, spelling and context: ");
        ek_buf_add(&b, f->prompt.data, f->prompt.n);
    }
    if (f->keywords.len > 0) {
        ek_buf_str(&b, " Words that may be said: ");
        ek_buf_add(&b, f->keywords.data, f->keywords.len);
    }
    ek_message_text(m, EK_BLOCK_TEXT, b.data, b.len);
    ek_buf_fini(&b);
}

static ek_err check(form *f, const ek_api_limits *limits)
{
    if (!limits->media || !limits->media->audio)
        return ek_fail(EK_EINVAL,
                       "the model that is served has no ears (audio tower), so that nothing can be transcribed");
    if (!f->file.data) return ek_field_wrong(f->r, "file", "a sound is needed");
    if (f->prompt.n > 0 && !ek_utf8_valid(f->prompt.data, f->prompt.n))
        return ek_field_wrong(f->r, "prompt", "must be UTF-8");
    if (f->languages.len > 0 && *((const ek_transcription *)f->r->own)->language)
        return ek_field_wrong(f->r, "languages", "language says which one it is already");
    return EK_OK;
}

static ek_err read_all(form *f, const char *body, size_t n, const ek_api_limits *limits)
{
    ek_api_request *r = f->r;
    EK_TRY(read_parts(f, body, n));
    EK_TRY(check(f, limits));
    ek_message *m = ek_conversation_add(&r->conversation, EK_ROLE_USER);
    m->parts = true;
    EK_TRY(add_sound(r, m, &f->file, limits));
    add_task(f, m);
    return EK_OK;
}

static ek_err parse(ek_api_request *r, const char *body, size_t n, const ek_api_limits *limits)
{
    form f = {.r = r};
    r->own = ek_alloc(sizeof(ek_transcription));
    r->n = 1;
    r->turn.sampling = limits->defaults;
    r->turn.sampling.temperature = 0;
    r->turn.max_tokens = INT_MAX;
    r->prompt.add_generation_prompt = true;
    r->prompt.thinking = EK_THINKING_OFF;
    ek_err err = read_all(&f, body, n, limits);
    ek_buf_fini(&f.keywords);
    ek_buf_fini(&f.languages);
    return err;
}

/* --- replies --- */

static void put_text(ek_buf *out, const ek_api_reply *r)
{
    const ek_buf *text = &r->choices[0]->answer.content;
    ek_json_quote(out, ek_buf_text(text), text->len);
}

/* ,"usage":{…}; in verbose_json it has the sound's length, as in the types of OpenAI's SDK. */
static void put_usage(ek_buf *out, const ek_api_reply *r)
{
    const ek_transcription *t = r->own;
    if (t->form == EK_TRANSCRIPTION_VERBOSE && !r->stream) {
        ek_buf_fmt(out, ",\"usage\":{\"type\":\"duration\",\"seconds\":%.3f}", t->seconds);
        return;
    }
    const ek_api_usage u = ek_api_usage_of(r);
    ek_buf_fmt(out,
               ",\"usage\":{\"type\":\"tokens\",\"input_tokens\":%lld,\"input_token_details\":{\"text_tokens\":%lld",
               (long long)u.prompt, (long long)(u.prompt - u.sounds));
    ek_put_media_usage(out, &u);
    ek_buf_fmt(out, "},\"output_tokens\":%lld,\"total_tokens\":%lld}", (long long)u.completion,
               (long long)(u.prompt + u.completion));
}

/* usage: for the last event. */
static void put_event(ek_buf *out, const ek_api_reply *r, const char *type, const char *key, const char *text, size_t n,
                      bool usage)
{
    ek_event_begin(out, r);
    ek_buf_fmt(out, "data: {\"type\":\"%s\",\"%s\":", type, key);
    ek_json_quote(out, text, n);
    if (usage) put_usage(out, r);
    ek_event_extend(out, r, usage);
    ek_buf_str(out, "}\n\n");
    ek_event_end(out, r);
}

static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    (void)choice;
    if (e->kind != EK_REPLY_CONTENT || e->n == 0) return;
    put_event(out, r, "transcript.text.delta", "delta", e->text, e->n, false);
}

static void end(ek_buf *out, const ek_api_reply *r)
{
    const ek_transcription *t = r->own;
    const ek_buf *text = &r->choices[0]->answer.content;
    if (r->stream) {
        put_event(out, r, "transcript.text.done", "text", ek_buf_text(text), text->len, true);
        ek_openai_stream_end(out, r, NULL);
    } else if (t->form == EK_TRANSCRIPTION_TEXT) {
        ek_buf_add(out, ek_buf_text(text), text->len);
        ek_buf_char(out, '\n');
    } else {
        ek_buf_char(out, '{');
        if (t->form == EK_TRANSCRIPTION_VERBOSE) {
            ek_put_string_after(out, "\"task\":\"transcribe\",\"language\":", *t->language ? t->language : "unknown");
            ek_buf_fmt(out, ",\"duration\":%.3f,", t->seconds);
        }
        ek_buf_str(out, "\"text\":");
        put_text(out, r);
        put_usage(out, r);
        ek_put_extension(out, r);
        ek_buf_char(out, '}');
    }
}

static void failed(ek_buf *out, const ek_api_reply *r, int choice, const char *text)
{
    ek_openai_stream_failed(out, r, NULL, choice, text);
}

static const char *whole_type(const ek_api_request *r)
{
    const ek_transcription *t = r->own;
    return t->form == EK_TRANSCRIPTION_TEXT ? "text/plain; charset=utf-8" : NULL;
}

const ek_dialect ek_dialect_transcription = {
    .path = "/v1/audio/transcriptions",
    .id_prefix = "trans-",
    .prompt_param = "file",
    .binary = true,
    .repeats = true,
    .parse = parse,
    .whole_type = whole_type,
    .event = event,
    .end = end,
    .failed = failed,
    .heartbeat = ek_openai_heartbeat,
    .error = ek_openai_error,
};
