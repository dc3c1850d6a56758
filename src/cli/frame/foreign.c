/* Words of other programs, and their counterparts here. */
#include "cli/frame/table.h"

#include <string.h>

#include "base/near.h"

typedef enum { OLLAMA, CHAT, LLAMA, VLLM, MLX } program;

static const struct {
    const char *name, *calls[3]; /* the program's name in a sentence, and the words that begin its commands */
} programs[] = {
    [OLLAMA] = {"Ollama's", {"ollama "}},         [CHAT] = {"Ollama's", {""}},
    [LLAMA] = {"llama.cpp's", {"llama-"}},        [VLLM] = {"vLLM's", {"vllm ", "hf "}},
    [MLX] = {"mlx-lm's", {"mlx_lm ", "mlx_lm."}},
};

static const struct {
    program of;
    const char *theirs, *ours;
} rows[] = {
#define ollama                         OLLAMA
#define chat                           CHAT
#define llama                          LLAMA
#define vllm                           VLLM
#define mlx                            MLX
#define FOREIGN(program, theirs, ours) {program, theirs, ours},
#include "cli/frame/foreign.def"
#undef ollama
#undef chat
#undef llama
#undef vllm
#undef mlx
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* The next code span of Markdown; false after the last one. */
static bool next_span(const char **at, const char **span, size_t *n)
{
    const char *from = strchr(*at, '`'), *to = from ? strchr(from + 1, '`') : NULL;
    if (!to) return false;
    *span = from + 1, *n = (size_t)(to - from - 1), *at = to + 1;
    return true;
}

static bool same(const char *a, size_t na, const char *b, size_t nb)
{
    return na == nb && !memcmp(a, b, na);
}

/* Whether a span contains an option as a word: "-ot" in "-ot exps=CPU". */
static bool has_option(const char *span, size_t n, const char *word, size_t n_word)
{
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && span[i + len] != ' ' && span[i + len] != '=') len++;
        if (same(span + i, len, word, n_word)) return true;
        while (i + len < n && span[i + len] != ' ') len++;
        i += len + 1;
    }
    return false;
}

/* Whether a span is this command: "ollama ls" and "ls" for ls, "llama-server -m FILE" for llama-server. */
static bool is_command(program of, const char *span, size_t n, const char *word, size_t n_word)
{
    const size_t first = strcspn(span, " `");
    if (same(span, first < n ? first : n, word, n_word)) return of != CHAT;
    for (int i = 0; i < 3 && programs[of].calls[i]; i++) {
        const char *call = programs[of].calls[i];
        const size_t m = strlen(call);
        if (m && n > m && !memcmp(span, call, m) && same(span + m, strcspn(span + m, " `"), word, n_word)) return true;
    }
    return false;
}

/* Whether a span is the beginning of this line of a chat: "/set system TEXT" for "/set system x". */
static bool is_line(const char *span, size_t n, const char *line)
{
    size_t i = 0;
    while (i < n && span[i] == line[i] && !(span[i] == ' ' && span[i + 1] >= 'A' && span[i + 1] <= 'Z')) i++;
    const bool argument = i < n && span[i] == ' ' && span[i + 1] >= 'A' && span[i + 1] <= 'Z';
    size_t last = i; /* a number in an example stands for any number */
    while (last > 0 && strchr("0123456789.", span[last - 1])) last--;
    const bool number = last > 0 && last < n && span[last - 1] == ' ' && strspn(span + last, "0123456789.") == n - last;
    return (i == n || argument || number) && (!line[i] || line[i] == ' ' || number);
}

/* A text without Markdown's code marks and links. */
static void plain(ek_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '`' || *text == '[') continue;
        if (text[0] == ']' && text[1] == '(') text = strchr(text, ')');
        else ek_buf_char(out, *text);
    }
}

static bool put(ek_buf *out, int row, const char *typed, size_t n, const char *what)
{
    static const char none[] = "—";
    const char *ours = rows[row].ours;
    ek_buf_add(out, typed, n);
    ek_buf_fmt(out, " is %s%s", programs[rows[row].of].name, what);
    if (strncmp(ours, none, sizeof none - 1) != 0) {
        ek_buf_str(out, "; here: ");
        plain(out, ours);
        return true;
    }
    ek_buf_str(out, " and has no counterpart here");
    ours += sizeof none - 1;
    if (*ours) ek_buf_char(out, ':'), plain(out, ours);
    return true;
}

bool ek_cli_foreign(ek_buf *out, ek_foreign_kind kind, const char *typed, size_t n)
{
    for (int i = 0; i < N_ROWS; i++) {
        const char *at = rows[i].theirs, *span;
        size_t len;
        if ((rows[i].of == CHAT) != (kind == EK_FOREIGN_LINE)) continue;
        while (next_span(&at, &span, &len)) {
            if (kind == EK_FOREIGN_OPTION && *span == '-' && has_option(span, len, typed, n))
                return put(out, i, typed, n, " option");
            if (kind == EK_FOREIGN_COMMAND && *span != '-' && is_command(rows[i].of, span, len, typed, n))
                return put(out, i, typed, n, " command");
            if (kind == EK_FOREIGN_LINE && is_line(span, len, typed)) return put(out, i, typed, n, "");
        }
    }
    return false;
}

/* --- the nearest command or option --- */

const char *ek_cli_guess_command(const char *typed)
{
    const char *best = NULL;
    int least_far = EK_NOT_NEAR;
    for (int c = 0; c < EK_CMD_COUNT; c++) {
        int far = ek_near(typed, strlen(typed), ek_commands[c].name);
        if (far < least_far) least_far = far, best = ek_commands[c].name;
    }
    return best;
}

const ek_option *ek_cli_guess_option(const char *typed, size_t n, ek_cmd_id id)
{
    const ek_option *best = NULL;
    int least_far = EK_NOT_NEAR;
    while (n && *typed == '-') typed++, n--;
    for (int i = 0; i < ek_n_options; i++) {
        if (!(ek_options[i].commands >> id & 1)) continue;
        ek_buf flag = {0};
        ek_name_flag(&flag, ek_options[i].name);
        int far = ek_near(typed, n, ek_buf_text(&flag) + 2);
        if (far < least_far) least_far = far, best = &ek_options[i];
        ek_buf_fini(&flag);
    }
    return best;
}
