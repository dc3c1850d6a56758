/* run: one answer, or a chat. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/run/dialogue.h"
#include "cli/frame/put.h"
#include "text/json/json.h"

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
        ek_cli_put(stdout, prompt); /* with a name that the model wrote */
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

/* The next call of the last message, from block *i on; NULL without. */
static const ek_block *next_call(const ek_dialogue *d, int message, int *i)
{
    const ek_message *m = &d->history.messages[message];
    while (*i < m->n_blocks)
        if (m->blocks[(*i)++].kind == EK_BLOCK_CALL) return &m->blocks[*i - 1];
    return NULL;
}

static int print_calls(const ek_dialogue *d)
{
    const ek_block *call;
    int n = 0;
    for (int i = 0; (call = next_call(d, d->history.n_messages - 1, &i)); n++) {
        ek_buf b = {0};
        ek_json_write(&b, call->value);
        ek_cli_put(stdout, ek_buf_text(&call->name));
        putchar('(');
        ek_cli_put(stdout, ek_buf_text(&b));
        puts(")");
        ek_buf_fini(&b);
    }
    return n;
}

/* The person at the keyboard plays the tools. false at the end of input. */
static bool ask_results(ek_dialogue *d)
{
    const int message = d->history.n_messages - 1;
    const ek_block *call;
    for (int i = 0; (call = next_call(d, message, &i));) {
        ek_buf prompt = {0};
        ek_buf_fmt(&prompt, "result of %s> ", ek_buf_text(&call->name));
        char *line = read_line(ek_buf_text(&prompt));
        ek_buf_fini(&prompt);
        if (!line) return false;
        ek_dialogue_add(d, EK_ROLE_TOOL, line, call);
        free(line);
    }
    return true;
}

/* Answers until no call waits for a result. */
static ek_err answer(ek_dialogue *d, bool chat)
{
    for (;;) {
        interrupted = 0;
        EK_TRY(ek_dialogue_answer(d, &interrupted));
        putchar('\n');
        int n_calls = print_calls(d);
        fflush(stdout);
        if (!chat || n_calls == 0 || !ask_results(d)) return EK_OK;
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
static bool command(ek_dialogue *d, const char *line)
{
    const char *arg = strchr(line, ' ');
    size_t n = arg ? (size_t)(arg - line) : strlen(line);
    while (arg && *arg == ' ') arg++;
    bool has_arg = arg && *arg;
    if (n == 5 && !strncmp(line, "/quit", n)) return false;
    if (n == 5 && !strncmp(line, "/help", n)) {
        help();
    } else if (n == 6 && !strncmp(line, "/reset", n)) {
        ek_dialogue_reset(d);
        puts("the conversation is forgotten");
    } else if (n == 6 && !strncmp(line, "/think", n)) {
        d->think = !d->think;
        printf("thinking is %s\n", d->think ? "on" : "off");
    } else if (n == 6 && !strncmp(line, "/tools", n) && has_arg) {
        if (ek_dialogue_tools(d, arg)) printf("%s\n", ek_err_text());
        else printf("%zu tools\n", json_array_size(d->tools));
    } else if (n == 6 && !strncmp(line, "/image", n)) {
        puts("this build takes text only; images come with the vision tower");
    } else {
        printf("%.*s is not a command here, or lacks its argument; /help lists them\n", (int)n, line);
    }
    return true;
}

/* A failed answer ends the answer, not the chat; what was asked is taken back. */
static int chat(ek_dialogue *d)
{
    if (isatty(STDIN_FILENO)) puts("/help lists the commands; Ctrl-D ends");
    for (char *line; (line = read_line("> ")); free(line)) {
        if (!*line) continue;
        if (*line == '/') {
            bool more = command(d, line);
            if (more) continue;
            free(line);
            return 0;
        }
        int before = d->history.n_messages;
        ek_dialogue_add(d, EK_ROLE_USER, line, NULL);
        if (answer(d, true)) {
            if (ferror(stdout)) {
                free(line);
                return ek_cli_failed(d->cli);
            }
            printf("%s\n", ek_err_text());
            ek_conversation_cut(&d->history, before);
        }
    }
    if (!ferror(stdin)) return 0;
    ek_fail(EK_EIO, "standard input: %s", strerror(errno));
    return ek_cli_failed(d->cli);
}

int ek_cmd_run(const ek_cli *cli)
{
    ek_dialogue d;
    int status;
    ek_err err = ek_dialogue_open(&d, cli);
    if (err) {
        status = ek_cli_refused(cli, err);
    } else if (cli->arg) {
        catch_interrupts();
        ek_dialogue_add(&d, EK_ROLE_USER, cli->arg, NULL);
        status = answer(&d, false) ? ek_cli_failed(cli) : interrupted ? 130 : 0;
    } else {
        catch_interrupts();
        status = chat(&d);
    }
    ek_dialogue_close(&d);
    return status;
}
