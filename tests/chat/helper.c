#include "helper.h"

#include <stdio.h>

#include "text/json/json.h"

const ek_chat_model *pocket(void)
{
    static ek_chat_model m;
    if (!m.tokenizer && ek_chat_model_open(&m, "models/pocket")) fail_msg("%s", ek_err_text());
    return &m;
}

ek_ids ids_of(const char *text)
{
    ek_ids ids = {0};
    assert_int_equal(ek_encode(pocket()->tokenizer, text, strlen(text), NULL, EK_CONTROL_ALL, &ids), EK_OK);
    return ids;
}

ek_message *add_text(ek_conversation *c, ek_role role, const char *text)
{
    ek_message *m = ek_conversation_add(c, role);
    ek_message_text(m, EK_BLOCK_TEXT, text, strlen(text));
    return m;
}

ek_block *add_call(ek_message *m, const char *id, const char *name, const char *arguments)
{
    ek_block *b = ek_message_add(m, EK_BLOCK_CALL);
    ek_buf_str(&b->id, id);
    ek_buf_str(&b->name, name);
    assert_int_equal(ek_json_read(&b->value, arguments, strlen(arguments), 0), EK_OK);
    return b;
}

void check_buf(ek_buf *got, const char *want, const char *file, int line)
{
    bool same = got->len == strlen(want) && !memcmp(ek_buf_text(got), want, got->len);
    if (!same) {
        printf("%s:%d\n  want %s\n  got  %s\n", file, line, want, ek_buf_text(got));
        fail();
    }
    ek_buf_fini(got);
}
