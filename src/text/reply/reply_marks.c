#include "text/reply/reply_marks.h"

#include <string.h>

static const struct {
    const char *text;
    ek_mark mark;
} names[] = {
    {"<eos>", EK_MARK_EOS},
    {"<turn|>", EK_MARK_TURN_CLOSE},
    {"<|tool_response>", EK_MARK_RESPONSE_OPEN},
    {"<tool_response|>", EK_MARK_RESPONSE_CLOSE},
    {"<|turn>", EK_MARK_TURN_OPEN},
    {"<|tool>", EK_MARK_TOOL_OPEN},
    {"<tool|>", EK_MARK_TOOL_CLOSE},
    {"<|tool_call>", EK_MARK_CALL_OPEN},
    {"<tool_call|>", EK_MARK_CALL_CLOSE},
    {"<|\"|>", EK_MARK_QUOTE},
    {"<|channel>", EK_MARK_CHANNEL_OPEN},
    {"<channel|>", EK_MARK_CHANNEL_CLOSE},
    {"<pad>", EK_MARK_OTHER},
    {"<bos>", EK_MARK_OTHER},
    {"<unk>", EK_MARK_OTHER},
    {"<mask>", EK_MARK_OTHER},
    {"<|think|>", EK_MARK_OTHER},
    {"<|image>", EK_MARK_OTHER},
    {"<image|>", EK_MARK_OTHER},
    {"<|image|>", EK_MARK_OTHER},
    {"<|audio>", EK_MARK_OTHER},
    {"<audio|>", EK_MARK_OTHER},
    {"<|audio|>", EK_MARK_OTHER},
    {"<|video|>", EK_MARK_OTHER},
};

#define N_NAMES (sizeof names / sizeof *names)

void ek_marks_find(ek_marks *m, const ek_tokenizer *t)
{
    for (int i = 0; i < EK_MARK_COUNT; i++) m->id[i] = -1;
    for (size_t i = 0; i < N_NAMES; i++)
        if (names[i].mark != EK_MARK_OTHER) m->id[names[i].mark] = ek_tokenizer_id(t, names[i].text);
}

const char *ek_mark_text(ek_mark m)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (names[i].mark == m && m != EK_MARK_OTHER) return names[i].text;
    return "";
}

bool ek_mark_spelled(const char *s, size_t n, ek_mark *m, size_t *used)
{
    bool begins = false;
    for (size_t i = 0; i < N_NAMES; i++) {
        size_t len = strlen(names[i].text);
        if (memcmp(s, names[i].text, n < len ? n : len) != 0) continue;
        if (n < len) {
            begins = true;
            continue;
        }
        *m = names[i].mark;
        *used = len;
        return true;
    }
    *used = begins ? n : 0;
    return false;
}
