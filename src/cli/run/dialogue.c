#include "cli/run/dialogue.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chat/turn.h"
#include "cli/frame/put.h"
#include "cli/frame/sampling.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { MAX_TOOLS_BYTES = 16 << 20 };

ek_err ek_dialogue_tools(ek_dialogue *d, const char *path)
{
    json_t *v;
    EK_TRY(ek_json_read_file(&v, path, MAX_TOOLS_BYTES));
    bool ok = json_is_array(v);
    for (size_t i = 0; ok && i < json_array_size(v); i++)
        ok = ek_json_get_text(ek_json_get(json_array_get(v, i), "function"), "name", NULL) != NULL;
    if (!ok) {
        json_decref(v);
        return ek_fail(EK_EFORMAT, "%s: a JSON list of {\"type\": \"function\", \"function\": {\"name\": …}} is needed",
                       path);
    }
    json_decref(d->tools);
    d->tools = v;
    return EK_OK;
}

void ek_dialogue_add(ek_dialogue *d, ek_role role, const char *text, const ek_block *call)
{
    /* call may point into the history, which moves when a message is added. */
    ek_buf id = {0}, name = {0};
    if (call) {
        ek_buf_add(&id, ek_buf_text(&call->id), call->id.len);
        ek_buf_add(&name, ek_buf_text(&call->name), call->name.len);
    }
    ek_message *m = ek_conversation_add(&d->history, role);
    m->call_id = id;
    m->name = name;
    ek_utf8_clean(&ek_message_add(m, EK_BLOCK_TEXT)->text, text, strlen(text));
}

void ek_dialogue_reset(ek_dialogue *d)
{
    ek_conversation_cut(&d->history, 0);
    if (d->cli->has.system) ek_dialogue_add(d, EK_ROLE_SYSTEM, d->cli->system, NULL);
}

ek_err ek_dialogue_open(ek_dialogue *d, const ek_cli *cli)
{
    *d = (ek_dialogue){.cli = cli, .think = cli->think};
    ek_dialogue_reset(d);
    if (cli->has.tools) EK_TRY(ek_dialogue_tools(d, cli->tools));
    return ek_cli_open_chat(&d->m, cli);
}

void ek_dialogue_close(ek_dialogue *d)
{
    ek_opened_close(&d->m);
    ek_conversation_fini(&d->history);
    json_decref(d->tools);
}

/* An answer on its way to the terminal. */
typedef struct printer {
    ek_turn *turn;
    bool thinking; /* reasoning was printed and not yet closed by a line end */
    bool closed;   /* standard output does not take more */
} printer;

static void end_thought(printer *p)
{
    if (p->thinking) fputs(isatty(STDERR_FILENO) ? "\033[0m\n" : "\n", stderr);
    p->thinking = false;
}

static void print(void *arg, const ek_reply_event *e)
{
    printer *p = arg;
    if (e->kind == EK_REPLY_REASONING) {
        if (!p->thinking && isatty(STDERR_FILENO)) fputs("\033[2m", stderr);
        p->thinking = true;
        ek_cli_put_answer(stderr, e->text, e->n);
    } else if (e->kind == EK_REPLY_CONTENT) {
        end_thought(p);
        if (!ek_cli_put_answer(stdout, e->text, e->n) || fflush(stdout)) p->closed = true;
    }
}

/* The engine runs in this thread: its news need no queue. */
static void on_news(void *arg, const ek_turn_news *news)
{
    const printer *p = arg;
    ek_turn_feed(p->turn, news);
}

static ek_err generate(ek_dialogue *d, printer *p, const ek_turn_prompt *prompt, const volatile int *stop)
{
    EK_TRY(ek_turn_submit(p->turn, d->m.engine, prompt, on_news, p, NULL));
    while (ek_turn_live(p->turn)) {
        if (*stop || p->closed) ek_turn_cancel(p->turn);
        ek_engine_step(d->m.engine);
    }
    const ek_turn_result *r = ek_turn_result_of(p->turn);
    end_thought(p);
    if (p->closed) return ek_fail(EK_EIO, "standard output could not be written");
    return r->end == EK_END_ERROR ? ek_fail(r->err, "%s", r->error) : EK_OK;
}

static ek_err answer(ek_dialogue *d, const ek_turn_prompt *prompt, const volatile int *stop)
{
    const ek_cli *cli = d->cli;
    ek_turn_opts opts = {.tools = d->tools,
                         .tools_active = d->tools != NULL,
                         .max_tokens = cli->has.max_tokens && cli->max_tokens < INT_MAX ? (int)cli->max_tokens
                                                                                        : INT_MAX,
                         .sampling = ek_cli_sampling(cli, ek_model_config(d->m.model))};
    printer p = {0};
    EK_TRY(ek_turn_open(&p.turn, &d->m.chat, prompt, &opts, print, &p));
    ek_err err = generate(d, &p, prompt, stop);
    if (!err) {
        char request[32]; /* ids pair calls with their results; they have to differ within the history */
        snprintf(request, sizeof request, "%d", d->history.n_messages);
        ek_conversation_answer(&d->history, &ek_turn_result_of(p.turn)->answer, request);
    }
    ek_turn_close(p.turn);
    return err;
}

ek_err ek_dialogue_answer(ek_dialogue *d, const volatile int *stop)
{
    ek_prompt_opts opts = {.thinking = d->think ? EK_THINKING_ON : EK_THINKING_UNSET,
                           .add_generation_prompt = true,
                           .ctx_tokens = ek_engine_ctx(d->m.engine)};
    ek_turn_prompt prompt = {0};
    ek_err err = ek_turn_prompt_make(&prompt, &d->m.chat, &d->history, d->tools, &opts);
    if (!err) err = answer(d, &prompt, stop);
    ek_turn_prompt_fini(&prompt);
    return err;
}
