#include "taken.h"

#include <stdio.h>

int taken(const ek_grammar *g, ek_vocab *vocab, ek_tokenizer *tokenizer, const char *prompt, const char *text)
{
    ek_ids ids = {0};
    uint64_t row[128];
    bool all;
    int quote = ek_tokenizer_id(tokenizer, "<|\"|>"), i = 0;
    assert_int_equal(ek_encode(tokenizer, prompt, strlen(prompt), NULL, EK_CONTROL_ALL, &ids), EK_OK);
    ek_grammar_state *s = ek_grammar_state_open(g, vocab, NULL, 0, false);
    for (size_t k = 0; k < ids.len; k++) ek_grammar_accept(s, ids.data[k]);
    for (;; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (uint8_t)text[i]);
        int32_t id = text[i] == 'Q' && *prompt ? quote : ek_tokenizer_id(tokenizer, name);
        if (!text[i]) id = ek_tokenizer_id(tokenizer, *prompt ? "<tool_call|>" : "<turn|>");
        ek_grammar_look(s, NULL, 0, 128, row, &all);
        if (!(row[id / 64] >> id % 64 & 1)) break;
        if (!text[i]) {
            i = -1;
            break;
        }
        ek_grammar_accept(s, id);
    }
    ek_ids_fini(&ids);
    ek_grammar_state_close(s);
    return i;
}
