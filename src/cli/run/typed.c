/* Paths in the forms in which a person types or drags them: quoted, with backslashes, with ~, as file://, alone or in a
 * sentence. Finds files of pictures, sounds and videos among them. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/frame/terminal.h"
#include "cli/run/chat.h"

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Appends the home folder for a leading ~; returns the rest. */
static const char *add_home(ek_buf *out, const char *text, const char *end)
{
    const char *home = getenv("HOME");
    if (!home || text == end || *text != '~' || (text + 1 < end && text[1] != '/')) return text;
    ek_buf_str(out, home);
    return text + 1;
}

/* Appends n bytes of text unchanged. */
static void literal(ek_buf *out, const char *text, size_t n)
{
    const char *rest = add_home(out, text, text + n);
    ek_buf_add(out, rest, n - (size_t)(rest - text));
}

/* Appends n bytes of text without quotes and backslashes, or the path of a file's address. */
static void unquote(ek_buf *out, const char *text, size_t n)
{
    char quote = 0;
    const char *end = text + n;
    const bool url = n > 7 && !strncmp(text, "file://", 7);
    if (url) text = memchr(text + 7, '/', n - 7) ? memchr(text + 7, '/', n - 7) : text + 7;
    if (text < end && (*text == '"' || *text == '\'')) quote = *text++;
    for (text = add_home(out, text, quote && end[-1] == quote ? end - 1 : end); text < end; text++) {
        if (!quote && (*text == '"' || *text == '\'')) quote = *text;
        else if (*text == quote) quote = 0;
        else if (*text == '\\' && quote != '\'' && text + 1 < end) ek_buf_char(out, *++text);
        else if (url && *text == '%' && end - text > 2 && hex(text[1]) >= 0 && hex(text[2]) >= 0)
            ek_buf_char(out, (char)(hex(text[1]) << 4 | hex(text[2]))), text += 2;
        else ek_buf_char(out, *text);
    }
}

size_t ek_typed_word(const char *text)
{
    const bool quoted = *text == '"' || *text == '\'';
    char quote = 0;
    size_t n = 0;
    for (; text[n] && (quote || !strchr(" \t\n", text[n])); n++) {
        if (text[n] == '\\' && quote != '\'' && text[n + 1]) n++;
        else if (quoted && !quote && (text[n] == '"' || text[n] == '\'')) quote = text[n];
        else if (text[n] == quote) quote = 0;
    }
    if (!quote) return n;
    for (n = 0; text[n] && !strchr(" \t\n", text[n]);) n++; /* an apostrophe, not a quote */
    return n;
}

void ek_typed_path(ek_buf *out, const char *text)
{
    ek_buf plain = {0}, as_it_is = {0};
    unquote(&plain, text, strlen(text));
    literal(&as_it_is, text, strlen(text));
    const bool is_name = access(ek_buf_text(&as_it_is), F_OK) == 0;
    ek_buf_str(out, ek_buf_text(is_name ? &as_it_is : &plain));
    ek_buf_fini(&plain);
    ek_buf_fini(&as_it_is);
}

/* Finds the kind by the end of a name of n bytes. */
static bool media_kind(ek_part_kind *kind, const char *path, size_t n)
{
    static const struct {
        const char *end;
        ek_part_kind kind;
    } ends[] = {{".pdf", EK_PART_IMAGE},
                {".jpg", EK_PART_IMAGE},
                {".jpeg", EK_PART_IMAGE},
                {".png", EK_PART_IMAGE},
                {".webp", EK_PART_IMAGE},
                {".gif", EK_PART_IMAGE},
                {".heic", EK_PART_IMAGE},
                {".heif", EK_PART_IMAGE},
                {".avif", EK_PART_IMAGE},
                {".jfif", EK_PART_IMAGE},
                {".wav", EK_PART_SOUND},
                {".flac", EK_PART_SOUND},
                {".ogg", EK_PART_SOUND},
                {".oga", EK_PART_SOUND},
                {".opus", EK_PART_SOUND},
                {".mp3", EK_PART_SOUND},
                {".mp4", EK_PART_FRAME},
                {".m4v", EK_PART_FRAME},
                {".mov", EK_PART_FRAME},
                {".mkv", EK_PART_FRAME},
                {".webm", EK_PART_FRAME},
                {".avi", EK_PART_FRAME},
                {".ogv", EK_PART_FRAME},
                {".mpg", EK_PART_FRAME},
                {".mpeg", EK_PART_FRAME},
                {".wmv", EK_PART_FRAME},
                {".flv", EK_PART_FRAME},
                /* Unreadable kinds are listed, too, so that they are refused and not taken for text. */
                {".bmp", EK_PART_IMAGE},
                {".tif", EK_PART_IMAGE},
                {".tiff", EK_PART_IMAGE},
                {".jxl", EK_PART_IMAGE},
                {".m4a", EK_PART_SOUND},
                {".aac", EK_PART_SOUND},
                {".wma", EK_PART_SOUND},
                {".aiff", EK_PART_SOUND}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i].end);
        *kind = ends[i].kind;
        if (n > m && !strncasecmp(path + n - m, ends[i].end, m)) return true;
    }
    return false;
}

/* Whether n bytes of text are the path of an existing media file. */
static bool is_media(ek_buf *path, ek_part_kind *kind, const char *text, size_t n)
{
    const bool in_quotes = n && (text[n - 1] == '"' || text[n - 1] == '\'');
    if (!media_kind(kind, text, n - in_quotes)) return false; /* most words of a long message end here */
    for (int quoted = 0; quoted < 2; quoted++) {
        ek_buf_clear(path);
        (quoted ? unquote : literal)(path, text, n);
        if (path->len && media_kind(kind, ek_buf_text(path), path->len) && is_file(ek_buf_text(path))) return true;
    }
    return false;
}

static bool begins_path(const char *text)
{
    return *text == '/' || !strncmp(text, "./", 2) || !strncmp(text, "../", 3) || !strncmp(text, "~/", 2);
}

/* The bytes at text that name a media file; 0: none. The path is a word without the punctuation after it. An unquoted
 * path with blanks ends where an existing file's name ends. */
static size_t media_at(ek_buf *path, ek_part_kind *kind, const char *text)
{
    size_t n = ek_typed_word(text);
    if (!n) return 0;
    if (is_media(path, kind, text, n)) return n;
    for (size_t m = n; m > 1 && strchr(".,;:!?)]}\"'", text[m - 1]); m--)
        if (is_media(path, kind, text, m - 1)) return m - 1;
    while (begins_path(text) && text[n] == ' ') {
        n += 1 + ek_typed_word(text + n + 1);
        size_t m = n;
        while (m > 1 && strchr(".,;:!?)]}\"'", text[m - 1])) m--;
        if (is_media(path, kind, text, m)) return m;
    }
    return 0;
}

bool ek_typed_is_path(const char *line)
{
    ek_buf path = {0};
    ek_part_kind kind;
    const size_t n = ek_typed_word(line);
    unquote(&path, line, n);
    const bool is = access(ek_buf_text(&path), F_OK) == 0 || media_at(&path, &kind, line) > 0;
    ek_buf_fini(&path);
    return is;
}

int ek_chat_take_media(ek_dialogue *d, FILE *to, const char *text, ek_buf *rest)
{
    int n = 0, last = -1;
    size_t last_end = 0;
    ek_buf path = {0}, says = {0};
    ek_part_kind kind;
    for (const char *at = text; *at;) {
        const bool begins = at == text || strchr(" \t\n([{", at[-1]);
        const size_t took = begins ? media_at(&path, &kind, at) : 0;
        if (!took) {
            ek_buf_char(rest, *at++);
            continue;
        }
        ek_buf_clear(&says);
        if (ek_dialogue_attach(d, kind, ek_buf_text(&path), &says)) {
            fprintf(to, "%s\n", ek_err_text());
            ek_buf_add(rest, at, took);
        } else {
            ek_cli_put(to, ek_buf_text(&says));
            fputc('\n', to);
            n++;
            last = (int)rest->len;
            const char *name = strrchr(ek_buf_text(&path), '/');
            if (strspn(ek_buf_text(rest), " \t\n") < rest->len) ek_buf_str(rest, name ? name + 1 : ek_buf_text(&path));
            last_end = rest->len;
        }
        at += took;
    }
    /* A file after the question does not belong to the question's text. */
    if (n == 1 && rest->len - last_end == strspn(ek_buf_text(rest) + last_end, " \t\n")) rest->len = (size_t)last;
    while (rest->len && strchr(" \t\n", rest->data[rest->len - 1])) rest->len--;
    if (rest->data) rest->data[rest->len] = '\0';
    const size_t blank = n ? strspn(ek_buf_text(rest), " \t\n") : 0;
    if (blank) memmove(rest->data, rest->data + blank, rest->len - blank + 1), rest->len -= blank;
    ek_buf_fini(&path);
    ek_buf_fini(&says);
    return n;
}
