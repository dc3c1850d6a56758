#include "cli/run/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/near.h"
#include "cli/frame/table.h"
#include "cli/frame/hub.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "text/json/json.h"

static void say_error(void)
{
    printf("%s\n", ek_err_text());
}

/* ------------------------------------------------------------------ the conversation */

static void do_reset(ek_chat *c, const char *arg)
{
    (void)arg;
    ek_dialogue_reset(c->d);
    puts("the conversation is forgotten");
}

static void do_system(ek_chat *c, const char *arg)
{
    if (*arg && strcmp(arg, "\"\"") != 0) {
        ek_dialogue_system(c->d, arg);
        puts("the system message is set");
    } else if (*arg) {
        ek_dialogue_system(c->d, NULL);
        puts("there is no system message any more");
    } else if (c->d->system) {
        ek_cli_put_answer(stdout, c->d->system, strlen(c->d->system));
        puts("");
    } else {
        puts("there is no system message; /system TEXT sets one");
    }
}

static void do_save(ek_chat *c, const char *arg)
{
    int n;
    ek_buf path = {0};
    ek_typed_path(&path, arg);
    if (!*arg) puts("/save FILE: the name of a file is needed");
    else if (ek_chat_save(c->d, ek_buf_text(&path), &n)) say_error();
    else printf("%d message%s saved\n", n, n == 1 ? "" : "s");
    ek_buf_fini(&path);
}

static void do_load(ek_chat *c, const char *arg)
{
    int n;
    ek_buf path = {0};
    ek_typed_path(&path, arg);
    if (!*arg) puts("/load FILE: the name of a file is needed, one of /save or a request of the chat API");
    else if (ek_chat_load(c->d, ek_buf_text(&path), &n)) say_error();
    else printf("%d message%s loaded; the conversation goes on behind them\n", n, n == 1 ? "" : "s");
    ek_buf_fini(&path);
}

/* --- settings of answers --- */

static void do_think(ek_chat *c, const char *arg)
{
    if (*arg && strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0) {
        puts("/think, /think on or /think off is needed");
        return;
    }
    c->d->think = *arg ? !strcmp(arg, "on") : !c->d->think;
    printf("thinking is %s\n", c->d->think ? "on" : "off");
}

static void do_thoughts(ek_chat *c, const char *arg)
{
    (void)arg;
    const ek_buf *t = &c->d->thought;
    if (!t->len) puts("nothing was thought; /think turns it on");
    else ek_cli_put_answer(stdout, t->data, t->len), puts("");
}

static const char *const settings[] = {"temperature",        "top_k", "top_p",     "min_p",
                                       "repetition_penalty", "seed",  "max_tokens"};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void show_settings(const ek_chat *c)
{
    const ek_cli *cli = c->d->cli;
    const ek_sampling s = ek_cli_sampling(cli, ek_model_config(c->d->m.model));
    printf("temperature %g\ntop_k %d\ntop_p %g\nmin_p %g\nrepetition_penalty %g\nseed %llu\n", (double)s.temperature,
           s.top_k, (double)s.top_p, (double)s.min_p, (double)s.repetition_penalty, (unsigned long long)s.seed);
    if (cli->has.max_tokens) printf("max_tokens %lld\n", (long long)cli->max_tokens);
    else puts("max_tokens: the rest of the context");
    puts("/set NAME VALUE changes one, /set NAME default takes it back");
}

const char *ek_chat_setting(int i)
{
    return i < N_SETTINGS ? settings[i] : NULL;
}

/* The table's name of a setting that is written with dashes or underscores; NULL, with a guess in *near, if there is
 * none. */
static const char *setting_of(const char *word, size_t n, const char **near)
{
    char name[40];
    int best = 4;
    *near = NULL;
    if (n >= sizeof name) return NULL;
    for (size_t i = 0; i < n; i++) name[i] = word[i] == '-' ? '_' : word[i];
    name[n] = '\0';
    for (int i = 0; i < N_SETTINGS; i++) {
        int far = ek_distance(name, n, settings[i], strlen(settings[i]));
        if (far == 0) return settings[i];
        if (far < best || (n >= 3 && !strncmp(settings[i], name, n))) best = far, *near = settings[i];
    }
    return NULL;
}

static void do_set(ek_chat *c, const char *arg)
{
    const char *near;
    size_t n = strcspn(arg, " =");
    if (!*arg) {
        show_settings(c);
        return;
    }
    const char *value = arg + n + strspn(arg + n, " =");
    const char *name = setting_of(arg, n, &near);
    ek_buf foreign = {0};
    char line[160];
    snprintf(line, sizeof line, "/set %.150s", arg);
    if (!name && ek_cli_foreign(&foreign, EK_FOREIGN_LINE, line, strlen(line))) puts(ek_buf_text(&foreign));
    else if (!name && near) printf("%.*s is no setting; did you mean %s?\n", n < 40 ? (int)n : 40, arg, near);
    else if (!name) printf("%.*s is no setting; /set lists them\n", n < 40 ? (int)n : 40, arg);
    else if (!*value) printf("/set %s: a value is needed, or default\n", name);
    else if (ek_cli_set(&c->d->options, name, !strcmp(value, "default") ? NULL : value)) say_error();
    else printf("%s is %s\n", name, !strcmp(value, "default") ? "the model's own again" : value);
    ek_buf_fini(&foreign);
}

/* Prints all figures of the last answer. */
static void show_stats(const ek_dialogue *d)
{
    const ek_dialogue_stats *s = &d->stats;
    const double rest = s->all - s->first;
    if (!s->n_prompt) {
        puts("nothing was answered yet");
        return;
    }
    printf("reply    %d token%s", s->n_tokens, s->n_tokens == 1 ? "" : "s");
    if (s->n_tokens > 1 && rest > 0) printf(", %.1f tokens/s", (s->n_tokens - 1) / rest);
    printf("\nprompt   %d tokens, %d from the cache, first token after %.2f s", s->n_prompt, s->n_cached, s->first);
    if (s->n_prompt > s->n_cached && s->first > 0) printf(", %.1f tokens/s", (s->n_prompt - s->n_cached) / s->first);
    printf("\ncontext  %d of %d\n", s->n_prompt + s->n_tokens, ek_engine_ctx(d->m.engine));
}

static void do_stats(ek_chat *c, const char *arg)
{
    if (!*arg) {
        show_stats(c->d);
        return;
    }
    if (strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0) {
        puts("/stats, /stats on or /stats off is needed");
        return;
    }
    c->stats = !strcmp(arg, "on");
    printf("the speed of answers is %s\n", c->stats ? "shown" : "not shown");
}

/* --- the model and its input --- */

static void do_model(ek_chat *c, const char *arg)
{
    ek_dialogue *d = c->d;
    bool lost = false;
    char where[640];
    ek_buf name_or_path = {0};
    ek_typed_path(&name_or_path, arg);
    const bool failed = *arg &&
                        ek_dialogue_model(d, !strcmp(arg, "bundled") ? NULL : ek_buf_text(&name_or_path), &lost);
    ek_buf_fini(&name_or_path);
    if (failed) say_error();
    if (lost) {
        puts("the model that was open cannot be opened again");
        c->ended = true;
        c->status = 1;
        return;
    }
    char *name = ek_cli_model_name(d->cli, d->m.path);
    ek_cli_where(where, sizeof where, d->cli, &d->m);
    if (failed) printf("still ");
    ek_cli_put(stdout, name);
    printf(" %s, context %d, in ", where, ek_engine_ctx(d->m.engine));
    ek_cli_put(stdout, d->m.path);
    puts("");
    free(name);
}

static void list_tools(const ek_dialogue *d)
{
    size_t n = json_array_size(d->tools);
    printf("%zu tool%s: ", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        const char *name = ek_json_get_text(ek_json_get(json_array_get(d->tools, i), "function"), "name", NULL);
        printf("%s", i ? ", " : "");
        ek_cli_put(stdout, name ? name : "?");
    }
    puts("");
}

static ek_err read_tools(ek_dialogue *d, const char *arg)
{
    ek_buf path = {0};
    ek_typed_path(&path, arg);
    const ek_err err = ek_dialogue_tools(d, ek_buf_text(&path));
    ek_buf_fini(&path);
    return err;
}

static void do_tools(ek_chat *c, const char *arg)
{
    if (!strcmp(arg, "off")) {
        ek_dialogue_tools(c->d, NULL);
        puts("there are no tools any more");
    } else if (*arg && read_tools(c->d, arg)) {
        say_error();
    } else if (c->d->tools) {
        list_tools(c->d);
        if (*arg) puts("the model may call them; you are asked for each result");
    } else {
        puts("there are no tools; /tools FILE reads some: a JSON list as in the API's `tools`");
    }
}

static void attach_one(ek_chat *c, ek_part_kind kind, const char *path)
{
    ek_buf says = {0};
    if (ek_dialogue_attach(c->d, kind, path, &says)) say_error();
    else ek_cli_put(stdout, ek_buf_text(&says)), puts(": it goes with the next message");
    ek_buf_fini(&says);
}

/* Attaches one file, or several that were dragged together. */
static void attach(ek_chat *c, ek_part_kind kind, const char *arg)
{
    static const char *const name[] = {"image", "video", "audio"};
    ek_buf whole = {0};
    ek_typed_path(&whole, arg);
    if (ek_dialogue_takes(c->d, kind)) say_error();
    else if (!*arg) printf("/%s FILE: the name of a file is needed\n", name[kind]);
    else if (access(ek_buf_text(&whole), F_OK) == 0 || !arg[ek_typed_word(arg)])
        attach_one(c, kind, ek_buf_text(&whole));
    else
        for (size_t n; (n = ek_typed_word(arg)); arg += n + strspn(arg + n, " \t\n")) {
            ek_buf word = {0}, path = {0};
            ek_buf_add(&word, arg, n);
            ek_typed_path(&path, ek_buf_text(&word));
            attach_one(c, kind, ek_buf_text(&path));
            ek_buf_fini(&word), ek_buf_fini(&path);
        }
    ek_buf_fini(&whole);
}

static void do_image(ek_chat *c, const char *arg)
{
    attach(c, EK_PART_IMAGE, arg);
}

static void do_audio(ek_chat *c, const char *arg)
{
    attach(c, EK_PART_SOUND, arg);
}

static void do_video(ek_chat *c, const char *arg)
{
    attach(c, EK_PART_FRAME, arg);
}

static void do_quit(ek_chat *c, const char *arg)
{
    (void)arg;
    c->ended = true;
}

/* ------------------------------------------------------------------ the table */

static void do_help(ek_chat *c, const char *arg);

static const struct {
    const char *name, *args;
    void (*run)(ek_chat *c, const char *arg);
    const char *text; /* NULL: another name of the row before */
} commands[] = {
    {"help", "", do_help, "this text"},
    {"?", "", do_help, NULL},
    {"system", "[TEXT]", do_system, "sets the system message; without TEXT shows it, with \"\" removes it"},
    {"set", "[NAME VALUE]", do_set, "temperature, top_k, top_p, min_p, repetition_penalty, seed, max_tokens"},
    {"think", "[on|off]", do_think, "thinking before answers"},
    {"thoughts", "", do_thoughts, "shows the thought before the last answer"},
    {"tools", "[FILE|off]", do_tools, "tools the model may call: a JSON list as in the API"},
    {"image", "FILE", do_image, "a picture, or the pages of a PDF, for the next message"},
    {"audio", "FILE", do_audio, "a sound for the next message"},
    {"video", "FILE", do_video, "a video for the next message, with --ffmpeg"},
    {"model", "[NAME]", do_model, "shows the model; with NAME continues the conversation with another one"},
    {"save", "FILE", do_save, "writes the conversation to a file, as a request of the chat API"},
    {"load", "FILE", do_load, "continues a saved conversation"},
    {"reset", "", do_reset, "forgets the conversation"},
    {"clear", "", do_reset, NULL},
    {"stats", "[on|off]", do_stats, "all figures of the last answer; on, off: two after each answer"},
    {"quit", "", do_quit, "ends, as Ctrl-D does; Ctrl-C stops an answer"},
    {"exit", "", do_quit, NULL},
    {"bye", "", do_quit, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void do_help(ek_chat *c, const char *arg)
{
    (void)c, (void)arg;
    for (int i = 0; i < N_COMMANDS; i++) {
        char head[40];
        if (!commands[i].text) continue;
        snprintf(head, sizeof head, "/%s %s", commands[i].name, commands[i].args);
        printf("  %-20s %s\n", head, commands[i].text);
    }
    puts("  \"\"\"                  begins and ends a message of several lines; a pasted block is one message\n"
         "A line that begins with a blank is a message, even if a slash follows.");
}

static void unknown(const char *word, size_t n)
{
    const char *near = NULL;
    int best = 3;
    for (int i = 0; i < N_COMMANDS; i++) {
        int far = ek_distance(word, n, commands[i].name, strlen(commands[i].name));
        if (n >= 3 && !strncmp(commands[i].name, word, n)) far = 0;
        if (far < best && far < (int)n) best = far, near = commands[i].name;
    }
    ek_buf foreign = {0};
    char line[160];
    snprintf(line, sizeof line, "/%.150s", word);
    if (ek_cli_foreign(&foreign, EK_FOREIGN_LINE, line, strlen(line))) {
        ek_cli_put(stdout, ek_buf_text(&foreign));
        puts("");
        ek_buf_fini(&foreign);
        return;
    }
    if (memchr(word, '/', n)) {
        printf("there is no such file: ");
        ek_cli_put(stdout, line);
        puts("");
        return;
    }
    printf("/");
    char text[48];
    snprintf(text, sizeof text, "%.*s", n < 40 ? (int)n : 40, word);
    ek_cli_put(stdout, text);
    if (near) printf(" is not a command here; did you mean /%s? /help lists them\n", near);
    else printf(" is not a command here; /help lists them\n");
}

static int index_of(const char *line)
{
    const size_t n = strcspn(line + 1, " \t\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == n && !strncmp(line + 1, commands[i].name, n)) return i;
    return -1;
}

const char *ek_chat_name(int i)
{
    return i < N_COMMANDS ? commands[i].name : NULL;
}

bool ek_chat_knows(const char *line)
{
    return index_of(line) >= 0;
}

void ek_chat_command(ek_chat *c, const char *line)
{
    const char *word = line + 1;
    size_t n = strcspn(word, " \t\n");
    const char *arg = word + n + strspn(word + n, " \t\n");
    char *copy = ek_strdup(arg);
    for (size_t end = strlen(copy); end && strchr(" \t\n", copy[end - 1]); end--) copy[end - 1] = '\0';
    int i = index_of(line);
    if (i >= 0) commands[i].run(c, copy);
    else unknown(word, n);
    free(copy);
}
