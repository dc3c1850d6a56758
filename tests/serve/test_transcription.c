/* Transcriptions: what a form asks for, what is refused, and the three forms of a reply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "media/limits.h"
#include "media/mel.h"
#include "serve/api/dialect.h"
#include "serve/api/openai.h"
#include "text/json/json.h"

static const ek_dialect *const d = &ek_dialect_transcription;
static const ek_chat_media ears = {.audio = true};

static void put_sound(ek_buf *out, int samples)
{
    static float v[4 * EK_SOUND_MAX_SAMPLES];
    for (int i = 0; i < samples; i++) v[i] = (float)(i % 100) / 200;
    assert_true(ek_sound_wav(out, v, samples));
}

static void put_field(ek_buf *b, const char *name, const char *value)
{
    ek_buf_fmt(b, "--BB\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n", name, value);
}

/* pairs: name, value, …, NULL. samples < 0: no file. */
static void put_body(ek_buf *b, int samples, const char *const *pairs)
{
    for (; *pairs; pairs += 2) put_field(b, pairs[0], pairs[1]);
    if (samples >= 0) {
        ek_buf_str(b, "--BB\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n");
        put_sound(b, samples);
        ek_buf_str(b, "\r\n");
    }
    ek_buf_str(b, "--BB--\r\n");
}

static ek_err parse_for(ek_api_request *r, int samples, const ek_chat_media *media, const char *const *pairs)
{
    ek_buf b = {0};
    ek_api_limits limits = {
        .defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1}, .ctx_tokens = 512, .media = media};
    put_body(&b, samples, pairs);
    *r = (ek_api_request){0};
    ek_err err = ek_api_parse(r, d, b.data, b.len, &limits);
    ek_buf_fini(&b);
    return err;
}

#define PAIRS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static const ek_message *only_message(const ek_api_request *r)
{
    assert_int_equal(r->conversation.n_messages, 1);
    assert_int_equal(r->conversation.messages[0].role, EK_ROLE_USER);
    return r->conversation.messages;
}

static void a_form_becomes_a_prompt(void **state)
{
    (void)state;
    ek_api_request r;
    if (parse_for(&r, 16000, &ears, PAIRS("model", "gemma", "language", "en", "prompt", "Zürich, Örlikon")))
        fail_msg("%s", ek_err_text());
    const ek_message *m = only_message(&r);
    assert_int_equal(m->n_blocks, 2);
    assert_int_equal(m->blocks[0].kind, EK_BLOCK_MEDIA);
    assert_int_equal(m->blocks[0].media, EK_PART_SOUND);
    ek_sound s;
    const ek_buf *file = &m->blocks[0].files->bytes;
    assert_int_equal(ek_sound_read(&s, file->data, file->len, EK_SOUND_SECONDS), EK_OK);
    assert_int_equal(s.samples, 16000);
    ek_sound_free(&s);
    assert_non_null(strstr(ek_buf_text(&m->blocks[1].text), "\"en\""));
    assert_non_null(strstr(ek_buf_text(&m->blocks[1].text), "Zürich, Örlikon"));
    assert_string_equal(r.model, "gemma");
    assert_true(r.turn.sampling.temperature == 0);
    assert_int_equal(r.turn.max_tokens, INT_MAX);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.prompt.thinking, EK_THINKING_OFF);
    assert_false(r.stream);
    ek_api_request_fini(&r);
    assert_int_equal(parse_for(&r, 16000, &ears, PAIRS("stream", "true", "temperature", "0.4", "seed", "7")), EK_OK);
    assert_true(r.stream && r.has_seed && r.turn.sampling.seed == 7 && r.turn.sampling.temperature == 0.4f);
    ek_api_request_fini(&r);
    if (parse_for(&r, 16000, &ears,
                  PAIRS("languages[]", "en", "languages[]", "German", "keywords[]", "Zoë", "timestamp_granularities[]",
                        "segment")))
        fail_msg("%s", ek_err_text());
    const char *task = ek_buf_text(&only_message(&r)->blocks[1].text);
    assert_non_null(strstr(task, "these languages: en, German,"));
    assert_non_null(strstr(task, "Words that may be said: Zoë"));
    ek_api_request_fini(&r);
}

/* Forms send fields that nobody filled in, and words for no language: as if they were absent. */
static void what_says_nothing(void **state)
{
    (void)state;
    ek_api_request none, r;
    assert_int_equal(parse_for(&none, 16000, &ears, PAIRS()), EK_OK);
    const char *task = ek_buf_text(&only_message(&none)->blocks[1].text);
    static const char *const fields[] = {"model",
                                         "language",
                                         "prompt",
                                         "response_format",
                                         "stream",
                                         "temperature",
                                         "seed",
                                         "languages",
                                         "languages[]",
                                         "keywords",
                                         "keywords[]",
                                         "chunking_strategy",
                                         "chunking_strategy[type]",
                                         "timestamp_granularities",
                                         "timestamp_granularities[]",
                                         "include",
                                         "include[]",
                                         "known_speaker_names",
                                         "known_speaker_names[]",
                                         "known_speaker_references",
                                         "vad_filter"};
    static const char *const languages[] = {"auto",    "Auto", "AUTO", "auto\n", "detect",
                                            "unknown", "und",  "none", "null"};
    const size_t n_fields = sizeof fields / sizeof *fields, n_languages = sizeof languages / sizeof *languages;
    for (size_t i = 0; i < 2 * n_fields + 2 * n_languages; i++) {
        const char *name = i < 2 * n_fields ? fields[i / 2] : i % 2 ? "language" : "languages[]";
        const char *value = i < 2 * n_fields ? (i % 2 ? " \r\n" : "") : languages[(i - 2 * n_fields) / 2];
        if (parse_for(&r, 16000, &ears, PAIRS(name, value))) fail_msg("%s=%s: %s", name, value, ek_err_text());
        assert_string_equal(ek_buf_text(&only_message(&r)->blocks[1].text), task);
        assert_true(r.turn.sampling.temperature == 0 && !r.stream && !r.has_seed && !r.model);
        assert_string_equal(((ek_transcription *)r.own)->language, "");
        ek_api_request_fini(&r);
    }
    ek_api_request_fini(&none);
    assert_int_equal(parse_for(&r, 16000, &ears, PAIRS("language", " en\n", "temperature", "0.5 ")), EK_OK);
    assert_string_equal(((ek_transcription *)r.own)->language, "en");
    ek_api_request_fini(&r);
}

/* Of 75 s: three sounds, whose samples are those of the file. */
static void long_sounds_come_in_pieces(void **state)
{
    (void)state;
    enum { N = 75 * EK_SOUND_RATE };
    ek_api_request r;
    int at = 0;
    if (parse_for(&r, N, &ears, PAIRS())) fail_msg("%s", ek_err_text());
    const ek_message *m = only_message(&r);
    assert_int_equal(m->n_blocks, 4);
    for (int i = 0; i < 3; i++) {
        ek_sound s;
        const ek_buf *file = &m->blocks[i].files->bytes;
        assert_int_equal(m->blocks[i].files->number, i);
        assert_int_equal(ek_sound_read(&s, file->data, file->len, EK_SOUND_SECONDS), EK_OK);
        for (int k = 0; k < s.samples; k++, at++) assert_true(s.v[k] == (float)(at % 100) / 200);
        ek_sound_free(&s);
    }
    assert_int_equal(at, N);
    assert_int_equal(m->blocks[3].kind, EK_BLOCK_TEXT);
    assert_true(((ek_transcription *)r.own)->seconds == 75);
    ek_api_request_fini(&r);
}

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        int samples;
        const char *pairs[3], *param, *says;
    } rows[] = {
        {-1, {"model", "m"}, "file", "file: a sound is needed"},
        {0, {"model", "m"}, "file", "0 samples"},
        {16000, {"response_format", "srt"}, "response_format", "the model gives no times"},
        {16000, {"response_format", "vtt"}, "response_format", "the model gives no times"},
        {16000, {"response_format", "diarized_json"}, "response_format", "voices"},
        {16000,
         {"response_format", "xml"},
         "response_format",
         "must be \"json\", \"text\" or \"verbose_json\", not \"xml\""},
        {16000, {"timestamp_granularities[]", "word"}, "timestamp_granularities", "no times, not \"word\""},
        {16000, {"include[]", "logprobs"}, "include", "not \"logprobs\""},
        {16000, {"known_speaker_names[]", "Ann"}, "known_speaker_names", "voices"},
        {16000, {"temperature", "hot"}, "temperature", "a number from 0 to 2, not \"hot\""},
        {16000, {"temperature", "nan"}, "temperature", "a number from 0 to 2"},
        {16000, {"temperature", "3"}, "temperature", "a number from 0 to 2"},
        {16000, {"stream", "maybe"}, "stream", "not \"maybe\""},
        {16000, {"seed", "-1"}, "seed", "a whole number"},
        {16000, {"language", "en\x01"}, "language", "a code such as"},
        {16000, {"prompt", "\xff"}, "prompt", "UTF-8"},
        {16000, {"chunking_strategy", "{\"type\":\"server_vad\"}"}, "chunking_strategy", "\"auto\" can be asked for"},
        {16000, {"chunking_strategy[type]", "server_vad"}, "chunking_strategy", "not \"server_vad\""},
        {16000, {"languages[]", "en\x01"}, "languages", "a code such as"},
        {16000, {"keywords[]", "\xff"}, "keywords", "UTF-8"},
        {16000, {"known_speaker_references[]", "data:,"}, "known_speaker_names", "voices"},
        {16000, {"file", "second"}, "file", "one sound can be transcribed at a time"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        if (parse_for(&r, rows[i].samples, &ears, rows[i].pairs) != EK_EINVAL)
            fail_msg("%s=%s was taken", rows[i].pairs[0], rows[i].pairs[1]);
        if (!strstr(ek_err_text(), rows[i].says) || strchr(ek_err_text(), '\n'))
            fail_msg("says \"%s\", should say \"%s\"", ek_err_text(), rows[i].says);
        assert_string_equal(r.param, rows[i].param);
        ek_api_request_fini(&r);
    }
    ek_api_request r;
    static const ek_chat_media eyes = {.image = true};
    assert_int_equal(parse_for(&r, 16000, NULL, PAIRS()), EK_EINVAL);
    assert_non_null(strstr(ek_err_text(), "has no ears"));
    ek_api_request_fini(&r);
    assert_int_equal(parse_for(&r, 16000, &eyes, PAIRS()), EK_EINVAL);
    ek_api_request_fini(&r);
    const char json[] = "{\"model\":\"m\"}";
    const ek_api_limits limits = {.media = &ears};
    r = (ek_api_request){0};
    assert_int_equal(ek_api_parse(&r, d, json, strlen(json), &limits), EK_EINVAL);
    assert_string_equal(ek_err_text(), "the body must be multipart/form-data");
    ek_api_request_fini(&r);
}

/* The reply to a form, as it is written. */
static void reply(ek_buf *out, const char *form, bool stream, const char **type)
{
    ek_api_request r;
    ek_turn_result result = {.n_prompt = 60, .n_tokens = 5, .n_sounds = 25, .n_sounds_kept = 9};
    const ek_turn_result *choices[] = {&result};
    assert_int_equal(parse_for(&r, 24000, &ears, form ? PAIRS("response_format", form) : PAIRS()), EK_OK);
    *type = d->whole_type(&r);
    ek_buf_str(&result.answer.content, "Hello \"you\"");
    const ek_api_reply reply = {
        .id = "t", .model = "m", .stream = stream, .n = 1, .n_prompts = 1, .choices = choices, .own = r.own};
    if (stream) {
        const ek_reply_event e = {.kind = EK_REPLY_CONTENT, .text = "Hello", .n = 5};
        assert_null(d->begin); /* nothing stands before the first event, or behind the last */
        d->event(out, &reply, 0, &e);
        assert_null(d->finish);
    }
    d->end(out, &reply);
    ek_buf_fini(&result.answer.content);
    ek_api_request_fini(&r);
}

#define USAGE                                                                                         \
    "\"usage\":{\"type\":\"tokens\",\"input_tokens\":60,\"input_token_details\":{\"text_tokens\":35," \
    "\"audio_tokens\":25,\"cached_audio_tokens\":9},\"output_tokens\":5,\"total_tokens\":65}"

static void forms_of_a_reply(void **state)
{
    (void)state;
    static const struct {
        const char *form, *type, *want;
        bool stream;
    } rows[] = {
        {NULL, NULL, "{\"text\":\"Hello \\\"you\\\"\"," USAGE "}", false},
        {"json", NULL, "{\"text\":\"Hello \\\"you\\\"\"," USAGE "}", false},
        {"text", "text/plain; charset=utf-8", "Hello \"you\"\n", false},
        {"verbose_json", NULL,
         "{\"task\":\"transcribe\",\"language\":\"unknown\",\"duration\":1.500,\"text\":\"Hello \\\"you\\\"\","
         "\"usage\":{\"type\":\"duration\",\"seconds\":1.500}}",
         false},
        {NULL, NULL,
         "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hello\"}\n\ndata: {\"type\":\"transcript.text.done\","
         "\"text\":\"Hello \\\"you\\\"\"," USAGE "}\n\ndata: [DONE]\n\n",
         true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_buf out = {0};
        const char *type;
        reply(&out, rows[i].form, rows[i].stream, &type);
        assert_string_equal(ek_buf_text(&out), rows[i].want);
        if (rows[i].type) assert_string_equal(type, rows[i].type);
        else assert_null(type);
        ek_buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_form_becomes_a_prompt), cmocka_unit_test(what_says_nothing),
                                       cmocka_unit_test(long_sounds_come_in_pieces), cmocka_unit_test(what_is_refused),
                                       cmocka_unit_test(forms_of_a_reply)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
