#include "cli/frame/terminal.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"

/* ------------------------------------------------------------------ width */

int ek_cli_columns(FILE *to)
{
    struct winsize size;
    if (!isatty(fileno(to))) return 0;
    if (!ioctl(fileno(to), TIOCGWINSZ, &size) && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    const int n = columns ? atoi(columns) : 0;
    return n > 0 && n < 10000 ? n : 80;
}

/* Reads the character at s, of at most n bytes. *took: its bytes. */
static unsigned decode(const char *s, size_t n, size_t *took)
{
    const unsigned char c = (unsigned char)*s;
    const size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    unsigned x = len == 1 ? c : c & (0xffu >> (len + 1));
    *took = len < n ? len : n;
    for (size_t i = 1; i < *took; i++) x = x << 6 | ((unsigned char)s[i] & 0x3f);
    return x;
}

static int char_width(unsigned c)
{
    /* Blocks of marks and of wide characters (Unicode 15, UAX 11). The tables have the blocks that text uses, not every
     * character. */
    static const unsigned none[][2] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                                       {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
                                       {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
    static const unsigned wide[][2] = {
        {0x1100, 0x115f}, {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},   {0x23f3, 0x23f3},
        {0x25fd, 0x25fe}, {0x2614, 0x2615},   {0x2648, 0x2653},   {0x26a1, 0x26a1},   {0x26bd, 0x26be},
        {0x26d4, 0x26d4}, {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},   {0x274c, 0x274c},
        {0x274e, 0x274e}, {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},   {0x2b1b, 0x2b1c},
        {0x2b50, 0x2b50}, {0x2b55, 0x2b55},   {0x1f7e0, 0x1f7eb}, {0x1fa70, 0x1faff}, {0x2e80, 0x303e},
        {0x3041, 0xa4cf}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe4f},   {0xff00, 0xff60},
        {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (c >= none[i][0] && c <= none[i][1]) return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (c >= wide[i][0] && c <= wide[i][1]) return 2;
    return 1;
}

/* The number of bytes of text that fit into columns. */
static size_t fitting(const char *text, size_t n, int columns)
{
    size_t at = 0, took;
    for (int taken = 0; at < n; at += took) {
        taken += char_width(decode(text + at, n - at, &took));
        if (taken > columns) break;
    }
    return at;
}

int ek_cli_width(const char *text, size_t n)
{
    int columns = 0;
    for (size_t took; n > 0; text += took, n -= took) columns += char_width(decode(text, n, &took));
    return columns;
}

/* ------------------------------------------------------------------ a line that is written again */

void ek_cli_status(FILE *to, const char *before, const char *text, const char *behind)
{
    const int columns = ek_cli_columns(to);
    const size_t n = fitting(text, strlen(text), columns - 1); /* terminals would begin another line */
    fprintf(to, "\r\033[K%s%.*s%s", before, (int)n, text, behind);
    fflush(to);
}

void ek_cli_status_clear(FILE *to)
{
    fputs("\r\033[K", to);
    fflush(to);
}

static int joined(const ek_field *field, int n, int max_rank)
{
    int columns = 0;
    for (int i = 0; i < n; i++)
        if (field[i].rank <= max_rank && *field[i].text)
            columns += (columns ? 2 : 0) + ek_cli_width(field[i].text, strlen(field[i].text));
    return columns;
}

int ek_cli_fit(ek_buf *out, int columns, const ek_field *field, int n)
{
    int rank = 0, any = 0;
    for (int i = 0; i < n; i++)
        if (field[i].rank > rank) rank = field[i].rank;
    while (rank > 0 && joined(field, n, rank) > columns) rank--;
    const size_t from = out->len;
    for (int i = 0; i < n; i++)
        if (field[i].rank <= rank && *field[i].text) ek_buf_fmt(out, "%s%s", any++ ? "  " : "", field[i].text);
    return ek_cli_width(ek_buf_text(out) + from, out->len - from);
}

void ek_cli_status_bar(FILE *to, double fraction, const ek_field *field, int n)
{
    enum { MIN_BAR = 8, MAX_BAR = 24 };
    const int columns = ek_cli_columns(to) - 1;
    ek_buf text = {0}, line = {0};
    const int for_bar = columns < 60 ? 0 : MIN_BAR + 4; /* the brackets and two blanks */
    const int bar = columns - ek_cli_fit(&text, columns - for_bar, field, n) - 4;
    if (bar >= MIN_BAR) {
        const int width = bar < MAX_BAR ? bar : MAX_BAR, full = (int)(fraction * width);
        ek_buf_char(&line, '[');
        for (int i = 0; i < width; i++) ek_buf_char(&line, i < full ? '#' : '.');
        ek_buf_str(&line, "]  ");
    }
    ek_buf_str(&line, ek_buf_text(&text));
    ek_cli_status(to, "", ek_buf_text(&line), "");
    ek_buf_fini(&text);
    ek_buf_fini(&line);
}

void ek_cli_time_text(char out[16], double seconds)
{
    const int s = seconds < 359999 ? (int)seconds : 359999;
    if (s >= 3600) snprintf(out, 16, "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    else snprintf(out, 16, "%d:%02d", s / 60, s % 60);
}

/* ------------------------------------------------------------------ text */

/* Appends a character in its printed form: escaped if a terminal would obey it. */
static void add(ek_buf *out, const char *text, size_t took, bool plain)
{
    char part[64];
    if (plain) ek_buf_add(out, text, took);
    else ek_buf_add(out, part, ek_plain(part, sizeof part, text, took));
}

static void put(FILE *to, const char *text, size_t n)
{
    ek_buf b = {0};
    bool plain;
    for (size_t took; n > 0; text += took, n -= took) {
        took = ek_plain_char(text, n, &plain);
        add(&b, text, took, plain);
    }
    fwrite(ek_buf_text(&b), 1, b.len, to);
    ek_buf_fini(&b);
}

void ek_cli_put(FILE *to, const char *text)
{
    put(to, text, strlen(text));
}

/* Writes gap and word. If the word does not fit, a newline replaces the gap. */
static void flush_word(ek_wrap *w, FILE *to)
{
    const int columns = ek_cli_columns(to);
    const int gap = ek_cli_width(ek_buf_text(&w->gap), w->gap.len),
              word = ek_cli_width(ek_buf_text(&w->word), w->word.len);
    if (w->word.len && w->column > 0 && w->column + gap + word > columns) {
        fputc('\n', to);
        w->column = 0;
    } else if (w->word.len || w->column + gap <= columns) { /* blanks after a full line would make an empty line */
        fwrite(ek_buf_text(&w->gap), 1, w->gap.len, to);
        w->column += gap;
    }
    fwrite(ek_buf_text(&w->word), 1, w->word.len, to);
    w->column += word;
    if (columns > 0 && w->column > columns) w->column %= columns; /* a word longer than a line, or a line of blanks */
    ek_buf_clear(&w->gap);
    ek_buf_clear(&w->word);
}

bool ek_wrap_put(ek_wrap *w, FILE *to, const char *text, size_t n)
{
    bool plain;
    size_t bytes;
    if (!isatty(fileno(to))) {
        fwrite(text, 1, n, to);
        return !ferror(to);
    }
    for (size_t took; n > 0; text += took, n -= took) {
        took = ek_plain_char(text, n, &plain);
        if (*text == '\n' || *text == '\t') {
            flush_word(w, to);
            fputc(*text, to);
            w->column = *text == '\n' ? 0 : (w->column / 8 + 1) * 8;
        } else if (*text == ' ') {
            if (w->word.len) flush_word(w, to);
            ek_buf_char(&w->gap, ' ');
        } else {
            const bool wide = plain && char_width(decode(text, took, &bytes)) == 2;
            if (wide && w->word.len) flush_word(w, to); /* lines may end between such characters */
            add(&w->word, text, took, plain);
            if (wide) flush_word(w, to);
        }
    }
    return !ferror(to);
}

bool ek_wrap_end(ek_wrap *w, FILE *to)
{
    flush_word(w, to);
    ek_buf_fini(&w->gap);
    ek_buf_fini(&w->word);
    *w = (ek_wrap){0};
    return !ferror(to);
}

bool ek_cli_put_answer(FILE *to, const char *text, size_t n)
{
    ek_wrap w = {0};
    ek_wrap_put(&w, to, text, n);
    return ek_wrap_end(&w, to);
}

bool ek_cli_reader_left(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP) && !isatty(STDOUT_FILENO);
}

/* ------------------------------------------------------------------ questions and signals */

char *ek_cli_answer(void)
{
    char *line = NULL;
    size_t cap = 0;
    if (getline(&line, &cap, stdin) < 0) {
        free(line);
        fputc('\n', stderr);
        return NULL;
    }
    line[strcspn(line, "\r\n")] = '\0';
    return line;
}

bool ek_cli_is_yes(const char *answer)
{
    return !strcasecmp(answer, "y") || !strcasecmp(answer, "yes");
}

bool ek_cli_is_no(const char *answer)
{
    return !*answer || !strcasecmp(answer, "n") || !strcasecmp(answer, "no");
}

bool ek_cli_yes(void)
{
    char *answer = ek_cli_answer();
    const bool yes = answer && ek_cli_is_yes(answer);
    free(answer);
    return yes;
}

void ek_cli_on_stop(void (*stop)(int number), int flags)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = stop, .sa_flags = flags}, was;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sigaction(all[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) sigaction(all[i], &act, NULL);
}
