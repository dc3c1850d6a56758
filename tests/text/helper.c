#include "helper.h"

#include <stdio.h>

#include "base/hash/rng.h"

void check_bytes(const char *got, size_t n_got, const char *want, size_t n_want, const char *file, int line)
{
    if (n_got == n_want && (n_got == 0 || memcmp(got, want, n_got) == 0)) return;
    printf("%s:%d\n  want (%zu) %.*s\n  got  (%zu) %.*s\n", file, line, n_want, (int)n_want, want, n_got, (int)n_got,
           got);
    fail();
}

json_t *read_json(const char *text)
{
    json_t *v;
    if (ek_json_read(&v, text, strlen(text), 0) != EK_OK) fail_msg("%s in %s", ek_err_text(), text);
    return v;
}

uint32_t roll(dice *d, uint32_t sides)
{
    return (uint32_t)(ek_mix64(d->seed * 0x9E3779B97F4A7C15u + ++d->n) >> 33) % sides;
}

static const char *const controls[] = {"<pad>",
                                       "<eos>",
                                       "<bos>",
                                       "<unk>",
                                       "<|tool>",
                                       "<tool|>",
                                       "<|tool_call>",
                                       "<tool_call|>",
                                       "<|tool_response>",
                                       "<tool_response|>",
                                       "<|\"|>",
                                       "<|think|>",
                                       "<|channel>",
                                       "<channel|>",
                                       "<|turn>",
                                       "<turn|>",
                                       "<|image|>"};
enum { N_CONTROLS = sizeof controls / sizeof *controls };

void tokenizer_json(ek_buf *out, const char *const *pieces, const char *const *merges)
{
    ek_buf_str(out, "{\"added_tokens\":[");
    for (int i = 0; i < N_CONTROLS; i++) {
        ek_buf_fmt(out, "%s{\"id\":%d,\"content\":", i ? "," : "", i);
        ek_json_quote(out, controls[i], strlen(controls[i]));
        ek_buf_str(out,
                   ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    }
    ek_buf_str(
        out,
        "],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},"
        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
        "\"byte_fallback\":true,\"vocab\":{");
    int id = 0;
    for (; id < N_CONTROLS; id++) {
        ek_json_quote(out, controls[id], strlen(controls[id]));
        ek_buf_fmt(out, ":%d,", id);
    }
    for (int b = 0; b < 256; b++) ek_buf_fmt(out, "%s\"<0x%02X>\":%d", b ? "," : "", b, id++);
    for (; pieces && *pieces; pieces++) {
        ek_buf_char(out, ',');
        ek_json_quote(out, *pieces, strlen(*pieces));
        ek_buf_fmt(out, ":%d", id++);
    }
    ek_buf_str(out, "},\"merges\":[");
    for (int i = 0; merges && merges[i]; i++) {
        if (i) ek_buf_char(out, ',');
        ek_json_quote(out, merges[i], strlen(merges[i]));
    }
    ek_buf_str(out, "]}}");
}

ek_tokenizer *small_tokenizer(void)
{
    static const char *const pieces[] = {"\n",
                                         "\xE2\x96\x81",
                                         "a",
                                         "b",
                                         "c",
                                         "h",
                                         "t",
                                         "o",
                                         "u",
                                         "g",
                                         "{",
                                         "}",
                                         ":",
                                         "call",
                                         "th",
                                         "ou",
                                         "thou",
                                         "gh",
                                         "ght",
                                         "thought",
                                         "\n\n",
                                         "\xE2\x96\x81"
                                         "a",
                                         "ca",
                                         "l",
                                         "ll",
                                         "}\n",
                                         NULL};
    static const char *const merges[] = {"\n \n",          "t h", "o u", "th ou", "g h", "gh t", "thou ght",
                                         "\xE2\x96\x81 a", "c a", "l l", "ca ll", NULL};
    ek_buf b = {0};
    ek_tokenizer *t;
    tokenizer_json(&b, pieces, merges);
    if (ek_tokenizer_parse(&t, b.data, b.len) != EK_OK) fail_msg("%s", ek_err_text());
    ek_buf_fini(&b);
    return t;
}
