/* One answer, or a chat. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/turn.h"
#include "text/json.h"

static volatile int interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* Ctrl-C ends an answer or an input line, not the program; reads return early for it. */
static void catch_interrupts(void)
{
    struct sigaction act = {.sa_handler = on_interrupt};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
}

/* A line without its end, to be freed; NULL at the end of input. Ctrl-C gives an empty line. */
static char *read_line(const char *prompt)
{
    if (isatty(STDIN_FILENO)) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    char *line = NULL;
    size_t cap = 0;
    interrupted = 0;
    errno = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        if (!(errno == EINTR && interrupted)) return NULL;
        clearerr(stdin);
        putchar('\n');
        return ek_strdup("");
    }
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = '\0';
    return line;
}

static void print_calls(const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = ek_json_get(json_array_get(calls, i), "function");
        printf("%s(%s)\n", json_string_value(ek_json_get(f, "name")), json_string_value(ek_json_get(f, "arguments")));
    }
}

/* The person at the keyboard plays the tools. false at the end of input. */
static bool ask_results(ek_talk *t, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        ek_buf prompt = {0};
        ek_buf_fmt(&prompt, "result of %s> ", json_string_value(ek_json_get(ek_json_get(call, "function"), "name")));
        char *line = read_line(ek_buf_text(&prompt));
        ek_buf_fini(&prompt);
        if (!line) return false;
        ek_talk_say(t, "tool", line, json_string_value(ek_json_get(call, "id")));
        free(line);
    }
    return true;
}

/* Answers until no call waits for a result. */
static ek_err answer(ek_talk *t, bool chat)
{
    for (;;) {
        interrupted = 0;
        json_t *calls;
        EK_TRY(ek_talk_answer(t, &interrupted, &calls));
        putchar('\n');
        print_calls(calls);
        fflush(stdout);
        bool more = chat && json_array_size(calls) > 0 && ask_results(t, calls);
        json_decref(calls);
        if (!more) return EK_OK;
    }
}

static void help(void)
{
    puts("  /help         this text\n"
         "  /reset        forgets the conversation\n"
         "  /think        thinking before answers on or off\n"
         "  /tools FILE   tools the model may call: a JSON list as in the API\n"
         "  /quit         ends, as Ctrl-D does; Ctrl-C stops an answer");
}

/* false: end. */
static bool command(ek_talk *t, const char *line)
{
    const char *arg = strchr(line, ' ');
    size_t n = arg ? (size_t)(arg - line) : strlen(line);
    while (arg && *arg == ' ') arg++;
    bool has_arg = arg && *arg;
    if (n == 5 && !strncmp(line, "/quit", n)) return false;
    if (n == 5 && !strncmp(line, "/help", n)) {
        help();
    } else if (n == 6 && !strncmp(line, "/reset", n)) {
        ek_talk_reset(t);
        puts("the conversation is forgotten");
    } else if (n == 6 && !strncmp(line, "/think", n)) {
        t->think = !t->think;
        printf("thinking is %s\n", t->think ? "on" : "off");
    } else if (n == 6 && !strncmp(line, "/tools", n) && has_arg) {
        if (ek_talk_tools(t, arg)) printf("%s\n", ek_err_text());
        else printf("%zu tools\n", json_array_size(t->tools));
    } else if (n == 6 && !strncmp(line, "/image", n)) {
        puts("this build takes text only; images come with the vision tower");
    } else {
        printf("%.*s is not a command here, or lacks its argument; /help lists them\n", (int)n, line);
    }
    return true;
}

/* A failed answer ends the answer, not the chat; what was asked is taken back. */
static int chat(ek_talk *t)
{
    if (isatty(STDIN_FILENO)) puts("/help lists the commands; Ctrl-D ends");
    for (char *line; (line = read_line("> ")); free(line)) {
        if (!*line) continue;
        if (*line == '/') {
            bool more = command(t, line);
            if (more) continue;
            free(line);
            return 0;
        }
        size_t before = json_array_size(t->messages);
        ek_talk_say(t, "user", line, NULL);
        if (answer(t, true)) {
            if (ferror(stdout)) {
                free(line);
                return ek_cli_failed(t->cli);
            }
            printf("%s\n", ek_err_text());
            while (json_array_size(t->messages) > before)
                json_array_remove(t->messages, json_array_size(t->messages) - 1);
        }
    }
    return 0;
}

int ek_cmd_run(const ek_cli *cli)
{
    ek_talk t;
    int status;
    if (ek_talk_open(&t, cli)) {
        status = ek_cli_failed(cli);
    } else if (cli->arg) {
        catch_interrupts();
        ek_talk_say(&t, "user", cli->arg, NULL);
        status = answer(&t, false) ? ek_cli_failed(cli) : interrupted ? 130 : 0;
    } else {
        catch_interrupts();
        status = chat(&t);
    }
    ek_talk_close(&t);
    return status;
}
