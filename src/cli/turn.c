#include "cli/turn.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "text/json.h"
#include "text/utf8.h"

enum { MOST_TOOLS_BYTES = 16 << 20 };

ek_err ek_talk_tools(ek_talk *t, const char *path)
{
    json_t *v;
    EK_TRY(ek_json_read_file(&v, path, MOST_TOOLS_BYTES));
    bool ok = json_is_array(v);
    for (size_t i = 0; ok && i < json_array_size(v); i++)
        ok = ek_json_get_text(ek_json_get(json_array_get(v, i), "function"), "name", NULL) != NULL;
    if (!ok) {
        json_decref(v);
        return ek_fail(EK_EFORMAT, "%s: a JSON list of {\"type\": \"function\", \"function\": {\"name\": …}} is needed",
                       path);
    }
    json_decref(t->tools);
    t->tools = v;
    return EK_OK;
}

void ek_talk_say(ek_talk *t, const char *role, const char *text, const char *call_id)
{
    ek_buf clean = {0};
    ek_utf8_clean(&clean, text, strlen(text));
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", json_stringn(ek_buf_text(&clean), clean.len));
    if (call_id) json_object_set_new(m, "tool_call_id", json_string(call_id));
    json_array_append_new(t->messages, m);
    ek_buf_fini(&clean);
}

void ek_talk_reset(ek_talk *t)
{
    json_array_clear(t->messages);
    if (t->cli->has.system) ek_talk_say(t, "system", t->cli->system, NULL);
}

ek_err ek_talk_open(ek_talk *t, const ek_cli *cli)
{
    *t = (ek_talk){.cli = cli, .think = cli->think};
    t->messages = json_array();
    ek_talk_reset(t);
    if (cli->has.tools) EK_TRY(ek_talk_tools(t, cli->tools));
    const char *dir;
    EK_TRY(ek_cli_model_dir(cli, &dir));
    EK_TRY(ek_tokenizer_open(&t->tokenizer, dir));
    ek_marks_find(&t->marks, t->tokenizer);
    EK_TRY(ek_chat_variant_of(&t->variant, dir));
    return ek_cli_open_engine(&t->m, cli, 1, 1);
}

void ek_talk_close(ek_talk *t)
{
    ek_cli_close_model(&t->m);
    if (t->tokenizer) ek_tokenizer_close(t->tokenizer);
    json_decref(t->messages);
    json_decref(t->tools);
}

/* One answer on its way. */
typedef struct answering {
    ek_talk *t;
    ek_reply *reply;
    ek_answer answer;
    ek_finish finish;
    ek_err err;
    bool thinking; /* reasoning was printed and not yet closed by a line end */
    bool closed;   /* standard output does not take more */
} answering;

static void end_thought(answering *a)
{
    if (a->thinking) fputs(isatty(STDERR_FILENO) ? "\033[0m\n" : "\n", stderr);
    a->thinking = false;
}

static void on_reply(void *arg, const ek_reply_event *e)
{
    answering *a = arg;
    ek_reply_collect(&a->answer, e);
    if (e->kind == EK_REPLY_REASONING) {
        if (!a->thinking && isatty(STDERR_FILENO)) fputs("\033[2m", stderr);
        a->thinking = true;
        fwrite(e->text, 1, e->n, stderr);
    } else if (e->kind == EK_REPLY_CONTENT) {
        end_thought(a);
        if (fwrite(e->text, 1, e->n, stdout) != e->n || fflush(stdout)) a->closed = true;
    }
}

static void on_event(void *arg, const ek_event *e)
{
    answering *a = arg;
    if (e->token >= 0 && e->finish != EK_FINISH_STOP) ek_reply_feed(a->reply, e->token);
    if (e->finish == EK_FINISH_ERROR) a->err = ek_fail(e->err, "%s", e->text ? e->text : "the answer failed");
    a->finish = e->finish;
}

static ek_sampling sampling_of(const ek_talk *t, ek_logit_bias *no_call)
{
    const ek_cli *cli = t->cli;
    const ek_config *config = ek_model_config(t->m.model);
    ek_sampling s = ek_sampling_greedy();
    s.temperature = cli->has.temperature ? (float)cli->temperature : config->temperature;
    s.top_k = cli->has.top_k ? (int)cli->top_k : config->top_k;
    s.top_p = cli->has.top_p ? (float)cli->top_p : config->top_p;
    s.min_p = (float)cli->min_p;
    s.repetition_penalty = (float)cli->repetition_penalty;
    s.seed = (uint64_t)cli->seed;
    *no_call = (ek_logit_bias){t->marks.id[EK_MARK_CALL_OPEN], -INFINITY};
    if (!t->tools && no_call->token >= 0) {
        s.bias = no_call;
        s.n_bias = 1;
    }
    return s;
}

static ek_err make_prompt(ek_talk *t, ek_ids *ids)
{
    ek_chat_opts opts = {.variant = t->variant, .add_generation_prompt = true, .enable_thinking = t->think};
    json_t *prepared;
    bool asked = false;
    EK_TRY(ek_chat_prepare(&prepared, t->messages, &asked));
    opts.enable_thinking |= asked;
    ek_prompt p = {0};
    ek_err err = ek_chat_render(&p, prepared, t->tools, &opts);
    if (!err) err = ek_encode(t->tokenizer, ek_buf_text(&p.text), p.text.len, p.control, p.n_control, ids);
    ek_prompt_fini(&p);
    json_decref(prepared);
    return err;
}

static ek_err generate(answering *a, const ek_ids *ids, const volatile int *stop)
{
    ek_talk *t = a->t;
    ek_logit_bias no_call;
    ek_request_opts r = {
        .tokens = ids->data,
        .n_tokens = (int)ids->len,
        .sampling = sampling_of(t, &no_call),
        .sink = on_event,
        .arg = a,
        .max_tokens = t->cli->has.max_tokens && t->cli->max_tokens < INT_MAX ? (int)t->cli->max_tokens : INT_MAX,
        .prompt_logits_from = (int)ids->len,
    };
    ek_request_id id;
    EK_TRY(ek_engine_submit(t->m.engine, &r, &id));
    while (a->finish == EK_FINISH_NONE) {
        if (*stop || a->closed || ek_reply_stopped(a->reply)) ek_engine_cancel(t->m.engine, id);
        ek_engine_step(t->m.engine);
    }
    ek_reply_end(a->reply, a->finish == EK_FINISH_LENGTH || a->finish == EK_FINISH_CANCELLED);
    end_thought(a);
    if (a->closed) return ek_fail(EK_EIO, "standard output could not be written");
    return a->err;
}

/* The calls as the API gives them; ids pair them with their results. */
static json_t *calls_of(const ek_talk *t, const ek_answer *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->n_calls; i++) {
        char id[32], request[32];
        snprintf(request, sizeof request, "%zu", json_array_size(t->messages));
        ek_call_id(id, "call_", request, i);
        json_t *call = json_object(), *f = json_object();
        json_object_set_new(f, "name", json_string(a->calls[i].name));
        json_object_set_new(f, "arguments", json_stringn(ek_buf_text(&a->calls[i].args), a->calls[i].args.len));
        json_object_set_new(call, "id", json_string(id));
        json_object_set_new(call, "type", json_string("function"));
        json_object_set_new(call, "function", f);
        json_array_append_new(list, call);
    }
    return list;
}

static void remember(ek_talk *t, const ek_answer *a, json_t *calls)
{
    ek_talk_say(t, "assistant", ek_buf_text(&a->content), NULL);
    json_t *m = json_array_get(t->messages, json_array_size(t->messages) - 1);
    if (a->reasoning.len > 0)
        json_object_set_new(m, "reasoning_content", json_stringn(a->reasoning.data, a->reasoning.len));
    if (json_array_size(calls) > 0) json_object_set(m, "tool_calls", calls);
}

ek_err ek_talk_answer(ek_talk *t, const volatile int *stop, json_t **calls)
{
    *calls = NULL;
    answering a = {.t = t};
    ek_ids ids = {0};
    ek_reply_opts opts = {
        .tools_active = t->tools != NULL, .lenient_start = t->think, .tools = t->tools, .sink = on_reply, .arg = &a};
    ek_err err = make_prompt(t, &ids);
    if (!err) {
        a.reply = ek_reply_open(t->tokenizer, &opts);
        ek_reply_start(a.reply, ids.data, ids.len);
        err = generate(&a, &ids, stop);
        ek_reply_close(a.reply);
    }
    if (!err) {
        *calls = calls_of(t, &a.answer);
        remember(t, &a.answer, *calls);
    }
    ek_answer_fini(&a.answer);
    ek_ids_fini(&ids);
    return err;
}
