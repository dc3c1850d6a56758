/* A vocabulary of the real size for random models, without text from anybody. Merges can make every piece. */
#include <stdio.h>

#include "convert/meta.h"

enum { NAMED = 107, LETTERS = 26, BYTES = 256 };

/* Gemma 4's control tokens; the ids between them are <unusedN>. Source: the published tokenizer's added tokens. */
static const struct {
    int id;
    const char *text;
} control[] = {
    {0, "<pad>"},
    {1, "<eos>"},
    {2, "<bos>"},
    {3, "<unk>"},
    {4, "<mask>"},
    {46, "<|tool>"},
    {47, "<tool|>"},
    {48, "<|tool_call>"},
    {49, "<tool_call|>"},
    {50, "<|tool_response>"},
    {51, "<tool_response|>"},
    {52, "<|\\\"|>"},
    {98, "<|think|>"},
    {100, "<|channel>"},
    {101, "<channel|>"},
    {105, "<|turn>"},
    {106, "<turn|>"},
};

typedef struct maker {
    ek_buf *out;
    int n, max; /* pieces */
    ek_buf merges;
    int n_merges, max_merges;
} maker;

/* text is already JSON. */
static void add(maker *m, const char *text)
{
    if (m->n >= m->max) return;
    ek_buf_fmt(m->out, "%s\"%s\":%d", m->n ? "," : "", text, m->n);
    m->n++;
}

static void merge(maker *m, const char *a, const char *b)
{
    if (m->n_merges >= m->max_merges) return;
    ek_buf_fmt(&m->merges, "%s[\"%s\",\"%s\"]", m->n_merges ? "," : "", a, b);
    m->n_merges++;
}

static void name_of(char out[32], int id)
{
    int unused = 0;
    for (size_t i = 0; i < sizeof control / sizeof *control; i++) {
        if (control[i].id == id) {
            snprintf(out, 32, "%s", control[i].text);
            return;
        }
        if (control[i].id < id) unused++;
    }
    snprintf(out, 32, "<unused%d>", id - unused);
}

static void add_base(maker *m)
{
    char text[32];
    for (int id = 0; id < NAMED; id++) {
        name_of(text, id);
        add(m, text);
    }
    for (int b = 0; b < BYTES; b++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        add(m, text);
    }
    add(m, "\\n");
    add(m, "\xe2\x96\x81"); /* U+2581, a space */
    for (int c = 33; c < 127; c++) {
        snprintf(text, sizeof text, c == '"' || c == '\\' ? "\\%c" : "%c", c);
        add(m, text);
    }
}

/* Word number i of `length` letters. The first letter changes most slowly. */
static void word(char *out, int i, int length)
{
    for (int at = length - 1; at >= 0; at--, i /= LETTERS) out[at] = (char)('a' + i % LETTERS);
    out[length] = 0;
}

static int power(int length)
{
    int n = 1;
    while (length--) n *= LETTERS;
    return n;
}

/* Words of 2, 3 and 4 letters, and words of up to 3 letters also after a space. A word is merged from all letters but
 * the last and that last letter, so every prefix is a piece before it is needed. */
static void add_words(maker *m)
{
    char text[8], spaced[16], prefix[16], last[2] = "";
    for (int length = 1; length <= 4; length++) {
        for (int i = 0; i < power(length) && m->n < m->max; i++) {
            word(text, i, length);
            last[0] = text[length - 1];
            if (length > 1) {
                snprintf(prefix, sizeof prefix, "%.*s", length - 1, text);
                add(m, text);
                merge(m, prefix, last);
            }
            if (length > 3 || m->n >= m->max) continue;
            snprintf(spaced, sizeof spaced, "\xe2\x96\x81%s", text);
            snprintf(prefix, sizeof prefix, "\xe2\x96\x81%.*s", length - 1, text);
            add(m, spaced);
            merge(m, prefix, last);
        }
    }
}

/* Adds other merges that give the same words, later in rank, because a published file has twice as many merges as
 * pieces. They are never used, because the first merge is. */
static void add_more_merges(maker *m, int n_four)
{
    char text[8], a[8], b[8];
    static const struct {
        int length, first; /* letters in the first part */
    } way[] = {{3, 1}, {4, 2}, {4, 1}};
    for (size_t w = 0; w < sizeof way / sizeof *way; w++) {
        int n = way[w].length == 4 ? n_four : power(3);
        for (int i = 0; i < n && m->n_merges < m->max_merges; i++) {
            word(text, i, way[w].length);
            snprintf(a, sizeof a, "%.*s", way[w].first, text);
            snprintf(b, sizeof b, "%s", text + way[w].first);
            merge(m, a, b);
        }
    }
}

void ek_made_tokenizer(ek_buf *out, int n, int n_merges)
{
    maker m = {.out = out, .max = n, .max_merges = n_merges};
    char text[32];
    EK_ASSERT(n >= EK_MADE_MIN);
    ek_buf_str(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (int id = 0; id < NAMED; id++) {
        name_of(text, id);
        ek_buf_fmt(out,
                   "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                   "\"normalized\":false,\"special\":true}",
                   id ? "," : "", id, text);
    }
    ek_buf_str(
        out, "],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"},"
             "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
             "\"behavior\":\"MergedWithPrevious\",\"invert\":false},\"post_processor\":null,"
             "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
             "{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
             "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":null,"
             "\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false,"
             "\"vocab\":{");
    add_base(&m);
    add_words(&m);
    int two_three = 2 * (LETTERS * LETTERS + LETTERS * LETTERS * LETTERS) + LETTERS, base = NAMED + BYTES + 2 + 94;
    while (m.n < m.max) { /* after all words of four letters */
        snprintf(text, sizeof text, "<spare%d>", m.n);
        add(&m, text);
    }
    if (n > base + two_three) add_more_merges(&m, n - base - two_three < power(4) ? n - base - two_three : power(4));
    ek_buf_str(out, "},\"merges\":[");
    ek_buf_add(out, m.merges.data, m.merges.len);
    ek_buf_str(out, "]}}\n");
    ek_buf_fini(&m.merges);
}
