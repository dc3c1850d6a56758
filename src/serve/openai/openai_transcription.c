/* The dialect of OpenAI's transcriptions: its replies. */
#include "serve/openai/openai_transcription.h"

#include "serve/api/openai.h"
#include "text/json/json.h"

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

static void begin(ek_buf *out, const ek_api_reply *r, int choice)
{
    (void)out, (void)r, (void)choice;
}

static void event(ek_buf *out, const ek_api_reply *r, int choice, const ek_reply_event *e)
{
    (void)choice;
    if (e->kind != EK_REPLY_CONTENT || e->n == 0) return;
    put_event(out, r, "transcript.text.delta", "delta", e->text, e->n, false);
}

static void finish(ek_buf *out, const ek_api_reply *r, int choice)
{
    (void)out, (void)r, (void)choice;
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
            ek_buf_str(out, "\"task\":\"transcribe\",\"language\":");
            ek_put_string(out, *t->language ? t->language : "unknown");
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
    .parse = ek_transcription_parse,
    .whole_type = whole_type,
    .begin = begin,
    .event = event,
    .finish = finish,
    .end = end,
    .failed = failed,
    .heartbeat = ek_openai_heartbeat,
    .error = ek_openai_error,
};
