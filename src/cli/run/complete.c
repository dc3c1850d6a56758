/* Tab in a chat: commands after a slash, the arguments of /set and /model, and paths. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/run/chat.h"
#include "hub/name.h"

static void add(ek_buf *list, const char *word, size_t n, const char *behind)
{
    ek_buf_add(list, word, n);
    ek_buf_str(list, behind);
    ek_buf_char(list, '\0');
}

static void add_matching(ek_buf *list, const char *name, const char *typed, size_t n, const char *before)
{
    if (strncmp(name, typed, n) != 0) return;
    ek_buf_str(list, before);
    add(list, name, strlen(name), " ");
}

/* Appends a name in the form in which it is typed: with backslashes, or within the quote that begins the word. */
static void add_escaped(ek_buf *list, const char *name, char quote)
{
    for (; *name; name++) {
        const char *special = quote == '"' ? "\"\\" : " \t\\\"'()&;$`!*?[]{}<>|#";
        if (quote == '\'' && *name == quote) ek_buf_str(list, "'\\'"); /* the next quote opens the text again */
        else if (quote != '\'' && strchr(special, *name)) ek_buf_char(list, '\\');
        ek_buf_char(list, *name);
    }
}

/* The offset at which the last word of n bytes begins. */
static size_t last_word(const char *line, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        while (i < n && strchr(" \t\n", line[i])) i++;
        from = i;
        const char quote = i < n && (line[i] == '"' || line[i] == '\'') ? line[i] : 0;
        const char *end = quote ? memchr(line + i + 1, quote, n - i - 1) : NULL;
        if (quote && !end) return from;
        if (end) i = (size_t)(end - line) + 1;
        while (i < n && !strchr(" \t\n", line[i])) i += line[i] == '\\' ? 2 : 1;
    }
    return from;
}

static void complete_path(ek_buf *list, const char *word, size_t n)
{
    ek_buf typed = {0}, path = {0}, full = {0};
    const char quote = n && (*word == '"' || *word == '\'') ? *word : 0;
    ek_buf_add(&typed, word, n);
    if (quote) ek_buf_char(&typed, quote);
    ek_typed_path(&path, ek_buf_text(&typed));
    const char *slash = strrchr(ek_buf_text(&path), '/'), *name = slash ? slash + 1 : ek_buf_text(&path);
    size_t keep = n; /* the length of the typed text up to its last slash */
    while (keep > (quote ? 1u : 0u) && word[keep - 1] != '/') keep--;
    ek_buf dir = {0};
    if (slash) ek_buf_add(&dir, ek_buf_text(&path), (size_t)(slash - ek_buf_text(&path)) + 1);
    else ek_buf_char(&dir, '.');
    DIR *d = opendir(ek_buf_text(&dir));
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (strncmp(e->d_name, name, strlen(name)) || (e->d_name[0] == '.' && *name != '.') ||
            !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        ek_buf_clear(&full);
        ek_buf_fmt(&full, "%s/%s", ek_buf_text(&dir), e->d_name);
        const bool folder = !stat(ek_buf_text(&full), &st) && S_ISDIR(st.st_mode);
        ek_buf_add(list, word, keep);
        add_escaped(list, e->d_name, quote);
        const char end[3] = {folder ? '/' : quote ? quote : ' ', !folder && quote ? ' ' : '\0', '\0'};
        add(list, "", 0, end);
    }
    if (d) closedir(d);
    ek_buf_fini(&typed), ek_buf_fini(&path), ek_buf_fini(&full), ek_buf_fini(&dir);
}

void ek_chat_complete(ek_buf *list, const char *line, size_t cursor, size_t *from)
{
    *from = last_word(line, cursor);
    const char *word = line + *from;
    const size_t n = cursor - *from;
    if (*line == '/' && *from == 0 && !memchr(word + 1, '/', n ? n - 1 : 0)) {
        for (int i = 0; ek_chat_name(i); i++) add_matching(list, ek_chat_name(i), word + 1, n ? n - 1 : 0, "/");
        if (list->len || !n) return;
    }
    if (!strncmp(line, "/set ", 5)) {
        for (int i = 0; ek_chat_setting(i); i++) add_matching(list, ek_chat_setting(i), word, n, "");
        return;
    }
    if (!strncmp(line, "/model ", 7))
        for (int i = 0; i < ek_hub_n_shorts; i++) add_matching(list, ek_hub_shorts[i].name, word, n, "");
    if (n || *line == '/') complete_path(list, word, n);
}
