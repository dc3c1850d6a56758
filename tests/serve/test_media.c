/* Pictures, sounds and videos in the messages of each API: where they stand in the prompt, how closely they are looked
 * at, and what is refused, with a sentence of one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/encoding.h"
#include "media/limits.h"
#include "serve/api/media.h"
#include "serve/api/dialect.h"
#include "template_gets.h"

/* 2 x 1 pixels; 30000 x 30000 of them, as its header says. */
#define PNG  "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR42mP4z8AARAAI/gH/GcBr5wAAAABJRU5ErkJggg=="
#define BOMB "iVBORw0KGgoAAAANSUhEUgAAdTAAAHUwCAIAAADpRW/tAAAAAElFTkSuQmCC"

static char wav[4096]; /* a tenth of a second in base64 */

static void make_wav(void)
{
    enum { FRAMES = 1600 };
    unsigned char file[44 + FRAMES] =
        "RIFF\x64\x06\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\x80\x3e\0\0\1\0\x08\0data\x40\x06";
    ek_buf b = {0};
    memset(file + 44, 0x80, FRAMES);
    ek_base64_encode(&b, file, sizeof file);
    snprintf(wav, sizeof wav, "%s", b.data);
    ek_buf_fini(&b);
}

static const ek_chat_media both = {.image = true, .audio = true, .frame = true}, eyes = {.image = true},
                           ears = {.audio = true};

static ek_err parse_for(const ek_dialect *d, ek_api_request *r, const char *body, const ek_chat_media *media)
{
    ek_api_limits limits = {.defaults = {.temperature = 1, .top_p = 0.5f, .repetition_penalty = 1},
                            .n_vocab = 1000,
                            .ctx_tokens = 512,
                            .media = media};
    *r = (ek_api_request){0};
    return ek_api_parse(r, d, body, strlen(body), &limits);
}

static ek_err parse(const ek_dialect *d, ek_api_request *r, const char *body)
{
    return parse_for(d, r, body, &both);
}

#define CHAT(content)   "{\"messages\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define INPUT(content)  "{\"input\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define BLOCKS(content) "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[" content "]}]}"
#define TEXT(s)         "{\"type\":\"text\",\"text\":\"" s "\"}"
#define URL             "data:image/png;base64," PNG
#define IMAGE_URL       "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" URL "\"}}"
#define INPUT_IMAGE     "{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":\"" URL "\"}"
#define IMAGE           "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"" PNG "\"}}"
#define PLACE(n)        "{\"type\":\"image\",\"file\":" #n "}"
#define CALL_AND_RESULT(content)                                                                                   \
    "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{" \
    "\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":" \
    "\"tool_result\",\"tool_use_id\":\"t\",\"content\":[" content "]}," TEXT("now") "]}]}"
#define CALLED                                                                                                           \
    "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"t\",\"type\":\"function\"," \
    "\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
#define USER_OF(parts) "[{\"role\":\"user\",\"content\":[" parts "]}]"

static void stand_where_they_were_sent(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *d;
        const char *body, *want; /* the template's messages */
    } rows[] = {
        {&ek_dialect_openai_chat, CHAT(TEXT("a") "," IMAGE_URL "," TEXT("b") "," IMAGE_URL),
         USER_OF(TEXT("a") "," PLACE(0) "," TEXT("b") "," PLACE(1))},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"image_url\",\"image_url\":\"" URL "\"}"), USER_OF(PLACE(0))},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"file\",\"file\":{\"filename\":\"a.png\",\"file_data\":\"" URL "\"}}," TEXT("b")),
         USER_OF(PLACE(0) "," TEXT("b"))},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"file\",\"file\":{\"file_data\":\"" PNG "\"}}"), USER_OF(PLACE(0))},
        {&ek_dialect_openai_chat,
         CHAT(TEXT("v") ",{\"type\":\"video\",\"video\":[\"" URL "\",{\"url\":\"" URL "\"},\"" URL
                        "\"],\"timestamps\":[0,1.9,3600]}"),
         USER_OF(TEXT("v") ",{\"type\":\"video\",\"frames\":[{\"time\":\"00:00\",\"file\":0},{\"time\":\"00:01\","
                           "\"file\":1},{\"time\":\"60:00\",\"file\":2}]}")},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[\"" URL "\",\"" URL "\"],\"fps\":0.5}"),
         USER_OF("{\"type\":\"video\",\"frames\":[{\"time\":\"00:00\",\"file\":0},{\"time\":\"00:02\",\"file\":1}]}")},
        {&ek_dialect_openai_chat,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"t\","
         "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":"
         "\"t\",\"content\":[" TEXT("r") "," IMAGE_URL "]}]}",
         "[" CALLED "{\"role\":\"tool\",\"content\":[" TEXT("r") "," PLACE(0) "],\"tool_call_id\":\"t\"}]"},
        {&ek_dialect_responses,
         INPUT("{\"type\":\"input_text\",\"text\":\"a\"}," INPUT_IMAGE ",{\"type\":\"input_text\","
               "\"text\":\"b\"}"),
         USER_OF(TEXT("a") "," PLACE(0) "," TEXT("\\nb"))},
        {&ek_dialect_responses, INPUT(INPUT_IMAGE ",{\"type\":\"input_file\",\"file_data\":\"" URL "\"}"),
         USER_OF(PLACE(0) "," PLACE(1))},
        {&ek_dialect_responses,
         "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"function_call\",\"call_id\":\"t\",\"name\":\"f\","
         "\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"t\",\"output\":[" INPUT_IMAGE "]}]}",
         "[" CALLED "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":[" PLACE(0) "]}]"},
        {&ek_dialect_anthropic, BLOCKS(IMAGE "," TEXT("a") "," TEXT("b") "," IMAGE "," TEXT("c")),
         USER_OF(PLACE(0) "," TEXT("a\\nb") "," PLACE(1) "," TEXT("\\nc"))},
        {&ek_dialect_anthropic, BLOCKS(IMAGE), USER_OF(PLACE(0))},
        {&ek_dialect_anthropic, CALL_AND_RESULT(TEXT("r") "," IMAGE "," TEXT("s")),
         "[" CALLED "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":[" TEXT("r") "," PLACE(0) "," TEXT(
             "\\ns") "]},"
                     "{\"role\":\"user\",\"content\":\"now\"}]"},
        {&ek_dialect_anthropic, CALL_AND_RESULT(IMAGE),
         "[" CALLED "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":[" TEXT("") "," PLACE(
             0) "]},"
                "{\"role\":\"user\",\"content\":\"now\"}]"},
        {&ek_dialect_anthropic,
         BLOCKS("{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":[" TEXT("x") "," IMAGE "]}}"),
         USER_OF(TEXT("<document>\\nx") "," PLACE(0) "," TEXT("\\n</document>"))},
        {&ek_dialect_ollama_chat,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"" PNG "\",\"" URL "\"]}]}",
         USER_OF(PLACE(0) "," PLACE(1) "," TEXT("a"))},
        {&ek_dialect_ollama_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"images\":[\"" PNG "\"]}",
         USER_OF(PLACE(0) "," TEXT("a"))},
        {&ek_dialect_anthropic_count, BLOCKS(IMAGE), USER_OF(PLACE(0))},
        {&ek_dialect_responses_count, INPUT(INPUT_IMAGE), USER_OF(PLACE(0))},
        {&ek_dialect_chat_render, CHAT(IMAGE_URL), USER_OF(PLACE(0))},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_api_request r;
        if (parse(rows[i].d, &r, rows[i].body)) fail_msg("%s in %s", ek_err_text(), rows[i].body);
        template_gets(&r, rows[i].want);
    }
}

static void sounds(void **state)
{
    (void)state;
    static const char *const forms[] = {
        CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"%s\",\"format\":\"wav\"}}"),
        CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"data:audio/wav;base64,%s\"}}"),
        CHAT("{\"type\":\"audio_url\",\"audio_url\":{\"url\":\"data:audio/x-wav;base64,%s\"}}"),
        CHAT("{\"type\":\"file\",\"file\":{\"file_data\":\"%s\"}}"),
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ek_api_request r;
        ek_buf body = {0};
        const char *at = strstr(forms[i], "%s");
        ek_buf_fmt(&body, "%.*s%s%s", (int)(at - forms[i]), forms[i], wav, at + 2);
        if (parse(&ek_dialect_openai_chat, &r, body.data)) fail_msg("%s in %s", ek_err_text(), forms[i]);
        template_gets(&r, USER_OF("{\"type\":\"audio\",\"file\":0}"));
        ek_buf_fini(&body);
    }
}

/* Of the only picture. */
static int budget_of(const ek_dialect *d, const char *body)
{
    ek_api_request r;
    if (parse(d, &r, body)) fail_msg("%s in %s", ek_err_text(), body);
    const ek_media_file *f = r.conversation.messages[0].blocks[0].files;
    int budget = f->budget ? f->budget : r.prompt.image_tokens;
    assert_int_equal(f->bytes.len, 70);
    ek_api_request_fini(&r);
    return budget;
}

static void details(void **state)
{
    (void)state;
#define DETAIL(d) CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"" URL "\",\"detail\":" d "}}")
    assert_int_equal(budget_of(&ek_dialect_openai_chat, CHAT(IMAGE_URL)), 0);
    assert_int_equal(budget_of(&ek_dialect_openai_chat, DETAIL("null")), 0);
    assert_int_equal(budget_of(&ek_dialect_openai_chat, DETAIL("\"auto\"")), 0);
    assert_int_equal(budget_of(&ek_dialect_openai_chat, DETAIL("\"low\"")), 70);
    assert_int_equal(budget_of(&ek_dialect_openai_chat, DETAIL("\"high\"")), 1120);
    assert_int_equal(budget_of(&ek_dialect_responses, INPUT("{\"type\":\"input_image\",\"detail\":\"original\","
                                                            "\"image_url\":\"" URL "\"}")),
                     1120);
#define OURS(rest) "{\"evenkeel\":{\"image_tokens\":560}," rest
#define VLLM(rest) "{\"mm_processor_kwargs\":{\"max_soft_tokens\":560}," rest
    assert_int_equal(
        budget_of(&ek_dialect_openai_chat, OURS("\"messages\":[{\"role\":\"user\",\"content\":[" IMAGE_URL "]}]}")),
        560);
    assert_int_equal(
        budget_of(&ek_dialect_openai_chat, VLLM("\"messages\":[{\"role\":\"user\",\"content\":[" IMAGE_URL "]}]}")),
        560);
    assert_int_equal(
        budget_of(&ek_dialect_responses, OURS("\"input\":[{\"role\":\"user\",\"content\":[" INPUT_IMAGE "]}]}")), 560);
    assert_int_equal(budget_of(&ek_dialect_anthropic,
                               OURS("\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[" IMAGE "]}]}")),
                     560);
    assert_int_equal(
        budget_of(&ek_dialect_ollama_generate, OURS("\"model\":\"m\",\"prompt\":\"a\",\"images\":[\"" PNG "\"]}")),
        560);
    assert_int_equal(
        budget_of(&ek_dialect_openai_chat,
                  OURS("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{"
                       "\"url\":\"" URL "\",\"detail\":\"low\"}}]}]}")),
        70);
}

static void refused(const ek_dialect *d, const char *body, const ek_chat_media *media, const char *says)
{
    ek_api_request r;
    ek_err err = parse_for(d, &r, body, media);
    if (!err || ek_err_http(err) != 400 || !strstr(ek_err_text(), says) || strchr(ek_err_text(), '\n') || !r.param)
        fail_msg("%.300s: %s", body, err ? ek_err_text() : "taken");
    ek_api_request_fini(&r);
}

static void what_is_not_taken(void **state)
{
    (void)state;
    static const struct {
        const ek_dialect *d;
        const char *body;
        const ek_chat_media *media;
        const char *says;
    } rows[] = {
        {&ek_dialect_openai_chat, CHAT(IMAGE_URL), NULL, "no eyes (vision tower), it takes text alone"},
        {&ek_dialect_openai_chat, CHAT(IMAGE_URL), &ears, "no eyes (vision tower), it takes text and sounds"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"AAAA\"}}"), &eyes,
         "no ears (audio tower), it takes text and images"},
        {&ek_dialect_anthropic, BLOCKS(IMAGE), NULL, "it takes text alone (capability_rejected: image_block)"},
        {&ek_dialect_anthropic, CALL_AND_RESULT(IMAGE), NULL, "(capability_rejected: image_block)"},
        {&ek_dialect_responses, INPUT(INPUT_IMAGE), NULL, "no eyes"},
        {&ek_dialect_responses, INPUT("{\"type\":\"input_file\",\"file_data\":\"" URL "\"}"), NULL, "no eyes"},
        {&ek_dialect_ollama_chat,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"" PNG "\"]}]}", NULL,
         "no eyes"},
        {&ek_dialect_openai_chat, "{\"messages\":[{\"role\":\"system\",\"content\":[" IMAGE_URL "]}]}", &both,
         "messages of the user and results of tools"},
        {&ek_dialect_openai_chat, "{\"messages\":[{\"role\":\"assistant\",\"content\":[" IMAGE_URL "]}]}", &both,
         "messages of the user and results of tools"},
        {&ek_dialect_openai_chat,
         CHAT(TEXT("a") ","
                        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"file:///etc/passwd\"}}"),
         &both, "must be a data: URL, not \"file:///etc/passwd\""},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://a.b/c.png\"}}"), &both,
         "--media-urls"},
        {&ek_dialect_anthropic,
         BLOCKS("{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"https://a.b/c.png\"}}"), &both,
         "--media-urls"},
        {&ek_dialect_anthropic, BLOCKS("{\"type\":\"image\",\"source\":{\"type\":\"file\",\"file_id\":\"f\"}}"), &both,
         "images with a source of type \"file\""},
        {&ek_dialect_responses, INPUT("{\"type\":\"input_image\",\"file_id\":\"f\"}"), &both,
         "nothing is uploaded here"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"image_url\",\"image_url\":{}}"), &both, "needs a text url"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"image_url\"}"), &both, "needs a text url"},
        {&ek_dialect_openai_chat, DETAIL("\"close\""), &both, "detail must be"},
        {&ek_dialect_openai_chat, DETAIL("3"), &both, "not 3"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:text/plain;base64," PNG "\"}}"), &both,
         "an image cannot be of type \"text/plain\""},
        {&ek_dialect_anthropic,
         BLOCKS("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"application/pdf\",\"data\":\"" PNG
                "\"}}"),
         &both, "cannot be of type \"application/pdf\""},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png," PNG "\"}}"),
         &both, "not a picture of a known kind"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,****\"}}"), &both,
         "not valid base64"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,aGVsbG8=\"}}"), &both,
         "not a picture"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64," BOMB "\"}}"), &both,
         "30000 x 30000 pixels, 900000000 together, at most 64000000"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"AAAA\",\"format\":\"pcm16\"}}"), &both,
         "not a sound of a known kind"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"format\":\"wav\"}}"), &both,
         "needs a text data"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"" PNG "\",\"format\":\"wav\"}}"), &both,
         "a sound"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[]}"), &both, "a list of the URLs"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":3}"), &both,
         "a list of the URLs of its frames, or"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"video_url\",\"video_url\":{\"url\":\"data:video/mp4;base64,AAAA\"}}"), &both, "--ffmpeg"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"video_url\",\"video_url\":{\"url\":\"data:video/mp4;base64,AAAA\"}}"), &ears, "no eyes"},
        {&ek_dialect_openai_chat,
         CHAT("{\"type\":\"video_url\",\"video_url\":{\"url\":\"data:video/mp4;base64,AAAA\"}}"), &eyes,
         "no token for frames of videos"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[\"" URL "\"]}"), &eyes,
         "no token for frames of videos"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"input_video\",\"input_video\":{\"data\":\"AAAA\"}}"), &eyes,
         "no token for frames of videos"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"file\",\"file\":{\"file_data\":\"data:video/mp4;base64,AAAA\"}}"),
         &eyes, "no token for frames of videos"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video_url\",\"video_url\":{}}"), &both,
         "video_url needs a text url"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"input_video\",\"input_video\":{\"data\":\"AAAA\"}}"), &both,
         "--ffmpeg"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"input_video\",\"input_video\":{\"data\":7}}"), &both,
         "input_video needs a text data or url"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"file\",\"file\":{\"file_data\":\"data:video/mp4;base64,AAAA\"}}"),
         &both, "--ffmpeg"},
        {&ek_dialect_responses, INPUT("{\"type\":\"input_video\",\"video_url\":\"data:video/mp4;base64,AAAA\"}"), &both,
         "--ffmpeg"},
        {&ek_dialect_openai_chat,
         "{\"mm_processor_kwargs\":{\"max_soft_tokens\":100},\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
         &both, "mm_processor_kwargs.max_soft_tokens: 70, 140, 280, 560 or 1120 is needed, not 100"},
        {&ek_dialect_openai_chat,
         "{\"mm_processor_kwargs\":{\"fps\":2},\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &both,
         "max_soft_tokens can be set, not \"fps\""},
        {&ek_dialect_openai_chat, "{\"mm_processor_kwargs\":3,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
         &both, "mm_processor_kwargs: an object is needed"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[\"" URL "\"],\"timestamps\":[1,2]}"), &both,
         "as many numbers as there are frames, 1"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[\"" URL "\",\"" URL "\"],\"timestamps\":[2,1]}"),
         &both, "in the order of time"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[\"" URL "\"],\"fps\":0}"), &both, "fps"},
        {&ek_dialect_openai_chat, CHAT("{\"type\":\"video\",\"video\":[\"" URL "\",\"x\"]}"), &both, "video[1]"},
        {&ek_dialect_openai_chat,
         "{\"evenkeel\":{\"image_tokens\":100},\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &both,
         "evenkeel.image_tokens: 70, 140, 280, 560 or 1120 is needed, not 100"},
        {&ek_dialect_openai_chat,
         "{\"evenkeel\":{\"image_alpha\":\"grey\"},\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &both,
         "evenkeel.image_alpha: \"drop\" or \"white\" is needed, not \"grey\""},
        {&ek_dialect_ollama_generate, "{\"model\":\"m\",\"raw\":true,\"prompt\":\"a\",\"images\":[\"" PNG "\"]}", &both,
         "raw"},
        {&ek_dialect_ollama_chat,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[3]}]}", &both, "images[0]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(rows[i].d, rows[i].body, rows[i].media, rows[i].says);
}

static void repeat(ek_buf *out, const char *part, int n)
{
    for (int i = 0; i < n; i++) {
        if (i > 0) ek_buf_char(out, ',');
        ek_buf_str(out, part);
    }
}

/* So many and no more, also of several messages and of videos. */
static void counts(void **state)
{
    (void)state;
    ek_api_request r;
    ek_buf b = {0};
    for (int more = 0; more < 2; more++) {
        ek_buf_clear(&b);
        ek_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":[");
        repeat(&b, IMAGE_URL, 10);
        ek_buf_str(&b, "]},{\"role\":\"user\",\"content\":[");
        repeat(&b, IMAGE_URL, EK_MEDIA_MAX_IMAGES - 10 + more);
        ek_buf_str(&b, "]}]}");
        if (!more && parse(&ek_dialect_openai_chat, &r, b.data)) fail_msg("%s", ek_err_text());
        if (!more) ek_api_request_fini(&r);
        else
            refused(&ek_dialect_openai_chat, b.data, &both,
                    "the request has 129 images or more, at most 128 are allowed");
        ek_buf_clear(&b);
        ek_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"video\",\"video\":[");
        repeat(&b, "\"" URL "\"", EK_MEDIA_MAX_FRAMES + more);
        ek_buf_str(&b, "]}]}]}");
        if (!more && parse(&ek_dialect_openai_chat, &r, b.data)) fail_msg("%s", ek_err_text());
        if (!more) ek_api_request_fini(&r);
        else refused(&ek_dialect_openai_chat, b.data, &both, "33 frames of videos or more, at most 32");
        ek_buf_clear(&b);
        ek_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":[");
        for (int i = 0; i < EK_MEDIA_MAX_SOUNDS + more; i++)
            ek_buf_fmt(&b, "%s{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"%s\"}}", i ? "," : "", wav);
        ek_buf_str(&b, "]}]}");
        if (!more && parse(&ek_dialect_openai_chat, &r, b.data)) fail_msg("%s", ek_err_text());
        if (!more) ek_api_request_fini(&r);
        else refused(&ek_dialect_openai_chat, b.data, &both, "5 sounds or more, at most 4");
    }
    ek_buf_fini(&b);
}

/* A file that is too large is refused before it is decoded. */
static void sizes(void **state)
{
    (void)state;
    ek_buf b = {0};
    size_t n = (size_t)EK_MEDIA_MAX_BYTES / 3 * 4 + 3000000;
    ek_buf_str(
        &b,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
    char *digits = malloc(n);
    memset(digits, 'A', n);
    ek_buf_add(&b, digits, n);
    free(digits);
    ek_buf_str(&b, "\"}}]}]}");
    refused(&ek_dialect_openai_chat, b.data, &both, "at most 33554432 are allowed");
    ek_buf_fini(&b);
}

static void data_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *type, *data;
        bool base64;
    } good[] = {
        {"data:image/png;base64,AAAA", "image/png", "AAAA", true},
        {"DATA:image/svg+xml;charset=utf-8;BASE64,x,y", "image/svg+xml", "x,y", true},
        {"data:,", "", "", false},
        {"data:;base64,A", "", "A", true},
        {"data:text/plain;a=\"b\",c", "text/plain", "c", false},
        {" \n data: image/png ; charset=utf-8 ; base64 ,AAAA\n", "image/png", "AAAA", true},
        {"data:image/png;name=a b.png;bAsE64,A", "image/png", "A", true},
        {"data:image;base64,A", "", "A", true},
        {"data:undefined;base64,A", "", "A", true},
        {"data:/png,A", "", "A", false},
        {"data:image/,A", "", "A", false},
        {"data:a/b/c,A", "", "A", false},
        {"data:image/png;,A", "image/png", "A", false},
        {"data:image/png;=x,A", "image/png", "A", false},
        {"data:image/png;b,A", "image/png", "A", false},
        {"data:\x01/b,A", "", "A", false},
    };
    static const char *const bad[] = {"", "data", "http://a", "data:image/png;base64", "data:image/png;base64;a=b,A"};
    ek_data_url u;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *why = ek_data_url_parse(&u, good[i].url, strlen(good[i].url));
        if (why) fail_msg("%s %s", good[i].url, why);
        assert_int_equal(u.n_type, strlen(good[i].type));
        assert_memory_equal(u.type, good[i].type, u.n_type);
        assert_int_equal(u.n_data, strlen(good[i].data));
        assert_memory_equal(u.data, good[i].data, u.n_data);
        assert_int_equal(u.base64, good[i].base64);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!ek_data_url_parse(&u, bad[i], strlen(bad[i]))) fail_msg("%s is taken", bad[i]);
    char far[1100] = "data:a/b;";
    memset(far + 9, 'x', 1024);
    strcpy(far + 1033, "=y,z");
    assert_non_null(ek_data_url_parse(&u, far, strlen(far)));
}

/* What stands behind the comma, as a browser reads it. */
static void data_of_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *want; /* NULL: it is refused */
    } rows[] = {
        {"data:;base64,Zm9v", "foo"},
        {"data:;base64,Zm9vYg==", "foob"},
        {"data:;base64,Zm9vYg", "foob"},
        {"data:;base64,Zm9vYg%3D%3D", "foob"},
        {"data:;base64,Zm9vYg%3d%3d", "foob"},
        {"data:;base64,%5A%6d9v", "foo"},
        {"data:;base64,Pz8%2FPz8%2B", "?\?\?\?\?>"},
        {"data:;base64, Zm9v\r\nYm\tFy\f ", "foobar"},
        {"data:;base64,Zm9v%20%0AYmFy", "foobar"},
        {"data:;base64,Zm9v#top", "foo"},
        {"data:;base64,", ""},
        {"data:;base64,Zm9v%", NULL},
        {"data:;base64,Zm9v%2", NULL},
        {"data:;base64,Zm9%76%%", NULL},
        {"data:;base64,Zm9*", NULL},
        {"data:;base64,Z", NULL},
        {"data:;base64,Zg=", NULL},
        {"data:,a%20b%00%ff c%zz%4", "a b\0\xff c%zz%4"},
        {"data:,a\r\n\tb c#d", "ab c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ek_data_url u;
        ek_buf b = {0};
        ek_buf_char(&b, 'x');
        assert_null(ek_data_url_parse(&u, rows[i].url, strlen(rows[i].url)));
        const bool good = ek_data_url_decode(&b, &u);
        if (good != (rows[i].want != NULL)) fail_msg("%s is %s", rows[i].url, good ? "taken" : "refused");
        assert_true(b.len - 1 <= ek_data_url_bytes(&u));
        if (good) assert_string_equal(b.data + 1, rows[i].want);
        else assert_int_equal(b.len, 1);
        ek_buf_fini(&b);
    }
}

/* As clients write the same picture: all are it. */
static void pictures_in_urls(void **state)
{
    (void)state;
    static const char *const heads[] = {"data:image/png;base64,",
                                        "data:;base64,",
                                        "data:image;base64,",
                                        "data:None;base64,",
                                        "data:image/png; base64,",
                                        " DATA:image/PNG;BASE64,",
                                        "data:image/webp;base64,",
                                        "data:application/octet-stream;base64,",
                                        "data:image/png;charset=utf-8;base64, "};
    ek_buf body = {0};
    ek_api_request r;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        ek_buf_clear(&body);
        ek_buf_fmt(&body, CHAT("{\"type\":\"image_url\",\"image_url\":{\"url\":\"%s" PNG "\\n\"}}"), heads[i]);
        assert_int_equal(budget_of(&ek_dialect_openai_chat, body.data), 0);
        ek_buf_clear(&body);
        ek_buf_fmt(&body, CHAT("{\"type\":\"file\",\"file\":{\"file_data\":\"%s" PNG "\"}}"), heads[i]);
        if (parse(&ek_dialect_openai_chat, &r, body.data)) fail_msg("%s in %s", ek_err_text(), body.data);
        assert_int_equal(r.conversation.n_images, 1);
        ek_api_request_fini(&r);
    }
    ek_buf bytes = {0};
    assert_true(ek_base64_decode(&bytes, PNG, strlen(PNG)));
    ek_buf_clear(&body);
    ek_buf_str(&body, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":\"data:,");
    for (size_t i = 0; i < bytes.len; i++) ek_buf_fmt(&body, "%%%02x", (unsigned char)bytes.data[i]);
    ek_buf_str(&body, "\"}]}]}");
    assert_int_equal(budget_of(&ek_dialect_openai_chat, body.data), 0);
    ek_buf_fini(&bytes);
    ek_buf_fini(&body);
}

/* The bytes say what a sound is: its format is as clients find it somewhere. */
static void formats_of_sounds(void **state)
{
    (void)state;
    static const char *const formats[] = {"\"wav\"", "\"mpeg\"",  "\"x-wav\"", "\"oga\"", "\"audio/wav\"",
                                          "\"\"",    "\"pcm16\"", "null",      "3",       "\"\\u0000\""};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        ek_api_request r;
        ek_buf body = {0};
        ek_buf_fmt(&body, CHAT("{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"%s\",\"format\":%s}}"), wav,
                   formats[i]);
        if (parse(&ek_dialect_openai_chat, &r, body.data)) fail_msg("%s of %s", ek_err_text(), formats[i]);
        assert_int_equal(r.conversation.n_sounds, 1);
        ek_api_request_fini(&r);
        ek_buf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stand_where_they_were_sent),
        cmocka_unit_test(sounds),
        cmocka_unit_test(details),
        cmocka_unit_test(what_is_not_taken),
        cmocka_unit_test(counts),
        cmocka_unit_test(sizes),
        cmocka_unit_test(data_urls),
        cmocka_unit_test(data_of_urls),
        cmocka_unit_test(pictures_in_urls),
        cmocka_unit_test(formats_of_sounds),
    };
    make_wav();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
