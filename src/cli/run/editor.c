#define _GNU_SOURCE /* pipe2, memrchr */
#include "cli/run/editor.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/linux.h"
#include "base/log.h"
#include "cli/frame/terminal.h"

enum { KEPT = 1000, MAX_PASTE = 4 << 20 };

static const char PASTE_ON[] = "\033[?2004h", PASTE_OFF[] = "\033[?2004l";

struct ek_editor {
    EditLine *el; /* NULL: lines are read without editing */
    History *history;
    char *file;
    char prompt[512];
    ek_complete_fn *complete; /* NULL: none */
};

volatile int ek_editor_interrupted;
static volatile int resized, continued;
static int wake[2] = {-1, -1}; /* a signal writes a byte, so that a wait ends even if it comes just before the wait */

static void on_signal(int number)
{
    const int kept = errno;
    if (number == SIGINT) ek_editor_interrupted = 1;
    else if (number == SIGCONT) continued = 1;
    else resized = 1;
    if (wake[1] >= 0 && write(wake[1], "", 1) < 0) { /* the pipe is full, so the poll wakes anyway */
    }
    errno = kept;
}

/* Ctrl-C ends a read. Other signals only wake the editor's poll. If they ended a read elsewhere, it would look like the
 * end of input. */
void ek_editor_catch(void)
{
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    act.sa_flags = SA_RESTART;
    sigaction(SIGWINCH, &act, NULL);
    sigaction(SIGCONT, &act, NULL);
}

/* Whether lines can be edited: standard input and output are a terminal, and TERM is set and not "dumb". */
static bool editor_can(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

/* --- callbacks of libedit --- */

static char *prompt_of(EditLine *el)
{
    ek_editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    return e->prompt;
}

/* Another program may have changed the terminal meanwhile. Sets the editor's mode again and shows the line. */
static void show_again(EditLine *el)
{
    continued = 0;
    el_set(el, EL_PREP_TERM, 0);
    el_set(el, EL_PREP_TERM, 1);
    fputs(PASTE_ON, stdout);
    el_set(el, EL_REFRESH);
    fflush(stdout);
}

/* The next byte; 0 at the end, -1 with EINTR after Ctrl-C. */
static int next_byte(EditLine *el, char *c)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
        int ready = poll(p, 2, -1);
        char drained[64];
        if (ready > 0 && p[1].revents)
            while (read(wake[0], drained, sizeof drained) == sizeof drained) continue;
        if (ek_editor_interrupted) {
            errno = EINTR;
            return -1;
        }
        if (resized) {
            resized = 0;
            el_resize(el);
        }
        if (continued) show_again(el);
        if (ready <= 0 || !p[0].revents) continue;
        ssize_t n = read(STDIN_FILENO, c, 1);
        if (n >= 0) return (int)n;
        if (errno == EIO) return 0; /* the terminal no longer exists */
        if (errno != EINTR && errno != EAGAIN) return -1;
    }
}

/* Reads a character; bytes that are no character become U+FFFD. */
static int next_char(EditLine *el, wchar_t *c)
{
    char bytes[MB_LEN_MAX];
    for (size_t n = 0; n < sizeof bytes;) {
        int got = next_byte(el, &bytes[n]);
        if (got <= 0) return got;
        n++;
        mbstate_t state = {0};
        size_t took = mbrtowc(c, bytes, n, &state);
        if (took != (size_t)-2) {
            if (took == (size_t)-1) *c = 0xfffd;
            return 1;
        }
    }
    *c = 0xfffd;
    return 1;
}

/* Ctrl-D: the end of input on an empty line, the end of the line after its text, and inside it the deletion of a
 * character. */
static unsigned char on_end(EditLine *el, int key)
{
    (void)key;
    const LineInfoW *l = el_wline(el);
    if (l->buffer == l->lastchar) return CC_EOF;
    if (l->cursor == l->lastchar) {
        el_wpush(el, L"\n"); /* as the Enter key would */
        return CC_NORM;
    }
    el_cursor(el, 1);
    el_deletestr(el, 1);
    return CC_REFRESH;
}

/* After the mark that begins a paste, everything up to the end mark is text. */
static unsigned char on_paste(EditLine *el, int key)
{
    static const wchar_t end[] = L"\033[201~";
    const size_t n_end = sizeof end / sizeof *end - 1;
    size_t n = 0, cap = 256;
    wchar_t *text = ek_alloc(cap * sizeof *text), c;
    (void)key;
    while (n < MAX_PASTE && next_char(el, &c) == 1) {
        if (n + 1 >= cap) text = ek_realloc(text, (cap *= 2) * sizeof *text);
        text[n++] = c == L'\r' ? L'\n' : c;
        if (n >= n_end && !wmemcmp(text + n - n_end, end, n_end)) {
            n -= n_end;
            break;
        }
    }
    size_t kept = 0; /* control characters are not text */
    for (size_t i = 0; i < n; i++)
        if (text[i] == L'\n' || text[i] == L'\t' || (text[i] >= L' ' && text[i] != 0x7f)) text[kept++] = text[i];
    while (kept && text[kept - 1] == L'\n') kept--;
    text[kept] = L'\0';
    int failed = kept ? el_winsertstr(el, text) : 0;
    free(text);
    return failed ? CC_ERROR : CC_REFRESH;
}

/* The length of the common beginning of all entries. */
static size_t common(const ek_buf *list)
{
    const char *first = ek_buf_text(list);
    size_t n = strlen(first);
    for (const char *at = first; at < first + list->len; at += strlen(at) + 1) {
        size_t same = 0;
        while (same < n && at[same] == first[same]) same++;
        n = same;
    }
    while (n && (first[n] & 0xC0) == 0x80) n--; /* whole characters */
    return n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Shows the candidates below the line, in columns, without their folders. */
static void show_list(const ek_buf *list)
{
    enum { MAX = 200 };
    const char *name[MAX];
    int n = 0, width = 0;
    for (const char *at = ek_buf_text(list); at < ek_buf_text(list) + list->len && n < MAX; at += strlen(at) + 1) {
        const char *slash = strrchr(at, '/');
        while (slash && slash > at && !slash[1]) slash = slash > at ? memrchr(at, '/', (size_t)(slash - at)) : NULL;
        name[n] = slash && slash > at ? slash + 1 : at;
        const int columns = ek_cli_width(name[n], strlen(name[n]));
        if (columns > width) width = columns;
        n++;
    }
    qsort(name, (size_t)n, sizeof *name, by_name);
    const int per_line = ek_cli_columns(stdout) / (width + 2) > 1 ? ek_cli_columns(stdout) / (width + 2) : 1;
    for (int i = 0; i < n; i++) {
        fputs(i % per_line ? "" : "\n", stdout);
        ek_cli_put(stdout, name[i]);
        for (int k = ek_cli_width(name[i], strlen(name[i])); (i + 1) % per_line && k < width + 2; k++) putchar(' ');
    }
    putchar('\n');
}

static char *narrow(const wchar_t *text, size_t n)
{
    ek_buf out = {0};
    for (size_t i = 0; i < n; i++) {
        char bytes[MB_LEN_MAX];
        const size_t took = wcrtomb(bytes, text[i], &(mbstate_t){0});
        if (took != (size_t)-1) ek_buf_add(&out, bytes, took);
    }
    char *copy = ek_strdup(ek_buf_text(&out));
    ek_buf_fini(&out);
    return copy;
}

/* Tab. */
static unsigned char on_complete(EditLine *el, int key)
{
    ek_editor *e;
    ek_buf list = {0};
    size_t from = 0;
    (void)key;
    el_get(el, EL_CLIENTDATA, &e);
    const LineInfoW *l = el_wline(el);
    char *line = narrow(l->buffer, (size_t)(l->cursor - l->buffer));
    if (e->complete) e->complete(&list, line, strlen(line), &from);
    const size_t typed = strlen(line) - from, n = list.len ? common(&list) : 0;
    const bool one = list.len && strlen(ek_buf_text(&list)) + 1 == list.len;
    unsigned char result = CC_ERROR;
    if (n > typed && !strncmp(ek_buf_text(&list), line + from, typed)) {
        wchar_t more[1024];
        ek_buf rest = {0};
        ek_buf_add(&rest, ek_buf_text(&list) + typed, n - typed);
        const size_t wide = mbstowcs(more, ek_buf_text(&rest), sizeof more / sizeof *more - 1);
        if (wide != (size_t)-1) more[wide] = L'\0';
        result = wide == (size_t)-1 || el_winsertstr(el, more) ? CC_ERROR : CC_REFRESH;
        ek_buf_fini(&rest);
    } else if (list.len && !one) {
        show_list(&list);
        result = CC_REDISPLAY;
    }
    free(line);
    ek_buf_fini(&list);
    return result;
}

/* ------------------------------------------------------------------ the history */

static void open_history(ek_editor *e, const char *file)
{
    HistEvent ev;
    e->history = history_init();
    if (!e->history) return;
    history(e->history, &ev, H_SETSIZE, KEPT);
    history(e->history, &ev, H_SETUNIQUE, 1);
    el_set(e->el, EL_HIST, history, e->history);
    if (!file) return;
    e->file = ek_strdup(file);
    history(e->history, &ev, H_LOAD, file);
}

/* Others may not read typed text. The file is written anew and then renamed, so a full disk does not cost old lines. */
static void write_history(const ek_editor *e)
{
    HistEvent ev;
    ek_buf tmp = {0};
    if (!e->file || !e->history) return;
    ek_file_make_folders(e->file);
    ek_buf_fmt(&tmp, "%s.%d", e->file, (int)getpid());
    int fd = open(ek_buf_text(&tmp), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    if (fd >= 0 && (history(e->history, &ev, H_SAVE, ek_buf_text(&tmp)) < 0 || rename(ek_buf_text(&tmp), e->file)))
        unlink(ek_buf_text(&tmp));
    ek_buf_fini(&tmp);
}

void ek_editor_remember(ek_editor *e, const char *text)
{
    HistEvent ev;
    if (!e->history || !*text) return;
    history(e->history, &ev, H_ENTER, text);
    write_history(e);
}

/* ------------------------------------------------------------------ opening, reading */

ek_editor *ek_editor_open(const char *history_file, ek_complete_fn *complete)
{
    ek_editor *e = ek_alloc(sizeof *e);
    *e = (ek_editor){.complete = complete};
    ek_editor_catch();
    if (!editor_can() || pipe2(wake, O_NONBLOCK | O_CLOEXEC)) return e;
    /* The editor has to edit characters, not bytes; it needs nothing else of a locale. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX < 4) setlocale(LC_CTYPE, "C.UTF-8");
    e->el = el_init("evenkeel", stdin, stdout, stderr);
    if (!e->el) return e;
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, prompt_of);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 0);
    el_wset(e->el, EL_GETCFN, next_char);
    el_wset(e->el, EL_ADDFN, L"ek-paste", L"text of a paste", on_paste);
    el_wset(e->el, EL_ADDFN, L"ek-end", L"end of line or input", on_end);
    el_wset(e->el, EL_ADDFN, L"ek-complete", L"complete a command or a path", on_complete);
    el_set(e->el, EL_BIND, "^I", "ek-complete", NULL);
    el_set(e->el, EL_BIND, "\033[200~", "ek-paste", NULL);
    el_set(e->el, EL_BIND, "^D", "ek-end", NULL);
    el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    static const char *const keys[][2] = {{"\033[H", "ed-move-to-beg"},       {"\033[F", "ed-move-to-end"},
                                          {"\033OH", "ed-move-to-beg"},       {"\033OF", "ed-move-to-end"},
                                          {"\033[3~", "ed-delete-next-char"}, {"\033[1;5C", "em-next-word"},
                                          {"\033[1;5D", "ed-prev-word"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) el_set(e->el, EL_BIND, keys[i][0], keys[i][1], NULL);
    open_history(e, history_file);
    return e;
}

void ek_editor_close(ek_editor *e)
{
    if (!e) return;
    if (e->history) history_end(e->history);
    if (e->el) el_end(e->el);
    for (int i = 0; i < 2; i++) {
        if (wake[i] >= 0) close(wake[i]);
        wake[i] = -1;
    }
    free(e->file);
    free(e);
}

/* Reads a line without editing, with a prompt if a person types. */
static char *read_plain(const char *prompt)
{
    if (isatty(STDIN_FILENO)) {
        ek_cli_put(stdout, prompt); /* the prompt may contain a name that the model wrote */
        fflush(stdout);
    }
    char *line = NULL;
    size_t cap = 0;
    errno = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        if (!(errno == EINTR && ek_editor_interrupted)) return NULL;
        clearerr(stdin);
        putchar('\n');
        return ek_strdup("");
    }
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = '\0';
    return line;
}

static char *read_edited(ek_editor *e)
{
    int n = 0;
    fflush(stdout);
    el_set(e->el, EL_PREP_TERM, 1); /* before the prompt, because early input would otherwise be shown twice */
    fputs(PASTE_ON, stdout);
    fflush(stdout);
    const char *line = el_gets(e->el, &n);
    fputs(PASTE_OFF, stdout);
    if (!line || n <= 0) { /* Ctrl-C or the end of input leaves the line */
        putchar('\n');
        fflush(stdout);
        if (!ek_editor_interrupted) return NULL;
        el_reset(e->el);
        return ek_strdup("");
    }
    fflush(stdout);
    char *copy = ek_strdup(line);
    while (n > 0 && copy[n - 1] == '\n') copy[--n] = '\0';
    return copy;
}

char *ek_editor_read(ek_editor *e, const char *prompt)
{
    ek_editor_interrupted = 0;
    if (!e->el) return read_plain(prompt);
    ek_plain(e->prompt, sizeof e->prompt, prompt, strlen(prompt));
    return read_edited(e);
}
