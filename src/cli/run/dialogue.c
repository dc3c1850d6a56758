#include "cli/run/dialogue.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "chat/turn.h"
#include "cli/frame/hub.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "text/json/json.h"
#include "text/utf8.h"

enum { MAX_TOOLS_BYTES = 16 << 20 };

static ek_err wrong_tools(const char *path, size_t i, const char *what)
{
    return ek_fail(EK_EFORMAT,
                   "%s: tool %zu: %s; as in the API a tool is {\"type\": \"function\", \"function\": "
                   "{\"name\": \"…\", \"description\": \"…\", \"parameters\": {…}}}",
                   path, i + 1, what);
}

ek_err ek_dialogue_tools(ek_dialogue *d, const char *path)
{
    json_t *v = NULL;
    ek_err err = EK_OK;
    if (path) EK_TRY(ek_json_read_file(&v, path, MAX_TOOLS_BYTES));
    if (v && !json_is_array(v))
        err = ek_fail(EK_EFORMAT, "%s: a JSON list of {\"type\": \"function\", \"function\": {\"name\": …}} is needed",
                      path);
    for (size_t i = 0; !err && i < json_array_size(v); i++) {
        const json_t *tool = json_array_get(v, i), *f = ek_json_get(tool, "function");
        if (!json_is_object(tool)) err = wrong_tools(path, i, "it is no object");
        else if (!json_is_object(f)) err = wrong_tools(path, i, "it has no object function");
        else if (!ek_json_get_text(f, "name", NULL)) err = wrong_tools(path, i, "its function has no name");
    }
    if (err) {
        json_decref(v);
        return err;
    }
    json_decref(d->tools);
    d->tools = v;
    return EK_OK;
}

void ek_dialogue_add(ek_dialogue *d, ek_role role, const char *text, const ek_block *call)
{
    /* call may point into the history, which moves when a message is added, so its texts are copied first. */
    ek_buf id = {0}, name = {0};
    if (call) {
        ek_buf_add(&id, ek_buf_text(&call->id), call->id.len);
        ek_buf_add(&name, ek_buf_text(&call->name), call->name.len);
    }
    if (role == EK_ROLE_USER && d->next.n_blocks > 0) ek_conversation_take(&d->history, &d->next);
    else ek_conversation_add(&d->history, role);
    ek_message *m = &d->history.messages[d->history.n_messages - 1];
    m->role = role;
    m->call_id = id;
    m->name = name;
    ek_utf8_clean(&ek_message_add(m, EK_BLOCK_TEXT)->text, text, strlen(text));
}

void ek_dialogue_reset(ek_dialogue *d)
{
    ek_conversation_cut(&d->history, 0);
    ek_message_fini(&d->next);
    if (d->system) ek_dialogue_add(d, EK_ROLE_SYSTEM, d->system, NULL);
}

/* Moves the first message to the end, or the last one to the beginning. */
static void rotate(ek_conversation *c, bool to_end)
{
    const size_t n = (size_t)c->n_messages;
    const ek_message moved = c->messages[to_end ? 0 : n - 1];
    memmove(c->messages + !to_end, c->messages + to_end, (n - 1) * sizeof moved);
    c->messages[to_end ? n - 1 : 0] = moved;
}

void ek_dialogue_system(ek_dialogue *d, const char *text)
{
    ek_conversation *c = &d->history;
    char *copy = text && *text ? ek_strdup(text) : NULL;
    free(d->system);
    d->system = copy;
    if (c->n_messages && c->messages[0].role == EK_ROLE_SYSTEM) {
        rotate(c, true);
        ek_conversation_cut(c, c->n_messages - 1);
    }
    if (!copy) return;
    ek_dialogue_add(d, EK_ROLE_SYSTEM, copy, NULL);
    rotate(c, false);
}

ek_err ek_dialogue_open(ek_dialogue *d, const ek_cli *cli)
{
    *d = (ek_dialogue){.options = *cli, .think = cli->think};
    d->cli = &d->options;
    if (cli->has.system) d->system = ek_strdup(cli->system);
    ek_dialogue_reset(d);
    if (cli->has.tools) EK_TRY(ek_dialogue_tools(d, cli->tools));
    EK_TRY(ek_cli_ffmpeg(&d->ffmpeg, d->cli));
    EK_TRY(ek_cli_open_engine(&d->m, d->cli, true, 1, 1));
    for (int i = 0; i < cli->image.n; i++) EK_TRY(ek_dialogue_attach(d, EK_PART_IMAGE, cli->image.v[i], NULL));
    for (int i = 0; i < cli->audio.n; i++) EK_TRY(ek_dialogue_attach(d, EK_PART_SOUND, cli->audio.v[i], NULL));
    for (int i = 0; i < cli->video.n; i++) EK_TRY(ek_dialogue_attach(d, EK_PART_FRAME, cli->video.v[i], NULL));
    return EK_OK;
}

void ek_dialogue_close(ek_dialogue *d)
{
    ek_opened_close(&d->m);
    ek_ffmpeg_close(d->ffmpeg);
    free(d->pdftoppm);
    ek_conversation_fini(&d->history);
    ek_message_fini(&d->next);
    json_decref(d->tools);
    ek_buf_fini(&d->thought);
    free(d->system);
    free(d->model);
}

/* Two models may not fit into memory at a time. The open model is closed first, after a check that the other one
 * exists. */
ek_err ek_dialogue_model(ek_dialogue *d, const char *name, bool *lost)
{
    const char *was = d->options.model, *path;
    const bool had = d->options.has.model;
    *lost = false;
    if (name) EK_TRY(ek_cli_find_model(name, &path));
    char *copy = name ? ek_strdup(name) : NULL, *before = d->model;
    ek_opened_close(&d->m);
    d->options.model = d->model = copy;
    d->options.has.model = name != NULL;
    if (ek_cli_open_engine(&d->m, d->cli, true, 1, 1) == EK_OK) {
        free(before);
        return EK_OK;
    }
    char why[1000];
    snprintf(why, sizeof why, "%s", ek_err_text());
    free(copy);
    d->options.model = was, d->options.has.model = had, d->model = before;
    *lost = ek_cli_open_engine(&d->m, d->cli, true, 1, 1) != EK_OK;
    return ek_fail(EK_EINVAL, "%s", why);
}

/* Prints an answer to the terminal. */
typedef struct printer {
    ek_turn *turn;
    ek_dialogue *d;
    ek_wrap content, thoughts;
    bool thinking; /* reasoning was printed, and its line is not ended yet */
    bool reading;  /* the line about reading the prompt is on the screen */
    bool closed;   /* standard output accepts no more text */
    double begun, first, thought_from, shown_at;
} printer;

static const char *dim(const printer *p)
{
    return p->d->look.color ? "\033[2m" : "";
}

static const char *undim(const printer *p)
{
    return p->d->look.color ? "\033[0m" : "";
}

static bool folds(const printer *p)
{
    return p->d->look.control && !p->d->look.whole;
}

/* Shows the end of the thoughts so far in one line, which is rewritten each time. */
static void show_thinking(printer *p)
{
    enum { SHOWN = 200 };
    const int columns = ek_cli_columns(stderr) - 10; /* less "thinks: …" */
    const ek_buf *t = &p->d->thought;
    char part[SHOWN * 6 + 8];
    if (ek_now() - p->shown_at < 0.1) return;
    p->shown_at = ek_now();
    size_t from = t->len > SHOWN ? t->len - SHOWN : 0;
    while (from < t->len && ek_cli_width(t->data + from, t->len - from) > columns) from++;
    while (from < t->len && (t->data[from] & 0xC0) == 0x80) from++;
    char flat[SHOWN + 1];
    size_t n = t->len - from;
    for (size_t i = 0; i < n; i++)
        flat[i] = t->data[from + i] == '\n' || t->data[from + i] == '\t' ? ' ' : t->data[from + i];
    ek_plain(part, sizeof part, flat, n);
    char line[sizeof part + 16];
    snprintf(line, sizeof line, "thinks: %s%s", from ? "…" : "", part);
    ek_cli_status(stderr, dim(p), line, undim(p));
}

static void begin_thought(printer *p)
{
    p->thinking = true;
    p->thought_from = ek_now();
    ek_buf_clear(&p->d->thought);
    if (!folds(p)) fputs(dim(p), stderr);
}

static void end_thought(printer *p)
{
    ek_wrap_end(&p->thoughts, stderr);
    if (p->thinking && folds(p))
        fprintf(stderr, "\r\033[K%sthought for %.1f s, %zu characters; /thoughts shows them%s\n", dim(p),
                ek_now() - p->thought_from, ek_utf8_count(ek_buf_text(&p->d->thought), p->d->thought.len), undim(p));
    else if (p->thinking) fprintf(stderr, "%s\n", undim(p));
    p->thinking = false;
}

/* Shows "reading the prompt, 40 %" if reading takes long. */
static void show_reading(printer *p)
{
    int done, all;
    char line[48];
    const double now = ek_now();
    if (!p->d->look.control || p->first > 0 || now - p->begun < 0.7 || now - p->shown_at < 0.1) return;
    ek_engine_reading(p->d->m.engine, &done, &all);
    p->shown_at = now;
    p->reading = true;
    snprintf(line, sizeof line, "reading the prompt, %d %%", all > 0 ? (int)(100.0 * done / all) : 0);
    ek_cli_status(stderr, dim(p), line, undim(p));
}

static void end_reading(printer *p)
{
    if (p->reading) ek_cli_status_clear(stderr);
    p->reading = false;
}

static void print(void *arg, const ek_reply_event *e)
{
    printer *p = arg;
    end_reading(p);
    if (e->kind == EK_REPLY_REASONING) {
        if (!p->thinking) begin_thought(p);
        ek_buf_add(&p->d->thought, e->text, e->n);
        if (folds(p)) show_thinking(p);
        else ek_wrap_put(&p->thoughts, stderr, e->text, e->n);
    } else if (e->kind == EK_REPLY_CONTENT) {
        end_thought(p);
        p->d->stats.content |= e->n > 0;
        if (!ek_wrap_put(&p->content, stdout, e->text, e->n) || fflush(stdout)) p->closed = true;
    }
}

/* The engine runs in this thread, so its news needs no queue. */
static void on_news(void *arg, const ek_turn_news *news)
{
    printer *p = arg;
    if (p->first == 0 && news->token >= 0) p->first = ek_now();
    ek_turn_feed(p->turn, news);
}

static ek_err generate(ek_dialogue *d, printer *p, const ek_turn_prompt *prompt, const volatile int *stop)
{
    EK_TRY(ek_turn_submit(p->turn, d->m.engine, prompt, on_news, p, NULL));
    while (ek_turn_live(p->turn)) {
        if (*stop || p->closed) ek_turn_cancel(p->turn);
        ek_engine_step(d->m.engine);
        show_reading(p);
    }
    end_reading(p);
    const ek_turn_result *r = ek_turn_result_of(p->turn);
    end_thought(p);
    if (!ek_wrap_end(&p->content, stdout)) p->closed = true;
    d->stats = (ek_dialogue_stats){.content = d->stats.content,
                                   .n_prompt = r->n_prompt,
                                   .n_cached = r->n_cached,
                                   .n_tokens = r->n_tokens,
                                   .first = p->first > 0 ? p->first - p->begun : 0,
                                   .all = ek_now() - p->begun};
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
    printer p = {.d = d, .begun = ek_now()};
    d->stats.content = false;
    EK_TRY(ek_turn_open(&p.turn, &d->m.chat, prompt, &opts, print, &p));
    ek_err err = generate(d, &p, prompt, stop);
    if (!err) {
        char request[32]; /* ids pair calls with their results, so each id occurs once in the history */
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
                           .image_tokens = ek_cli_image_tokens(d->cli, 0),
                           .ctx_tokens = ek_engine_ctx(d->m.engine)};
    ek_turn_prompt prompt = {0};
    ek_err err = ek_turn_prompt_make(&prompt, &d->m.chat, &d->history, d->tools, &opts);
    if (!err) err = answer(d, &prompt, stop);
    ek_turn_prompt_fini(&prompt);
    return err;
}
