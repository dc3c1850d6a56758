#include "template_gets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "chat/order.h"
#include "text/json/json.h"

void template_gets(ek_api_request *r, const char *want)
{
    ek_buf got = {0};
    bool mark;
    json_t *v;
    if (ek_template_messages(&v, &r->conversation, &mark)) fail_msg("%s", ek_err_text());
    ek_json_write(&got, v);
    assert_string_equal(got.data, want);
    json_decref(v);
    ek_buf_fini(&got);
    ek_api_request_fini(r);
}
