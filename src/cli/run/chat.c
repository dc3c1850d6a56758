#include "cli/run/chat.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/frame/hub.h"
#include "cli/frame/open.h"
#include "cli/frame/terminal.h"
#include "cli/hub/fetch.h"
#include "cli/run/editor.h"
#include "text/json/json.h"

/* ------------------------------------------------------------------ answers */

/* The next call in a message, from block *i on; NULL if there is none. */
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

/* Asks the person for the results of tool calls. False at the end of input, and after Ctrl-C, which leaves the turn. */
static bool ask_results(ek_dialogue *d, ek_editor *editor)
{
    const int message = d->history.n_messages - 1;
    const ek_block *call;
    for (int i = 0; (call = next_call(d, message, &i));) {
        ek_buf prompt = {0};
        ek_buf_fmt(&prompt, "result of %s> ", ek_buf_text(&call->name));
        char *line = ek_editor_read(editor, ek_buf_text(&prompt));
        ek_buf_fini(&prompt);
        if (!line || ek_editor_interrupted) {
            free(line);
            return false;
        }
        ek_dialogue_add(d, EK_ROLE_TOOL, line, call);
        free(line);
    }
    return true;
}

/* Prints two figures, "[31 tokens, 24.5 tokens/s]"; /stats has the others. */
static void print_stats(const ek_dialogue *d)
{
    const ek_dialogue_stats *s = &d->stats;
    const char *dim = d->look.color ? "\033[2m" : "", *undim = d->look.color ? "\033[0m" : "";
    const double rest = s->all - s->first;
    fflush(stdout);
    fprintf(stderr, "%s[%d token%s", dim, s->n_tokens, s->n_tokens == 1 ? "" : "s");
    if (s->n_tokens > 1 && rest > 0) fprintf(stderr, ", %.1f tokens/s", (s->n_tokens - 1) / rest);
    fprintf(stderr, "]%s\n", undim);
}

/* Answers until no call waits for a result. editor NULL: nobody can be asked for results. *left: a result was not
 * given. */
static ek_err answer(ek_dialogue *d, ek_editor *editor, bool stats, bool *left)
{
    *left = false;
    for (;;) {
        int first = 0;
        ek_editor_interrupted = 0;
        EK_TRY(ek_dialogue_answer(d, &ek_editor_interrupted));
        if (d->stats.content || !next_call(d, d->history.n_messages - 1, &first)) putchar('\n');
        int n_calls = print_calls(d);
        if (stats) print_stats(d);
        fflush(stdout);
        if (!editor || n_calls == 0) return EK_OK;
        if (ask_results(d, editor)) continue;
        *left = true;
        return EK_OK;
    }
}

/* Sets colours and progress as the terminal, the options and the environment allow. */
static void look_of(ek_dialogue *d)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    const bool control = isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
    d->look = (ek_look){.control = control,
                        .color = control && !d->cli->no_color && !(no_color && *no_color),
                        .whole = d->cli->show_thoughts};
}

/* One message, one answer. Returns the exit status: 130 after Ctrl-C. */
static int chat_once(ek_dialogue *d, const char *prompt)
{
    ek_editor_catch();
    look_of(d);
    bool left;
    ek_dialogue_add(d, EK_ROLE_USER, prompt, NULL);
    return answer(d, NULL, false, &left) ? ek_cli_failed(d->cli) : ek_editor_interrupted ? 130 : 0;
}

/* ------------------------------------------------------------------ messages */

/* Reads the lines after """ up to the next """. NULL at the end of input; "" after Ctrl-C. */
static char *read_block(ek_editor *editor, const char *first)
{
    ek_buf text = {0};
    const char *end = strstr(first, "\"\"\"");
    ek_buf_add(&text, first, end ? (size_t)(end - first) : strlen(first));
    while (!end) {
        char *line = ek_editor_read(editor, ". ");
        if (!line || ek_editor_interrupted) {
            ek_buf_fini(&text);
            return line;
        }
        end = strstr(line, "\"\"\"");
        if (text.len) ek_buf_char(&text, '\n');
        ek_buf_add(&text, line, end ? (size_t)(end - line) : strlen(line));
        free(line);
    }
    while (text.len && text.data[text.len - 1] == '\n') text.data[--text.len] = '\0';
    char *copy = ek_strdup(ek_buf_text(&text));
    ek_buf_fini(&text);
    return copy;
}

static char *read_line(ek_editor *editor, char **said)
{
    char *line = *said;
    *said = NULL;
    if (!line) return ek_editor_read(editor, "> ");
    fputs("> ", stdout);
    ek_cli_put(stdout, line);
    putchar('\n');
    return line;
}

/* A message or a command; NULL at the end of input. */
static char *read_message(ek_editor *editor, char **said, bool terminal)
{
    char *line = read_line(editor, said);
    if (!line || !terminal || strncmp(line, "\"\"\"", 3) != 0) return line;
    char *block = read_block(editor, line + 3);
    free(line);
    return block;
}

/* Prints what a person has to know to begin. */
static void say_start(const ek_dialogue *d)
{
    char where[640];
    char *name = ek_cli_model_name(d->cli, d->m.path);
    ek_cli_where(where, sizeof where, d->cli, &d->m);
    ek_cli_put(stdout, name);
    printf(" %s, context %d\n/help lists the commands; Ctrl-D ends\n", where, ek_engine_ctx(d->m.engine));
    free(name);
}

/* A failed answer does not end the chat. Its question is taken back, as after Ctrl-C. False: output is no longer
 * possible. */
static bool exchange(ek_chat *c, ek_editor *editor, const char *text)
{
    ek_dialogue *d = c->d;
    const int before = d->history.n_messages;
    bool left;
    ek_dialogue_add(d, EK_ROLE_USER, text, NULL);
    const ek_err err = answer(d, editor, c->stats && d->look.control, &left);
    if (!err && !left) return true;
    if (ferror(stdout)) return false;
    puts(err ? ek_err_text() : "the turn is left, and what was asked in it is forgotten");
    ek_conversation_cut(&d->history, before);
    return true;
}

/* Attaches the files whose paths are in the message; paths alone wait for the next message. */
static bool say(ek_chat *c, ek_editor *editor, const char *line, bool terminal)
{
    ek_buf text = {0};
    if (!terminal) return exchange(c, editor, line);
    const int n = ek_chat_take_media(c->d, stdout, line, &text);
    bool good = true;
    if (n && !text.len) puts(n == 1 ? "it goes with the next message" : "they go with the next message");
    else good = exchange(c, editor, ek_buf_text(&text));
    ek_buf_fini(&text);
    return good;
}

/* Whether a line is a command and not a message: it begins with a slash and is not an existing path, which was dragged
 * here. Several lines are a command only if its name is known. */
static bool is_command(const char *line)
{
    return *line == '/' && (ek_chat_knows(line) || (!strchr(line, '\n') && !ek_typed_is_path(line)));
}

/* The file of typed lines: --history, or one in the user's folder for states. NULL: none. */
static char *history_file(const ek_cli *cli)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    ek_buf path = {0};
    if (cli->has.history && !strcmp(cli->history, "none")) return NULL;
    if (cli->has.history) ek_buf_str(&path, cli->history);
    else if (state && *state == '/') ek_buf_fmt(&path, "%s/evenkeel/history", state);
    else if (home && *home == '/') ek_buf_fmt(&path, "%s/.local/state/evenkeel/history", home);
    char *copy = path.len ? ek_strdup(path.data) : NULL;
    ek_buf_fini(&path);
    return copy;
}

/* Chats until the end of input or /quit. *said: the first line, which was read already and is taken over; NULL: none.
 * Returns the exit status. */
static int chat_run(ek_dialogue *d, char **said)
{
    const bool terminal = isatty(STDIN_FILENO);
    char *history = history_file(d->cli);
    ek_editor *editor = ek_editor_open(history, ek_chat_complete);
    ek_chat c = {.d = d, .stats = terminal && !d->cli->no_stats};
    free(history);
    look_of(d);
    if (terminal) say_start(d);
    bool good = true;
    for (char *line; good && !c.ended && (line = read_message(editor, said, terminal)); free(line)) {
        if (!*line) continue;
        ek_editor_remember(editor, line);
        if (is_command(line)) ek_chat_command(&c, line);
        else good = say(&c, editor, line, terminal);
        fflush(stdout);
    }
    ek_editor_close(editor);
    if (!good) return ek_cli_failed(d->cli);
    if (!ferror(stdin)) return c.status;
    ek_fail(EK_EIO, "standard input: %s", strerror(errno));
    return ek_cli_failed(d->cli);
}

/* --- run: one answer, or a chat --- */

/* Piped input, without the ends of its last lines. A person sees that the program waits for input. */
static ek_err read_input(ek_buf *out)
{
    enum { MAX_INPUT = 64 << 20 };
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (isatty(STDERR_FILENO) && poll(&p, 1, 2000) == 0)
        fputs("reading standard input, which stands before the prompt; </dev/null leaves it out\n", stderr);
    if (ek_fd_read(out, STDIN_FILENO, MAX_INPUT)) return ek_fail_in(EK_EIO, "standard input");
    if (memchr(ek_buf_text(out), '\0', out->len))
        return ek_fail(EK_EINVAL, "standard input is no text: it has a zero byte");
    while (out->len && (out->data[out->len - 1] == '\n' || out->data[out->len - 1] == '\r'))
        out->data[--out->len] = '\0';
    return EK_OK;
}

/* With a prompt on the command line, standard input is read only if it is piped or a file, not if it is a device or
 * closed. */
static bool has_input(const ek_cli *cli)
{
    struct stat st;
    if (cli->lines || isatty(STDIN_FILENO)) return false;
    return !cli->arg ||
           (!fstat(STDIN_FILENO, &st) && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode)));
}

static int run_once(ek_dialogue *d, const ek_cli *cli, ek_buf *input)
{
    ek_buf prompt = {0}, text = {0};
    if (cli->arg) ek_chat_take_media(d, stderr, cli->arg, &prompt);
    ek_buf_add(&text, ek_buf_text(input), input->len);
    if (text.len && prompt.len) ek_buf_str(&text, "\n\n");
    ek_buf_add(&text, ek_buf_text(&prompt), prompt.len);
    const int status = text.len || cli->arg ? chat_once(d, ek_buf_text(&text)) : 0;
    ek_buf_fini(&prompt), ek_buf_fini(&text);
    return status;
}

int ek_cmd_run(const ek_cli *given)
{
    ek_cli options = *given, *cli = &options;
    static ek_dialogue d; /* large */
    ek_buf input = {0};
    const bool piped = has_input(cli);
    char *said = NULL;
    const char *offered = cli->has.model || cli->arg || piped || cli->lines ? NULL : ek_cli_offer(cli, &said);
    if (offered) cli->model = offered, cli->has.model = cli->yes = true; /* the user agreed to the offered model */
    if ((piped && read_input(&input)) || ek_cli_fetch_missing(cli)) return ek_cli_failed(cli);
    ek_err err = ek_dialogue_open(&d, cli);
    if (!err && !cli->has.model)
        fputs("the bundled model answers, which is small and knows no facts; `evenkeel run e2b` runs Gemma 4 E2B\n",
              stderr);
    int status = err ? ek_cli_refused(cli, err) : piped || cli->arg ? run_once(&d, cli, &input) : chat_run(&d, &said);
    free(said);
    ek_dialogue_close(&d);
    ek_buf_fini(&input);
    return status;
}
